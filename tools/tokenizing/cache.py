"""Folders of files that are made once and kept. An entry is complete or absent: it is made under another name, and its
list of files, which is written last, has their sizes. An entry that does not match its list is made again."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil

from script_errors import InputError

LIST = "entry.json"
UNFINISHED = ".unfinished"


def key_of(*parts):
    """A name for what depends on these values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def file_key(path):
    """What changes when a file changes. Files may be too large to read them twice."""
    status = os.stat(path)
    return [os.path.abspath(path), status.st_size, status.st_mtime_ns]


def content_key(path):
    with open(path, "rb") as file:
        return [os.path.basename(path), hashlib.sha256(file.read()).hexdigest()]


def read_entry(folder):
    """Returns what `make` returned, or None if the entry is missing or damaged."""
    try:
        with open(os.path.join(folder, LIST), encoding="utf-8") as file:
            entry = json.load(file)
        if all(os.path.getsize(os.path.join(folder, name)) == size for name, size in entry["files"].items()):
            return entry["result"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def kept(cache, kind, key, make, busy):
    """Returns the folder of an entry, the result of `make(folder)`, and whether it was made now. The result is JSON.
    `busy` is a set of folders that must be removed if the program ends early."""
    folder = os.path.join(cache, kind, key)
    with naming(cache):
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        lock = open(folder + ".lock", "wb")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = read_entry(folder)
        if result is not None:
            return folder, result, False
        unfinished = folder + UNFINISHED
        busy.add(unfinished)
        try:
            remove(folder)
            remove(unfinished)  # a killed run left it
            with naming(cache):
                os.mkdir(unfinished)
            result = make(unfinished)
            write_list(unfinished, result)
            os.rename(unfinished, folder)
        finally:
            remove(unfinished)
            busy.discard(unfinished)
    return folder, result, True


def write_list(folder, result):
    sizes = {name: os.path.getsize(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}
    with open(os.path.join(folder, LIST), "w", encoding="utf-8") as file:
        json.dump({"files": sizes, "result": result}, file)
        file.flush()
        os.fsync(file.fileno())


def remove(folder):
    if os.path.lexists(folder):
        shutil.rmtree(folder)


@contextlib.contextmanager
def naming(cache):
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to the cache {cache}: {error.strerror}; set XDG_CACHE_HOME to another "
                         "folder") from error
