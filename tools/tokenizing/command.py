"""The command line of tools/tokenize.py."""

import argparse
import itertools
import sys
import time

import numpy

from . import encoding, sources, texts
from .conversations import ChatTemplate
from .errors import InputError
from .masked_words import MaskedWords
from .packing import Packer
from .token_files import IGNORED, TokenFiles

BATCH_CHARACTERS = 1 << 20  # tokenized at once
BATCH_PIECES = 512
PROGRESS_S = 10

DESCRIPTION = """\
Makes token files for `ebb train` from text files and JSON lines (.jsonl), with a Hugging Face tokenizer. A text file is
one document. Each line of JSON is one document: {"text": ...}, or {"messages": [{"role": ..., "content": ...}, ...]}
for the tokenizer's chat template. Inputs may be larger than memory.

PREFIX.bin contains the tokens, for --data. PREFIX.labels (--labels) contains a label for each token: the next token of
the same document. In conversations, only the assistant's messages and the token after each of them are labels.
PREFIX.documents (--documents) contains the positions where documents begin.
"""

EXAMPLE = """\
  tools/tokenize.py --tokenizer my-model --labels --documents --seq-length 1024 --output chat chat.jsonl
  ebb train --model my-model --data chat.bin --labels chat.labels --documents chat.documents --seq-length 1024
"""


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="tokenize.py", description=DESCRIPTION, epilog="Example:\n" + EXAMPLE,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("inputs", nargs="+", metavar="INPUT", help="text files, or JSON lines if the name ends in .jsonl or .ndjson")
    add("--tokenizer", required=True, metavar="DIR", help="a model's folder, a hub id, or a tokenizer.json")
    add("--output", required=True, metavar="PREFIX", help="prefix of the names of the output files")
    add("--labels", action="store_true", help="write PREFIX.labels")
    add("--documents", action="store_true", help="write PREFIX.documents")
    add("--seq-length", type=int, metavar="T",
        help="put whole documents into rows of T tokens, for `ebb train --seq-length T`; writes labels and documents")
    add("--too-long", choices=("split", "truncate", "drop"),
        help="what to do with documents of more than T tokens [texts: split, conversations: truncate]")
    add("--end-of-text", default="auto", metavar="auto|none|TOKEN",
        help="token to add after each document [auto: after texts, the tokenizer's; the chat template ends "
             "conversations]")
    add("--separator", metavar="TEXT", help="text between two documents of a text file [a file is one document]")
    add("--chat-template", metavar="FILE", help="chat template to use instead of the tokenizer's")
    add("--mask-words", type=float, metavar="SHARE",
        help="for masked-language models: hide this share of the tokens (BERT: 0.15); their labels are the hidden "
             "tokens")
    add("--seed", type=int, default=1, metavar="N", help="seed of the choice of hidden tokens [1]")
    add("--token-type", choices=("auto", "u16", "u32"), default="auto",
        help="type of a token in PREFIX.bin [u16 if the vocabulary fits]")
    add("--no-header", action="store_true", help="write PREFIX.bin without a header; ebb then needs --token-type")
    options = parser.parse_args(arguments)
    check(parser, options)
    return options


def check(parser, options):
    if options.seq_length is not None and options.seq_length < 2:
        parser.error(f"--seq-length {options.seq_length}: allowed is a whole number from 2")
    if options.too_long and not options.seq_length:
        parser.error(f"--too-long {options.too_long} needs --seq-length T")
    if options.mask_words is not None and not 0 < options.mask_words < 1:
        parser.error(f"--mask-words {options.mask_words}: allowed is a share between 0 and 1")
    if options.separator == "":
        parser.error("--separator '': allowed is a text")
    if options.seq_length:
        options.documents = True
    if options.seq_length or options.mask_words:
        options.labels = True


class Tokenizing:
    """Reads the inputs, tokenizes them and writes the files."""

    def __init__(self, options):
        template = read_text(options.chat_template) if options.chat_template else None
        self.options = options
        self.tokenizer = encoding.load_tokenizer(options.tokenizer, template)
        self.chat = ChatTemplate(self.tokenizer)
        self.before, self.behind = encoding.special_ids(self.tokenizer)
        self.end_of_text = end_of_text(self.tokenizer, options.end_of_text)
        self.masked = MaskedWords(self.tokenizer, options.mask_words, options.seed) if options.mask_words else None
        self.files = TokenFiles(options.output, self.token_type(), options.labels, options.documents,
                                shifted=self.masked is None, header=not options.no_header)
        self.packer = Packer(self.files, options.seq_length, self.filler()) if options.seq_length else None
        self.shown_s = time.monotonic()

    def token_type(self):
        fits = len(self.tokenizer) <= 1 << 16
        if self.options.token_type == "u16" and not fits:
            raise InputError(f"--token-type u16: the vocabulary has {len(self.tokenizer)} tokens, beyond 65536")
        return ("u16" if fits else "u32") if self.options.token_type == "auto" else self.options.token_type

    def filler(self):
        known = (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id, 0)
        return next(token for token in known if token is not None)

    def run(self):
        try:
            for batch in batches(self.pieces()):
                for tokens in encoding.encode(self.tokenizer, batch):
                    self.write(tokens)
                self.show_progress()
            if self.packer:
                self.packer.finish()
            self.check_result()
            self.files.finish()
        except BaseException:
            self.files.discard()
            raise

    def pieces(self):
        for document in sources.documents(self.options.inputs, self.options.separator):
            if isinstance(document, sources.Text):
                yield from texts.pieces_of(document)
            else:
                yield self.chat.piece_of(document)

    def write(self, tokens):
        if tokens.begins:
            self.begin(tokens.is_conversation)
        if tokens.begins and not tokens.is_conversation:
            self.add_special(self.before)
        self.add(tokens.ids, tokens.is_learned)
        if not tokens.ends:
            return
        behind = [] if tokens.is_conversation else list(self.behind)
        if self.end_of_text is not None and behind[-1:] != [self.end_of_text]:
            if not tokens.is_conversation or self.options.end_of_text != "auto":
                behind.append(self.end_of_text)
        self.add_special(behind)
        (self.packer or self.files).end()

    def begin(self, is_conversation):
        if self.packer:
            self.packer.begin(self.options.too_long or ("truncate" if is_conversation else "split"))
        else:
            self.files.begin()

    def add(self, ids, is_learned):
        ids, targets = self.masked.hide(ids, is_learned) if self.masked else (ids, numpy.where(is_learned, ids, IGNORED))
        (self.packer or self.files).add(ids, targets)

    def add_special(self, ids):
        """The model learns to predict special tokens, but they are never hidden as masked words."""
        ids = numpy.asarray(ids, dtype=numpy.int64)
        targets = numpy.full(len(ids), IGNORED) if self.masked else ids
        (self.packer or self.files).add(ids, targets)

    def check_result(self):
        files = self.files
        if files.num_tokens == 0:
            raise InputError("there is no text in the inputs")
        if files.num_targets == 0:
            raise InputError(f"in {files.num_documents} documents there is nothing to learn: a conversation needs a "
                             "message of the role 'assistant', a text more than one token")

    def show_progress(self):
        if time.monotonic() - self.shown_s > PROGRESS_S:
            self.shown_s = time.monotonic()
            print(f"{self.files.num_tokens:,} tokens", file=sys.stderr)

    def summary(self):
        files = self.files
        text = (f"{files.num_documents} documents, {files.num_tokens} tokens ({files.token_type}), "
                f"{files.num_targets} targets")
        if self.packer:
            rows = files.num_tokens // self.packer.length
            text += (f"; {rows} rows of {self.packer.length}, {self.packer.num_filled} tokens of filling; "
                     f"{self.packer.num_too_long} documents were longer")
        return text


def batches(pieces):
    """Yields lists of pieces, each large enough to use all cores."""
    while batch := list(limited(pieces)):
        yield batch


def limited(pieces):
    characters = 0
    for piece in itertools.islice(pieces, BATCH_PIECES):
        yield piece
        characters += len(piece.text)
        if characters >= BATCH_CHARACTERS:
            return


def end_of_text(tokenizer, wanted):
    if wanted == "none":
        return None
    if wanted == "auto":
        return tokenizer.eos_token_id
    token = tokenizer.convert_tokens_to_ids(wanted)
    if token is None or token == tokenizer.unk_token_id:
        raise InputError(f"--end-of-text {wanted}: the tokenizer has no such token; its own is {tokenizer.eos_token}")
    return token


def read_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main(arguments):
    options = parse_arguments(arguments)
    try:
        run = Tokenizing(options)
        run.run()
    except InputError as error:
        print(f"tokenize.py: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"tokenize.py: error: {error}", file=sys.stderr)
        return 1
    print(run.summary())
    for name in run.files.files:
        print(run.files.paths[name])
    return 0
