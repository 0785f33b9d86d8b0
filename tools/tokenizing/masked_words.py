"""Chooses targets for a masked-language model as BERT does (Devlin et al. 2018): a share of the tokens are targets. Of
these, 80 % are replaced by the mask token, 10 % are replaced by a random token, and 10 % stay."""

import numpy
from script_errors import InputError

from .token_files import IGNORED


class MaskedWords:
    def __init__(self, tokenizer, share, seed):
        if tokenizer.id_of("mask_token") is None:
            raise InputError("--mask-words: the tokenizer has no mask token; give one of a masked-language model")
        self.share, self.mask, self.vocabulary = share, tokenizer.id_of("mask_token"), len(tokenizer)
        self.random = numpy.random.default_rng(seed)

    def hide(self, ids, may_be_hidden):
        """Returns the tokens, some of them hidden, and the targets."""
        chance, kind = self.random.random(len(ids)), self.random.random(len(ids))
        others = self.random.integers(self.vocabulary, size=len(ids))
        chosen = may_be_hidden & (chance < self.share)
        targets = numpy.where(chosen, ids, IGNORED)
        hidden = numpy.where(chosen & (kind < 0.8), self.mask, ids)
        return numpy.where(chosen & (kind >= 0.9), others, hidden), targets
