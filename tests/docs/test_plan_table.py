#!/usr/bin/env python3
"""docs/plan_table accepts numbers that differ by 1 %, and finds other differences."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

PATH = pathlib.Path(__file__).resolve().parents[2] / "docs" / "plan_table"
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("plan_table", str(PATH))
plan_table = importlib.util.module_from_spec(importlib.util.spec_from_loader("plan_table", loader))
loader.exec_module(plan_table)

ROWS = [["gpt2", "h200", "32 GB", "yes", 2000.0, 3000.4],
        ["llama", "rtx4090", "64 GB", "no", "", ""]]


def page(old="", new=""):
    return f"text\n\n{plan_table.table(ROWS)}\nmore | text\n".replace(old, new)


class PlanTable(unittest.TestCase):
    def test_the_table_is_found_with_numbers_to_one_percent(self):
        for change in (("", ""), ("2,000", "2,020"), ("2,000", "1,980"), ("3,000", "3,030")):
            self.assertTrue(plan_table.contains(page(*change), ROWS), change)

    def test_other_differences_are_found(self):
        row = plan_table.line_of(ROWS[1])
        for change in (("2,000", "2,021"), ("2,000", "1,979"), ("3,000", "2,969"), ("2,000", ""), ("2,000", "x"),
                       ("| no |", "| yes |"), ("rtx4090", "rtx3090"), ("at best", "best"), (row, ""), (row, row + row)):
            self.assertFalse(plan_table.contains(page(*change), ROWS), change)


if __name__ == "__main__":
    unittest.main()
