#!/usr/bin/env python3
"""Finds cycles of includes between headers, and in tools/ also those that pass through a source: there a header and the
source of the same name are one unit. (In the library, a source may include what its header does not show.)

Usage: check_cycles.py --root DIR
Exit code: 0 where there is no cycle, 1 otherwise.
"""

import argparse
import pathlib
import sys

from check_includes import MAY_INCLUDE, SUFFIXES, includes_of

FOLDERS = sorted({module.split("/")[0] for module in MAY_INCLUDE} - {"tests"})


def unit_of(path):
    return path.rsplit(".", 1)[0] if path.startswith("tools/") else path


def units_included(root):
    """For each unit of the project the units that it includes."""
    files = [file for folder in FOLDERS for file in (root / folder).rglob("*") if file.suffix in SUFFIXES]
    included = {unit_of(file.relative_to(root).as_posix()): set() for file in files}
    for file in files:
        unit = unit_of(file.relative_to(root).as_posix())
        targets = {unit_of(path) for _, quoted, path in includes_of(file) if quoted}  # paths begin at the root
        included[unit] |= {target for target in targets if target in included and target != unit}
    return included


def cycles(included):
    """The sets of units that reach each other, each sorted (Tarjan's strongly connected components)."""
    order, low, stack, found = {}, {}, [], []

    def visit(unit):
        order[unit] = low[unit] = len(order)
        stack.append(unit)
        for target in sorted(included[unit]):
            if target not in order:
                visit(target)
            if target in stack:
                low[unit] = min(low[unit], low[target])
        if low[unit] == order[unit]:
            component = [stack.pop()]
            while component[-1] != unit:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for unit in sorted(included):
        if unit not in order:
            visit(unit)
    return sorted(found)


def main():
    parser = argparse.ArgumentParser(description="Finds cycles of includes.")
    parser.add_argument("--root", type=pathlib.Path, required=True)
    found = cycles(units_included(parser.parse_args().root))
    for component in found:
        print("cycle: " + ", ".join(component))
    print(f"{len(found)} include cycles")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
