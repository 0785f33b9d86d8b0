"""Writes the files that `ebb train` reads, and a record of what they were made for. The files get their final names
when all are complete, and the record gets its name last."""

import contextlib
import fcntl
import json
import os
import struct

import numpy
from script_errors import InputError

from .output_paths import HEADERS, RECORD, RECORD_BEGIN, UNFINISHED, is_record, paths_of, target_of

IGNORED = -100
HEADER_WORDS = 256  # header of llm.c: magic, version, number of tokens
TYPES = {"u16": numpy.uint16, "u32": numpy.uint32}


class TokenFiles:
    """PREFIX.bin, .labels, .documents and .bin.json. A label has the position of the token before it in the same
    document; for masked words, it has the position of the hidden token. `record`: what .bin.json says besides the
    number of tokens."""

    def __init__(self, prefix, token_type, labels, documents, record, shifted=True, header=True):
        self.token_type, self.shifted, self.header, self.record = token_type, shifted, header, record
        self.paths = paths_of(prefix)
        self.targets = {name: target_of(path) for name, path in self.paths.items()}
        self.files = {}
        self.num_tokens = self.num_documents = self.num_targets = 0
        self.in_document = 0  # tokens
        try:
            wanted = {"record": True, "tokens": True, "labels": labels, "documents": documents}
            self.open_all([name for name, is_wanted in wanted.items() if is_wanted])
        except BaseException:
            self.discard()
            raise
        if header:
            self.write_bytes("tokens", bytes(4 * HEADER_WORDS))

    def open_all(self, names):
        """Begins the record first: it shows that the other unfinished files are of this tool."""
        was_killed = is_record(self.unfinished("record"))
        for name in names:
            self.files[name] = open_output(self.unfinished(name), self.paths[name], was_killed)
            if name == "record":
                self.write_bytes(name, RECORD_BEGIN)
                self.files[name].flush()
        for name in self.paths.keys() - names if was_killed else ():
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.unfinished(name))

    def unfinished(self, name):
        return self.targets[name] + UNFINISHED

    def written(self):
        return [path for name, path in self.paths.items() if name in self.files]

    def left_over(self):
        """Returns files of an earlier run that this run does not replace."""
        return [path for name, path in self.paths.items() if name not in self.files and os.path.exists(path)]

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
            self.write_bytes(name, numpy.asarray(values).astype(kind).tobytes())

    def write_bytes(self, name, data):
        with naming(self.paths[name]):
            self.files[name].write(data)

    def finish(self):
        if self.header:
            magic, version = HEADERS[self.token_type]
            with naming(self.paths["tokens"]):
                self.files["tokens"].seek(0)  # writes what is buffered
            self.write_bytes("tokens", struct.pack("<iiI", magic, version, self.num_tokens))
        record = {**RECORD, "num_tokens": self.num_tokens, **self.record}
        self.files["record"].seek(0)  # over its begin, which is the same
        self.write_bytes("record", json.dumps(record).encode() + b"\n")
        for name, file in self.files.items():
            with naming(self.paths[name]):
                file.flush()
                os.fsync(file.fileno())
        self.rename()
        for file in self.files.values():
            file.close()

    def rename(self):
        """A process that is killed here leaves files without a record, and never a record of other files."""
        if os.path.exists(self.targets["record"]):
            os.remove(self.targets["record"])
            sync_folder(self.targets["record"])
        for name in reversed(self.files):  # the record is the last
            os.replace(self.unfinished(name), self.targets[name])
            sync_folder(self.targets[name])

    def leave_out(self, name):
        """Removes an unfinished file, which the record then does not have."""
        if name in self.files:
            os.remove(self.unfinished(name))
            self.files.pop(name).close()
            self.record = {**self.record, name: False}

    def discard(self):
        """Removes the unfinished files. Closing a file releases its lock, so it is the last step."""
        for name, file in reversed(self.files.items()):
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.unfinished(name))
            with contextlib.suppress(OSError):  # if the disk is full, this error was reported before
                file.close()


def open_output(path, name, was_killed):
    """Opens an unfinished file. Its lock keeps a second run from writing it. What a killed run left is overwritten."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    if os.path.lexists(path) and not was_killed:
        raise InputError(f"--output: {path} exists and may be another file of yours; remove it, or give another prefix")
    try:
        file = open(os.open(path, flags, 0o666), "wb")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):  # the other run has just ended
            raise BlockingIOError
    except BlockingIOError as error:
        raise InputError(f"--output: another run writes {name}; wait for it, or give another prefix") from error
    except OSError as error:
        raise InputError(f"--output: cannot write {path}: {error.strerror}; remove it, or give another "
                         "prefix") from error
    file.truncate(0)
    return file


@contextlib.contextmanager
def naming(path):
    """Adds the name of the file to errors of writing."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def sync_folder(path):
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):  # some network file systems have no such call
        os.fsync(folder)
    os.close(folder)
