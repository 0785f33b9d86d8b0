"""Tokenizes pieces of text, removes the tokens of their context, and marks the tokens that a model learns."""

import dataclasses
import typing

import numpy
from script_errors import InputError


@dataclasses.dataclass
class Piece:
    """A part of a document's text, or all of it. Characters outside [first, last) are only context."""
    where: str
    text: str
    first: int
    last: int
    begins: bool  # a document
    ends: bool
    learned: typing.Optional[list] = None  # spans (start, end) of characters; None: all of [first, last)
    is_conversation: bool = False
    encoded: typing.Optional[tuple] = None  # token ids and the mask of learned tokens, if already known

    def has_answer(self):
        return any(self.encoded[1]) if self.encoded is not None else self.learned is None or self.learned != []


@dataclasses.dataclass
class Tokens:
    """The tokens of a piece. `is_learned` marks the tokens that the model learns to predict."""
    where: str
    ids: numpy.ndarray
    is_learned: numpy.ndarray
    begins: bool
    ends: bool
    is_conversation: bool


def special_ids(tokenizer):
    """Returns the tokens that the tokenizer itself adds before and after a text."""
    inner, outer = tokenizer.encode("a", special=False), tokenizer.encode("a")
    for first in range(len(outer) - len(inner) + 1):
        if outer[first:first + len(inner)] == inner:
            return outer[:first], outer[first + len(inner):]
    return [], []


def encode(tokenizer, pieces):
    """Tokenizes several pieces in one call."""
    open_pieces = [piece for piece in pieces if piece.encoded is None]
    encoded = iter(())
    if open_pieces:
        encoded = iter(tokenizer.encode_all([piece.text for piece in open_pieces]))
    for piece in pieces:
        if piece.encoded is None:
            encoding = next(encoded)
            ids = numpy.asarray(encoding.ids, dtype=numpy.int64)
            counts, learned = tokens_of(piece, numpy.asarray(encoding.offsets, dtype=numpy.int64).reshape(-1, 2))
            ids, learned = ids[counts], learned[counts]
        else:
            ids, learned = (numpy.asarray(part, dtype=kind) for part, kind in zip(piece.encoded, (numpy.int64, bool)))
        yield Tokens(piece.where, ids, learned, piece.begins, piece.ends, piece.is_conversation)


def tokens_of(piece, offsets):
    """Returns which tokens belong to [first, last), and which of those are learned."""
    starts, ends = offsets[:, 0], offsets[:, 1]
    for cut in (piece.first, piece.last):
        across = (starts < cut) & (cut < ends)
        if across.any():
            raise InputError(f"{piece.where}: the tokenizer joins '{piece.text[cut - 8:cut]}' and "
                             f"'{piece.text[cut:cut + 8]}', where a long text is cut; give shorter documents "
                             "(--separator, or JSON lines)")
    counts = (starts >= piece.first) & (ends <= piece.last)
    if piece.learned is None:
        return counts, counts.copy()
    learned = numpy.zeros(len(starts), dtype=bool)
    for start, end in piece.learned:
        inside = (ends > start) & (starts < end)
        for token in numpy.flatnonzero(inside & ((starts < start) | (ends > end))):
            check_border(piece, starts[token], ends[token], start, end)
        learned |= inside
    return counts, learned


def check_border(piece, first, last, start, end):
    """A token of an answer may contain blanks of the prompt, but not words."""
    if (piece.text[first:start] + piece.text[end:last]).strip():
        raise InputError(f"{piece.where}: the tokenizer makes one token of '{piece.text[first:last]}', which is partly "
                         "the assistant's and partly not: the chat template must separate them")
