#!/usr/bin/env python3
"""check_cycles.py finds planted cycles: of headers in the library, and through sources in tools/."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_cycles  # noqa: E402


def cycles_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, included in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f'#include "{other}"\n' for other in included), encoding="utf-8")
        return check_cycles.cycles(check_cycles.units_included(root))


class Cycles(unittest.TestCase):
    def test_a_tree_has_none(self):
        self.assertEqual(cycles_of({"io/a.h": [], "io/a.cpp": ["io/a.h"], "tools/b.h": ["io/a.h"],
                                    "tools/c.h": ["io/a.h", "tools/b.h"]}), [])

    def test_headers_in_a_cycle_are_found(self):
        self.assertEqual(cycles_of({"io/a.h": ["io/b.h"], "io/b.h": ["chunk/c.h"], "chunk/c.h": ["io/a.h"]}),
                         [["chunk/c.h", "io/a.h", "io/b.h"]])

    def test_a_cycle_through_a_source_is_found_in_tools_alone(self):
        def files(folder):
            return {f"{folder}/a.h": [], f"{folder}/a.cpp": [f"{folder}/a.h", f"{folder}/b.h"], f"{folder}/b.h": [f"{folder}/a.h"]}

        self.assertEqual(cycles_of(files("tools")), [["tools/a", "tools/b"]])
        self.assertEqual(cycles_of(files("io")), [])


if __name__ == "__main__":
    unittest.main()
