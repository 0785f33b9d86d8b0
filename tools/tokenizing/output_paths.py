"""The names of the output files. Links are followed, and no output may be an input, another output, a file of the
tokenizer, a file that this tool did not write, a folder or a device."""

import json
import os
import struct

from script_errors import InputError, open_file

SUFFIXES = {"tokens": ".bin", "labels": ".labels", "documents": ".documents", "record": ".bin.json"}
UNFINISHED = ".unfinished"
RECORD = {"format": "ebb tokens", "version": 1}
HEADERS = {"u16": (20240520, 1), "u32": (20240801, 7)}  # of llm.c: magic, version
RECORD_BEGIN = json.dumps(RECORD).encode()[:-1]
HEADER_BEGINS = tuple(struct.pack("<ii", *header) for header in HEADERS.values())


def paths_of(prefix):
    return {name: prefix + suffix for name, suffix in SUFFIXES.items()}


def files_of_tokenizer(name):
    """Returns the files that must stay: a file, or the files of a folder. The name of a hub has none."""
    try:
        return [name, *(entry.path for entry in os.scandir(name) if entry.is_file())]
    except OSError:  # a file, or no path
        return [name]


def check(prefix, inputs):
    """Refuses outputs that cannot be written, or that would overwrite an input. An input may be a name of the hub."""
    if os.path.basename(prefix) in ("", ".", ".."):
        folder = os.path.join(prefix, "train")
        raise InputError(f"--output {prefix} is a folder: give a prefix of names, for example {folder}")
    taken = {os.path.realpath(path): path for path in inputs if os.path.exists(path)}
    paths = paths_of(prefix)
    is_ours = any(is_record(os.path.realpath(paths["record"]) + end) for end in ("", UNFINISHED))
    for path in paths.values():
        target = target_of(path)
        for name in (target, target + UNFINISHED):
            if name in taken:
                raise InputError(f"--output {prefix}: {path} would overwrite {taken[name]}; give another prefix")
        taken[target] = path
        if not is_ours:
            refuse_foreign(path)


def is_record(path):
    """Whether a file begins like a record of this tool, complete or not."""
    return begin_of(path).startswith(RECORD_BEGIN)


def begin_of(path):
    """Returns the first bytes of a file, or nothing if there is no such file."""
    if not os.path.isfile(path):
        return b""
    with open_file(path, "--output") as file:
        return file.read(64)


def refuse_foreign(path):
    """Refuses to overwrite a file that has no record of this tool. An empty file, and tokens with a header, may be
    overwritten."""
    begin = begin_of(path)
    if begin and not begin.startswith(HEADER_BEGINS):
        raise InputError(f"--output: {path} exists and has no record of this tool, so it may be another file of yours; "
                         "remove it, or give another prefix")


def target_of(path):
    """Returns where to write a file: a link leads to another name."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if os.path.isdir(target):
        raise InputError(f"--output: {path} is a folder; give another prefix, or remove the folder")
    if os.path.exists(target) and not os.path.isfile(target):
        raise InputError(f"--output: {path} leads to {target}, a device or a pipe; only files can be written")
    if not os.path.isdir(folder):
        raise InputError(f"--output: the folder {folder} does not exist; make it with: mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise InputError(f"--output: {folder}: Permission denied; give a folder that can be written")
    return target
