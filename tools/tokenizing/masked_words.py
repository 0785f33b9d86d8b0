"""Words for a masked-language model to guess, as BERT chooses them (Devlin et al. 2018): some tokens are targets; of
those 8 in 10 are hidden behind the mask token, 1 becomes any token, 1 stays."""

import numpy

from .errors import InputError
from .token_files import IGNORED


class MaskedWords:
    def __init__(self, tokenizer, share, seed):
        if tokenizer.mask_token_id is None:
            raise InputError("--mask-words: the tokenizer has no mask token; it is for masked-language models")
        self.share, self.mask, self.vocabulary = share, tokenizer.mask_token_id, len(tokenizer)
        self.random = numpy.random.default_rng(seed)

    def hide(self, ids, may_be_hidden):
        """The tokens with some of them hidden, and the targets."""
        chance, kind = self.random.random(len(ids)), self.random.random(len(ids))
        others = self.random.integers(self.vocabulary, size=len(ids))
        chosen = may_be_hidden & (chance < self.share)
        targets = numpy.where(chosen, ids, IGNORED)
        hidden = numpy.where(chosen & (kind < 0.8), self.mask, ids)
        return numpy.where(chosen & (kind >= 0.9), others, hidden), targets
