#!/usr/bin/env python3
"""Tests check_quotes.py: it finds planted differences."""

import pathlib
import sys
import tempfile
import unittest

import check_quotes

SOURCE = "int f() {\n  return 1;\n}\n"


class Quotes(unittest.TestCase):
    def wrong(self, page):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "a.cpp").write_text("// first\n" + SOURCE, encoding="utf-8")
            (root / "page.md").write_text(page, encoding="utf-8")
            return list(check_quotes.wrong_quotes(root, "page.md"))

    def test_the_same_lines_may_be_indented(self):
        self.assertEqual(self.wrong(f"<!-- from: a.cpp -->\n```cpp\n{SOURCE}```\n"), [])
        self.assertEqual(self.wrong("<!-- from: a.cpp -->\n```cpp\nreturn 1;\n```\n```sh\nls\n```\n"), [])

    def test_differences_are_found(self):
        for page in ("```cpp\nint f() {\n```\n", "<!-- from: a.cpp -->\n```cpp\nreturn 2;\n```\n",
                     "<!-- from: b.cpp -->\n```cpp\nreturn 1;\n```\n"):
            self.assertEqual(len(self.wrong(page)), 1, page)


if __name__ == "__main__":
    sys.exit(unittest.main())
