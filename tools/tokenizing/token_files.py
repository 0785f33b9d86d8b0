"""Writes the files that `ebb train` reads. They get their final names when they are complete."""

import os
import struct

import numpy

from .errors import InputError

IGNORED = -100
HEADER_WORDS = 256  # header of llm.c: magic, version, number of tokens
HEADERS = {"u16": (20240520, 1), "u32": (20240801, 7)}
TYPES = {"u16": numpy.uint16, "u32": numpy.uint32}


class TokenFiles:
    """PREFIX.bin, .labels and .documents. A label has the position of the token before it in the same document; for
    masked words, it has the position of the hidden token."""

    def __init__(self, prefix, token_type, labels, documents, shifted=True, header=True):
        self.token_type, self.shifted, self.header = token_type, shifted, header
        self.paths = {"tokens": prefix + ".bin", "labels": prefix + ".labels", "documents": prefix + ".documents"}
        self.files = {}
        self.num_tokens = self.num_documents = self.num_targets = 0
        self.in_document = 0  # tokens
        for name, wanted in (("tokens", True), ("labels", labels), ("documents", documents)):
            if wanted:
                self.files[name] = open(self.unfinished(name), "wb")
        if header:
            self.files["tokens"].write(bytes(4 * HEADER_WORDS))

    def unfinished(self, name):
        return self.paths[name] + ".unfinished"

    def begin(self):
        """Begins a document. REQUIRES: the previous document has ended."""
        self.in_document = 0

    def add(self, ids, targets):
        """Adds tokens, and for each token its target, or IGNORED."""
        if len(ids) == 0:
            return
        if self.in_document == 0:
            self.num_documents += 1
            self.write("documents", [self.num_tokens], numpy.int64)
            if self.shifted:
                targets = targets[1:]  # the first token has no token before it
        self.num_tokens += len(ids)
        self.in_document += len(ids)
        if self.header and self.num_tokens >= 1 << 32:
            raise InputError(f"{self.paths['tokens']}: a header allows at most 2^32-1 tokens; give less "
                             "input, or --no-header (and `ebb train --token-type`)")
        self.write("tokens", ids, TYPES[self.token_type])
        self.write_labels(targets)

    def end(self):
        if self.shifted and self.in_document > 0:
            self.write_labels(numpy.array([IGNORED]))
        self.in_document = 0

    def write_labels(self, targets):
        self.num_targets += int((targets != IGNORED).sum())
        self.write("labels", targets, numpy.int32)

    def write(self, name, values, kind):
        if name in self.files:
            self.files[name].write(numpy.asarray(values).astype(kind).tobytes())

    def finish(self):
        if self.header:
            magic, version = HEADERS[self.token_type]
            self.files["tokens"].seek(0)
            self.files["tokens"].write(struct.pack("<iiI", magic, version, self.num_tokens))
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        for name in self.files:
            os.replace(self.unfinished(name), self.paths[name])

    def discard(self):
        for name, file in self.files.items():
            file.close()
            if os.path.exists(self.unfinished(name)):
                os.remove(self.unfinished(name))
