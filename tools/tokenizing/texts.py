"""Cuts texts into pieces that are short enough to be tokenized. A cut is between a word and a blank, where no tokenizer
has a token across the cut. A text without such a place, for example a Chinese one, is cut after a line or a sentence
before it needs much memory. Each piece contains some characters of its neighbours as context, so that its tokens are
those of the whole text."""

import re

from .encoding import Piece

PIECE = 1 << 16  # characters; pieces are tokenized in parallel
CONTEXT = 64
LONGEST = 16  # pieces that are read while a word is sought to cut behind
BEHIND_A_WORD = re.compile(r"(?<=[^\W_])(?=\s)")
BEHIND_A_LINE = re.compile(r"(?<=\n)(?=[^\W_])")
BEHIND_A_SENTENCE = re.compile("(?<=[.!?\u3002\uff01\uff1f\uff0e\u2026])(?=[^\\W_])")  # also full-width marks
BEHIND_A_CLAUSE = re.compile("(?<=[,;:\u3001\uff0c\uff1b\uff1a])(?=[^\\W_])")
OTHER_PLACES = (BEHIND_A_LINE, BEHIND_A_SENTENCE, BEHIND_A_CLAUSE)


def pieces_of(text, size=PIECE):
    """REQUIRES: texts whose blocks come from the same file are read one after the other."""
    before, rest, begins = "", "", True  # before: context that was already tokenized
    for block in text.blocks:
        rest += block
        while len(rest) > size + CONTEXT:
            cut = last_cut(rest, size, BEHIND_A_WORD)
            if cut is None and len(rest) > LONGEST * size:
                cut = next(filter(None, (last_cut(rest, size, place) for place in OTHER_PLACES)), None)
            if cut is None:
                break  # the word is longer than the piece: read more
            yield Piece(text.where, before + rest[:cut + CONTEXT], len(before), len(before) + cut, begins, False)
            before, rest, begins = context_of(before + rest[:cut]), rest[cut:], False
    if rest or not begins:
        yield Piece(text.where, before + rest, len(before), len(before) + len(rest), begins, True)


def last_cut(rest, size, place):
    """Returns the last possible cut up to `size`, or else the first one after it; None: no cut yet."""
    for first in (max(1, size - 4096), 1):
        places = [match.start() for match in place.finditer(rest, first, size)]
        if places:
            return places[-1]
    match = place.search(rest, size, len(rest) - CONTEXT)
    return match.start() if match else None


def context_of(done):
    """Returns the end of `done`, from a position where a cut is possible."""
    match = BEHIND_A_WORD.search(done, max(0, len(done) - 4 * CONTEXT), max(0, len(done) - CONTEXT))
    return done[match.start():] if match else done[-4 * CONTEXT:]
