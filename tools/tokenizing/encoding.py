"""Tokenizes pieces of text, removes the tokens of their context, and marks the tokens that a model learns."""

import dataclasses
import os.path
import typing

import numpy
from script_errors import InputError, import_transformers


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


def load_tokenizer(name, chat_template):
    transformers = import_transformers()
    try:
        if name.endswith(".json"):
            tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=name)
        else:
            tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    except Exception as error:  # the libraries below transformers raise any error for a damaged file
        raise InputError(f"--tokenizer {name}: {no_tokenizer(name, error)}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"--tokenizer {name}: it does not tell which characters belong to a token; give one with a "
                         "tokenizer.json")
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    return tokenizer


def no_tokenizer(name, error):
    if os.path.exists(name):
        return f"transformers cannot load a tokenizer from it: {error}"
    return f"there is no such folder, and transformers finds no model of this name: {error}"


def vocabulary_of(tokenizer):
    """Returns the smallest number that is larger than every token. Some tokenizers leave numbers out."""
    return max(len(tokenizer), 1 + max(tokenizer.get_vocab().values(), default=0))


def special_ids(tokenizer):
    """Returns the tokens that the tokenizer itself adds before and after a text."""
    inner = tokenizer("a", add_special_tokens=False)["input_ids"]
    outer = tokenizer("a")["input_ids"]
    for first in range(len(outer) - len(inner) + 1):
        if outer[first:first + len(inner)] == inner:
            return outer[:first], outer[first + len(inner):]
    return [], []


def encode(tokenizer, pieces):
    """Tokenizes several pieces in one call."""
    open_pieces = [piece for piece in pieces if piece.encoded is None]
    encoded = iter(())
    if open_pieces:
        batch = tokenizer([piece.text for piece in open_pieces], add_special_tokens=False,
                          return_offsets_mapping=True, return_attention_mask=False, return_token_type_ids=False,
                          verbose=False)
        encoded = zip(batch["input_ids"], batch["offset_mapping"])
    for piece in pieces:
        if piece.encoded is None:
            ids, offsets = next(encoded)
            ids = numpy.asarray(ids, dtype=numpy.int64)
            counts, learned = tokens_of(piece, numpy.asarray(offsets, dtype=numpy.int64).reshape(-1, 2))
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
