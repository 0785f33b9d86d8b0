#!/usr/bin/env python3
"""Compares the blocks of C++ in pages with the files from which they are.

Usage: check_quotes.py --root DIR [PAGE...]    default: docs/embedding.md
`<!-- from: FILE -->` on the line before a block says that FILE contains the same lines; indentation and line breaks may differ.
Each block of C++ needs such a comment. Exit code: 0 if all blocks are in their files.
"""

import argparse
import pathlib
import re
import sys

BLOCK = re.compile(r"(?:^<!-- from: (?P<file>\S+) -->\n)?^```cpp\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def words(text):
    """The text with one space for each run of white space."""
    return " ".join(text.split())


def wrong_quotes(root, page):
    """Sentences about the blocks of a page that are not in their file."""
    text = (root / page).read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        place = f"{page}:{text.count(chr(10), 0, match.start('text'))}"
        name = match["file"]
        if name is None:
            yield f"{place}: a block of C++ without a comment 'from: FILE'"
        elif not (root / name).is_file():
            yield f"{place}: there is no {name}"
        elif words(match["text"]) not in words((root / name).read_text(encoding="utf-8")):
            yield f"{place}: these lines are not in {name}"


def main():
    parser = argparse.ArgumentParser(description="Compares the blocks of C++ in pages with the files from which they are.")
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("pages", nargs="*", default=["docs/embedding.md"])
    arguments = parser.parse_args()
    found = [line for page in arguments.pages for line in wrong_quotes(arguments.root, page)]
    for line in found:
        print(line)
    blocks = sum(len(BLOCK.findall((arguments.root / page).read_text(encoding="utf-8"))) for page in arguments.pages)
    print(f"{len(found)} of {blocks} blocks of C++ are not in their files")
    return 1 if found or blocks == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
