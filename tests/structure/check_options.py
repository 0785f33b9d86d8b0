#!/usr/bin/env python3
"""Messages of the library name options, as in "lower `device_memory`", and no flags of the program. tools/option_flags.cpp must
have the flag of each option. Prints each message that names a flag, and each name between backquotes that is neither an option
nor a command, nor `variant`, an argument of transformers.

Usage: check_options.py --root DIR
Exit code: 0 where there is nothing to print, 1 otherwise.
"""

import argparse
import pathlib
import re
import sys

from check_includes import LIBRARY, SUFFIXES

LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
COMMANDS = re.compile(r"(hf|git) |variant$")


def options_of(table):
    return set(re.findall(r'^    \{"(\w+)", "--[\w-]+"\},$', table, re.MULTILINE))


def faults(root):
    options = options_of((root / "tools/option_flags.cpp").read_text(encoding="utf-8"))
    for folder in sorted(LIBRARY | {"cuda"}):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                text = "" if line.lstrip().startswith(("//", "#include")) else " ".join(LITERAL.findall(line))
                place = f"{file.relative_to(root)}:{number}"
                for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", text):
                    yield f"{place}: names the flag {flag}; name the option between backquotes"
                for name in re.findall(r"`([^`]*)`", text):
                    if name not in options and not COMMANDS.match(name):
                        yield f"{place}: tools/option_flags.cpp has no option {name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    found = list(faults(parser.parse_args().root))
    print("\n".join(found) if found else "Each option that a message names has a flag.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
