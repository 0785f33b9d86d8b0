"""Texts as pieces short enough to be tokenized, cut where no tokenizer has a token across: behind a word. Each piece
brings some characters of its neighbours as context, so that its tokens are those of the whole text."""

import re

from .encoding import Piece

PIECE = 1 << 16  # characters; parallel work is pieces
CONTEXT = 64
BEHIND_A_WORD = re.compile(r"(?<=[^\W_])(?=\s)")


def pieces_of(text, size=PIECE):
    """REQUIRES: no two texts at once, where their blocks come from one file."""
    before, rest, begins = "", "", True  # before: context that is done
    for block in text.blocks:
        rest += block
        while len(rest) > size + CONTEXT:
            cut = last_cut(rest, size)
            if cut is None:
                break  # a word longer than that: wait for its end
            yield Piece(text.where, before + rest[:cut + CONTEXT], len(before), len(before) + cut, begins, False)
            before, rest, begins = context_of(before + rest[:cut]), rest[cut:], False
    if rest or not begins:
        yield Piece(text.where, before + rest, len(before), len(before) + len(rest), begins, True)


def last_cut(rest, size):
    """A place to cut, at most `size` characters ahead or as soon as there is one behind that; None: not yet."""
    for first in (max(1, size - 4096), 1):
        places = [match.start() for match in BEHIND_A_WORD.finditer(rest, first, size)]
        if places:
            return places[-1]
    match = BEHIND_A_WORD.search(rest, size, len(rest) - CONTEXT)
    return match.start() if match else None


def context_of(done):
    """Its end, from a place where it might have been cut."""
    match = BEHIND_A_WORD.search(done, max(0, len(done) - 4 * CONTEXT), max(0, len(done) - CONTEXT))
    return done[match.start():] if match else done[-4 * CONTEXT:]
