"""Errors of the Python scripts in this folder. A script answers bad input with one line on stderr and an exit code of
`ebb`: 2 for input that cannot be used or a package that is missing, 1 for a failure while running, 130 after Ctrl-C. If
the reader of the output closes the pipe, a script ends with 0 and writes nothing."""

import argparse
import importlib
import os
import sys

BUFFER = 1 << 20


class InputError(Exception):
    """The text is a message for the user, with the flag or file, the value, and what is allowed."""


class MissingPackage(InputError):
    """No module of this name can be imported. `install`: the packages for pip."""

    def __init__(self, text, module, install):
        super().__init__(text)
        self.module, self.install = module, install


class Parser(argparse.ArgumentParser):
    """Reports a wrong flag in one line."""

    def error(self, message):
        raise InputError(f"{message}; --help explains the flags")


def one_line(text):
    """Joins the lines of a text, and escapes its control characters."""
    joined = " ".join(str(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in joined)


def reason(error):
    """Returns the message of an error, without Python's error number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error) or type(error).__name__


def say(script, kind, text):
    """Writes one line to stderr, if it is open."""
    try:
        print(f"{script}: {kind}: {one_line(text)}", file=sys.stderr, flush=True)
    except OSError:
        pass


def import_package(*names, install):
    """Imports the first of these modules that exists. `install` names the packages for pip."""
    reasons = []
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            reasons.append(str(error))
    raise MissingPackage(f"{sys.executable}: {'; '.join(reasons)}; run 'pip install {install}', or run the script with a "
                         "Python that has it", names[0], install)


def import_transformers():
    """Its warnings are not for the user of a script."""
    for name in ("TRANSFORMERS_VERBOSITY", "HF_HUB_VERBOSITY"):
        os.environ.setdefault(name, "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    return import_package("transformers", install="transformers numpy")


def open_file(path, flag=None):
    """Opens a file for reading bytes. `flag`: the flag that names it, for the message."""
    try:
        return open(path, "rb", buffering=BUFFER)
    except OSError as error:
        raise InputError(" ".join(filter(None, (flag, reason(error))))) from error


def end_output():
    """Discards the output that could not be written. Otherwise Python tries again when it exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (AttributeError, OSError):  # the output is closed, or is no file
        pass


def run(script, main, arguments):
    """Calls main(arguments), and returns the exit code of the script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be text of the terminal
    try:
        code = main(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except InputError as error:
        say(script, "error", error)
        return 2
    except KeyboardInterrupt:
        say(script, "error", "stopped by Ctrl-C")
        return 130
    except BrokenPipeError:
        end_output()
        return 0
    except OSError as error:
        say(script, "error", reason(error))
        end_output()
        return 1
    except MemoryError:
        say(script, "error", "there is not enough memory")
        return 1
