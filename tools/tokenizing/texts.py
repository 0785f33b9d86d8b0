"""Cuts texts into pieces that are short enough to be tokenized. A cut is after a word, where no tokenizer has a token
across the cut. Each piece contains some characters of its neighbours as context, so that its tokens are those of the
whole text."""

import re

from .encoding import Piece

PIECE = 1 << 16  # characters; pieces are tokenized in parallel
CONTEXT = 64
BEHIND_A_WORD = re.compile(r"(?<=[^\W_])(?=\s)")


def pieces_of(text, size=PIECE):
    """REQUIRES: texts whose blocks come from the same file are read one after the other."""
    before, rest, begins = "", "", True  # before: context that was already tokenized
    for block in text.blocks:
        rest += block
        while len(rest) > size + CONTEXT:
            cut = last_cut(rest, size)
            if cut is None:
                break  # the word is longer than the piece: read more
            yield Piece(text.where, before + rest[:cut + CONTEXT], len(before), len(before) + cut, begins, False)
            before, rest, begins = context_of(before + rest[:cut]), rest[cut:], False
    if rest or not begins:
        yield Piece(text.where, before + rest, len(before), len(before) + len(rest), begins, True)


def last_cut(rest, size):
    """Returns the last possible cut up to `size`, or else the first one after it; None: no cut yet."""
    for first in (max(1, size - 4096), 1):
        places = [match.start() for match in BEHIND_A_WORD.finditer(rest, first, size)]
        if places:
            return places[-1]
    match = BEHIND_A_WORD.search(rest, size, len(rest) - CONTEXT)
    return match.start() if match else None


def context_of(done):
    """Returns the end of `done`, from a position where a cut is possible."""
    match = BEHIND_A_WORD.search(done, max(0, len(done) - 4 * CONTEXT), max(0, len(done) - CONTEXT))
    return done[match.start():] if match else done[-4 * CONTEXT:]
