#!/usr/bin/env python3
"""docs/figures --check finds figures that differ between a page and its record, and parts that are not in an output."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "figures"
GPU = {"question": "speed", "conditions": "8 x 1024", "value": 506655, "unit": "tokens/s", "planned": "460,973", "machine": "H200",
       "commit": "abc1234", "output": "run.md", "seen": ["506655 tok/s"], "readme": "speed of a GPU"}
HOST = {"question": "error", "value": 1e-7, "machine": "Z5", "command": "test_error"}


class Figures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "bench/results").mkdir(parents=True)
        (self.root / "docs").mkdir()
        (self.root / "bench/results/run.md").write_text("step 10  506655 tok/s\n")
        (self.root / "docs/results.md").write_text("# Results\n\n<!-- figures: gpu -->\n\n\nText.\n\n<!-- figures: host -->\n\n")
        (self.root / "README.md").write_text("Text.\n\n<!-- figures: readme -->\n\n| old | table |\n\nMore text.\n")
        self.records([GPU], [HOST])
        self.run_script()

    def records(self, gpu, host):
        for name, rows in (("gpu", gpu), ("host", host)):
            (self.root / f"bench/results/figures-{name}.json").write_text(json.dumps(rows))

    def run_script(self, *flags, code=0):
        done = subprocess.run([sys.executable, SCRIPT, "--root", self.root, *flags], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def replace(self, page, old, new):
        text = (self.root / page).read_text()
        self.assertIn(old, text)
        (self.root / page).write_text(text.replace(old, new))

    def test_the_tables_have_one_figure_in_a_row(self):
        page = (self.root / "docs/results.md").read_text()
        self.assertIn("| speed | 8 x 1024 | 506,655 tokens/s |  | 460,973 |  |  |  | [abc1234](../bench/results/run.md) |\n", page)
        self.assertIn("| error |  | 1e-7 |  |  |  | `test_error` | Z5 |  |\n", page)
        self.assertEqual((self.root / "README.md").read_text(),
                         "Text.\n\n<!-- figures: readme -->\n\n| question | machine | answer |\n| --- | --- | --- |\n"
                         "| speed of a GPU | H200 | 506,655 tokens/s |\n\nMore text.\n")
        self.run_script("--check")

    def test_a_page_that_differs_is_found(self):
        for page in ("docs/results.md", "README.md"):
            self.replace(page, "506,655", "506,656")
            self.assertIn(page, self.run_script("--check", code=1))
            self.replace(page, "506,656", "506,655")

    def test_a_part_that_is_not_in_the_output_is_found(self):
        self.records([{**GPU, "seen": ["506656 tok/s"]}], [HOST])
        self.assertIn("'506656 tok/s' is not in run.md", self.run_script("--check", code=1))

    def test_an_unknown_key_and_a_missing_place_are_found(self):
        self.records([{**GPU, "vlaue": 1}], [HOST])
        self.assertIn("unknown key vlaue", self.run_script("--check", code=1))
        self.records([GPU], [HOST])
        self.replace("README.md", "<!-- figures: readme -->", "")
        self.assertIn("README.md has tables of figures [] and not ['readme']", self.run_script("--check", code=1))


if __name__ == "__main__":
    unittest.main()
