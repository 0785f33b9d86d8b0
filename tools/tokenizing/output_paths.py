"""The names of the output files. Links are followed, and no output may be an input, another output, a folder or a
device."""

import os

from script_errors import InputError

SUFFIXES = {"tokens": ".bin", "labels": ".labels", "documents": ".documents", "record": ".bin.json"}
UNFINISHED = ".unfinished"


def paths_of(prefix):
    return {name: prefix + suffix for name, suffix in SUFFIXES.items()}


def check(prefix, inputs):
    """Refuses outputs that cannot be written, or that would overwrite an input. An input may be a name of the hub."""
    if prefix.endswith(os.sep):
        raise InputError(f"--output {prefix} is a folder: give a prefix of names, for example {prefix}train")
    taken = {os.path.realpath(path): path for path in inputs if os.path.exists(path)}
    for path in paths_of(prefix).values():
        target = target_of(path)
        for name in (target, target + UNFINISHED):
            if name in taken:
                raise InputError(f"--output {prefix}: {path} would overwrite {taken[name]}; give another prefix")
        taken[target] = path


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
