#!/usr/bin/env python3
"""check_words.py finds retired words, also across the lines of a comment, and accepts ordinary English."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_words  # noqa: E402

ORDINARY = """// A moment later the rest of the line is given to the reader, who turns the page.
// The user holds a key, takes a seat, and escapes the room. Nobody told the block of text.
int moment_of_inertia = 0;
"""
PLANTED = [
    ("scheduler/run/a.h", "struct StateLoan;", "StateLoan"),
    ("docs/a.md", "the state at home", "at home"),
    ("docs/a.md", "The gradient goes home.", "goes home"),
    ("tools/a.cpp", "// updates in the\n// hope that", "in the hope"),
    ("device/a.h", "/// The\n/// mover maps it.", "The mover"),
    ("cuda/a.cu", "// Two gradient slots", "gradient slots"),
    ("autograd/a.h", "// An open moment", "open moment"),
    ("tools/a.py", "# a rehearsal", "rehearsal"),
    ("README.md", "--recompute block", "recompute block"),
]


def found_in(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return check_words.retired_words(root)


class RetiredWords(unittest.TestCase):
    def test_ordinary_words_are_accepted(self):
        self.assertEqual(found_in({"scheduler/a.h": ORDINARY, "docs/a.md": ORDINARY}), [])

    def test_each_retired_word_is_found_and_named(self):
        for name, text, word in PLANTED:
            with self.subTest(name=name, text=text):
                text = "first line\n" + text + "\n"
                self.assertEqual(found_in({name: text}), [f"{name}:2: {word}"])

    def test_recorded_results_and_fixtures_are_not_checked(self):
        self.assertEqual(found_in({"bench/results/a.md": "at home", "tests/fixtures/a.json": "at home"}), [])


if __name__ == "__main__":
    unittest.main()
