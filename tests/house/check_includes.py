#!/usr/bin/env python3
"""Who may include whom: reads every #include of the tree and prints those that the rules forbid.

Usage: check_includes.py --root DIR [--public HEADER...]
Headers given as public may include each other and the standard library alone.
Exit code: 0 where nothing is forbidden, 1 otherwise.
"""

import argparse
import pathlib
import re
import sys

ROOMS = {"device", "chunk", "cpu_adam", "cuda", "io", "scheduler", "model_zoo"}
MAY_INCLUDE = {
    "device": set(),
    "chunk": {"device"},
    "cpu_adam": {"device"},
    "cuda": {"device"},
    "scheduler": {"chunk", "cpu_adam", "device"},
    "io": {"chunk", "device"},
    "model_zoo": {"scheduler", "io", "device"},
    "ebb": ROOMS - {"cuda"},
    "tools": ROOMS - {"cuda"} | {"ebb"},
    "tests": ROOMS - {"cuda"} | {"ebb", "tools"},
    "bench": ROOMS - {"cuda"} | {"ebb", "tools"},
    "examples": ROOMS - {"cuda"} | {"ebb"},
}
# The emulated GPU of the tests stands in for CUDA's own headers and libraries, under their names.
EMULATION = "tests/cuda_emulation/"
SUFFIXES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|curand|nccl|nvtx|nvToolsExt|cub/|thrust/)")
STANDARD_HEADER = re.compile(r"^[a-z0-9_]+$")


def includes_of(file):
    """(line number, quoted or not, path) of each #include."""
    text = file.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        yield line, match.group(1) == '"', match.group(2)


def why_forbidden(root, file, path, quoted, public):
    """What is wrong with one #include, or None. `file` is relative to root."""
    room = "cuda" if file.as_posix().startswith(EMULATION) else file.parts[0]
    target = path.split("/")[0] if "/" in path else None
    if target in MAY_INCLUDE:
        own = target in (room, file.parts[0])
        if not own and target not in MAY_INCLUDE[room]:
            allowed = ", ".join(sorted(MAY_INCLUDE[room])) or "nothing of the house"
            return f"{room}/ may include {allowed}, not {target}/"
        if not (root / path).is_file() and not (room == "examples" and path == "ebb/ebb.h"):
            return "there is no such file"
    elif room != "cuda" and CUDA_HEADER.match(path):
        return "CUDA headers are for cuda/ alone"
    if file.as_posix() in public:
        if target in MAY_INCLUDE and path not in public:
            return "a public header includes one that is not installed"
        if target not in MAY_INCLUDE and (quoted or not STANDARD_HEADER.match(path)):
            return "a public header may include public headers and the standard library alone"
    return None


def forbidden_includes(root, public=()):
    """Lines "file:line: #include path: why", sorted."""
    public = set(public)
    found = []
    for room in MAY_INCLUDE:
        for file in sorted((root / room).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            relative = file.relative_to(root)
            for line, quoted, path in includes_of(file):
                why = why_forbidden(root, relative, path, quoted, public)
                if why:
                    found.append(f"{relative}:{line}: #include {path}: {why}")
    return sorted(found)


def main():
    parser = argparse.ArgumentParser(description="Finds forbidden #includes.")
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--public", nargs="*", default=[])
    arguments = parser.parse_args()
    found = forbidden_includes(arguments.root, arguments.public)
    for line in found:
        print(line)
    print(f"{len(found)} forbidden #includes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
