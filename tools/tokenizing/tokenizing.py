"""Reads the inputs, tokenizes them and writes the files."""

import itertools
import sys
import time

import numpy
from script_errors import InputError, say

from . import encoding, sources, texts
from .conversations import ChatTemplate, roles_of
from .masked_words import MaskedWords
from .packing import Packer
from .token_files import IGNORED, TokenFiles
from .tokenizer import load_tokenizer

BATCH_CHARACTERS = 1 << 20  # tokenized at once
BATCH_PIECES = 512
PROGRESS_S = 10
ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")
EMPTY = "left out {count} empty texts"
UNANSWERED = "left out {count} conversations without an answer to learn (a message of the role 'assistant')"


class Tokenizing:
    def __init__(self, options, inputs, template, notices):
        self.options, self.inputs = options, inputs
        self.tokenizer = load_tokenizer(options.tokenizer, template=template)
        self.vocabulary = len(self.tokenizer)
        self.notices = notices
        self.chat = ChatTemplate(self.tokenizer, self.notices)
        self.before, self.behind = encoding.special_ids(self.tokenizer)
        self.end_of_text = end_of_text(self.tokenizer, options.end_of_text)
        self.masked = MaskedWords(self.tokenizer, options.mask_words, options.seed) if options.mask_words else None
        self.cut_off = (f"left out {{count}} conversations whose first answer begins after {options.seq_length} tokens "
                        "(give a larger --seq-length, or --too-long split)")
        for text in (EMPTY, UNANSWERED, self.cut_off):
            notices.expect(text)
        self.files = TokenFiles(options.output, self.token_type(), options.labels, options.documents, self.record(),
                                shifted=self.masked is None, header=not options.no_header)
        self.packer = Packer(self.files, options.seq_length, self.filler()) if options.seq_length else None
        self.out = self.packer or self.files
        self.has_texts = False  # documents that are no conversations
        self.shown_s = time.monotonic()

    def token_type(self):
        fits = self.vocabulary <= 1 << 16
        if self.options.token_type == "u16" and not fits:
            raise InputError(f"--token-type u16: the vocabulary has {self.vocabulary} tokens, beyond 65536; use u32")
        return ("u16" if fits else "u32") if self.options.token_type == "auto" else self.options.token_type

    def record(self):
        """What training must know about the files."""
        options = self.options
        return {"vocabulary": self.vocabulary, "tokenizer": options.tokenizer, "sequence_length": options.seq_length,
                "documents": options.documents, "labels": options.labels,
                "targets": "masked" if self.masked else "next"}

    def filler(self):
        known = (self.tokenizer.id_of("pad_token"), self.tokenizer.id_of("eos_token"), 0)
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
            if self.options.only_several_documents and self.files.num_documents < 2:
                self.files.leave_out("documents")
            self.files.finish()
        except BaseException:
            self.files.discard()
            raise

    def pieces(self):
        for document in sources.documents(self.inputs, self.options.separator, self.notices):
            if isinstance(document, sources.Text):
                yield from self.pieces_of_text(document)
                continue
            piece = self.chat.piece_of(document)
            if self.options.labels and not piece.has_answer():
                self.notices.add(UNANSWERED, f"{document.where} with the roles {roles_of(document.messages)}")
                continue
            self.notice_roles(document, piece)
            yield piece

    def notice_roles(self, document, piece):
        """Counts messages that are learned or not learned although one may expect otherwise."""
        if not self.options.labels:
            if not piece.has_answer():
                self.notices.add("{count} conversations have no answer of the assistant, and all their messages are "
                                 "learned, because --labels is not given", document.where)
            return
        for i, message in enumerate(document.messages):
            place, role = f"{document.where}: message {i}", message["role"]
            if role not in ROLES:
                self.notices.add(f"{{count}} messages of the role '{role}' are not learned: only those of the role "
                                 "'assistant' are", place)
            if role != "assistant" and message.get("weight"):
                self.notices.add(f"\"weight\" has no effect in {{count}} messages of the role '{role}', which are not "
                                 "learned", place)

    def pieces_of_text(self, document):
        is_empty = True
        for piece in texts.pieces_of(document):
            is_empty = False
            yield piece
        if is_empty:
            self.notices.add(EMPTY, document.where)

    def write(self, tokens):
        if tokens.begins:
            self.begin(tokens)
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
        self.out.end()

    def begin(self, tokens):
        self.has_texts = self.has_texts or not tokens.is_conversation
        if self.packer and tokens.is_conversation:
            self.packer.begin(self.options.too_long or "truncate", lambda: self.notices.add(self.cut_off, tokens.where))
        elif self.packer:
            self.packer.begin(self.options.too_long or "split")
        else:
            self.files.begin()

    def add(self, ids, is_learned):
        if not self.options.labels:
            is_learned = numpy.ones(len(ids), dtype=bool)
        targets = numpy.where(is_learned, ids, IGNORED)
        if self.masked:
            ids, targets = self.masked.hide(ids, is_learned)
        self.out.add(ids, targets)

    def add_special(self, ids):
        """The model learns to predict special tokens, but they are never hidden as masked words."""
        ids = numpy.asarray(ids, dtype=numpy.int64)
        targets = numpy.full(len(ids), IGNORED) if self.masked else ids
        self.out.add(ids, targets)

    def check_result(self):
        files = self.files
        num_long = sum(self.packer.num_too_long.values()) if self.packer else 0
        (num_cut_off, _), (num_unanswered, first) = map(self.notices.of, (self.cut_off, UNANSWERED))
        if files.num_targets == 0 and num_long:
            cut_off = f"; the first answer begins after that in {num_cut_off}" if num_cut_off else ""
            raise InputError(f"--seq-length {self.options.seq_length}: there is nothing to learn, because {num_long} "
                             f"documents are longer and were {self.how_cut()}{cut_off}; give a larger --seq-length, or "
                             "--too-long split")
        if files.num_tokens == (self.packer.num_filled if self.packer else 0) and not num_unanswered:
            more = f" and {len(self.inputs) - 1} more files" if len(self.inputs) > 1 else ""
            raise InputError(f"{self.inputs[0]}{more}: there is no text")
        if files.num_targets == 0:
            left_out = f"; {num_unanswered} were left out, the first is {first}" if num_unanswered else ""
            raise InputError("there is nothing to learn: a conversation needs a message of the role 'assistant', and a "
                             f"text more than one token{left_out}")

    def how_cut(self):
        words = {"split": "split", "truncate": "truncated", "drop": "dropped"}
        return " or ".join(words[how] for how, count in self.packer.num_too_long.items() if count)

    def report(self):
        self.notices.report()
        for path in self.files.left_over():
            say("tokenize.py", "notice",
                f"{path} is of an earlier run and does not belong to {self.files.paths['tokens']}")

    def show_progress(self):
        if time.monotonic() - self.shown_s > PROGRESS_S:
            self.shown_s = time.monotonic()
            print(f"{self.files.num_tokens:,} tokens", file=sys.stderr)

    def summary(self):
        files = self.files
        count = files.num_documents - (self.packer.num_more if self.packer else 0)
        what = "documents" if self.has_texts else "conversations"
        text = (f"{count} {what}, {files.num_tokens} tokens ({files.token_type}), "
                f"{files.num_targets} targets")
        if self.packer:
            rows = files.num_tokens // self.packer.length
            num_long = sum(self.packer.num_too_long.values())
            text += (f"; {rows} rows of {self.packer.length}, {self.packer.num_filled} tokens of filling; "
                     f"{num_long} {what} were longer" + (f" and were {self.how_cut()}" if num_long else ""))
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
        return tokenizer.id_of("eos_token")
    token = tokenizer.token(wanted)
    if token is None or token == tokenizer.id_of("unk_token"):
        raise InputError(f"--end-of-text {wanted}: the tokenizer has no such token; its own is "
                         f"{tokenizer.named.get('eos_token')}")
    return token
