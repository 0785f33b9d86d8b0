#!/usr/bin/env python3
"""Reads each #include of the tree and prints those that the rules for modules forbid.

Usage: check_includes.py --root DIR [--public HEADER...]
Public headers may include each other and the standard library, and nothing else.
Exit code: 0 if no #include is forbidden, otherwise 1.
"""

import argparse
import pathlib
import re
import sys

# A module is a folder; a file belongs to the longest module name that its path begins with. Every module may include
# itself and device/errors.h. A module that is not listed here, such as python/ before it exists, has no files yet.
SCHEDULER = {"scheduler/plan", "scheduler/search", "scheduler/run"}
LIBRARY = {"system", "device", "chunk", "cpu_adam", "comm", "autograd", "io", "model_zoo"} | SCHEDULER
EVERYTHING = LIBRARY | {"device/host", "device/sim", "ebb"}
MAY_INCLUDE = {
    "system": set(),
    "device": set(),
    "device/host": {"device", "system"},
    "device/sim": {"device", "system"},
    "chunk": {"device", "system"},
    "cpu_adam": {"device", "system"},
    "cuda": {"device", "system"},
    "comm": {"device", "system"},
    "autograd": {"device", "chunk"},
    "scheduler/plan": {"device", "chunk", "autograd"},
    "scheduler/search": {"device", "device/sim", "system", "chunk", "autograd", "scheduler/plan"},
    "scheduler/run": {"device", "system", "chunk", "autograd", "scheduler/plan", "scheduler/search", "cpu_adam", "comm"},
    "io": {"chunk", "device", "system"},
    "model_zoo": {"autograd", "io", "device"} | SCHEDULER,
    "ebb": LIBRARY,
    "python": LIBRARY | {"ebb"},
    "tools": EVERYTHING,
    "tests": EVERYTHING | {"tools", "examples"},
    "bench": EVERYTHING | {"tools"},
    "examples": EVERYTHING,
}
# Modules of which another module may include some files only.
ONLY = {
    ("autograd", "chunk"): {"chunk/layout.h"},
    ("scheduler/search", "device/sim"): {"device/sim/sim_device.h"},  # a dry run counts on this device
}
FOR_EVERYBODY = {"device/errors.h"}
# The emulated GPU of the tests replaces the headers and libraries of CUDA and has their names.
EMULATION = "tests/cuda_emulation/"
SUFFIXES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|curand|nccl|nvtx|nvToolsExt|cub/|thrust/)")
STANDARD_HEADER = re.compile(r"^[a-z0-9_]+$")


def module_of(path):
    """The module of a file or an include path, or None."""
    parts = path.split("/")[:-1]
    for length in range(len(parts), 0, -1):
        name = "/".join(parts[:length])
        if name in MAY_INCLUDE:
            return name
    return None


def includes_of(file):
    """(line number, quoted or not, path) of each #include."""
    text = file.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        yield line, match.group(1) == '"', match.group(2)


def why_module_forbidden(module, target, path):
    """Why a file of one module may not include a file of another, or None."""
    if path in FOR_EVERYBODY or target == module:
        return None
    if target not in MAY_INCLUDE[module]:
        allowed = ", ".join(sorted(MAY_INCLUDE[module])) or "no other module"
        return f"{module}/ may include {allowed}, not {target}/"
    if path not in ONLY.get((module, target), {path}):
        return f"{module}/ may include {', '.join(sorted(ONLY[module, target]))} of {target}/ only"
    return None


def why_forbidden(root, file, path, quoted, public):
    """Why one #include is forbidden, or None. `file` is relative to root."""
    name = file.as_posix()
    own = module_of(name)
    module = "cuda" if name.startswith(EMULATION) else own
    target = module_of(path)
    if target:
        own_tests = name.startswith(EMULATION) and (target in ("tests", "device/host"))
        why = None if own_tests else why_module_forbidden(module, target, path)
        if why:
            return why
        if not (root / path).is_file() and not (module == "examples" and path == "ebb/ebb.h"):
            return "there is no such file"
    elif module != "cuda" and not (module in ("bench", "examples") and name.endswith(".cu")) and CUDA_HEADER.match(path):
        return "only cuda/ and the .cu files of bench/ and examples/ may include CUDA headers"
    if name in public:
        if target and path not in public:
            return "a public header includes one that is not installed"
        if not target and (quoted or not STANDARD_HEADER.match(path)):
            return "a public header may include only public headers and the standard library"
    return None


def forbidden_includes(root, public=()):
    """Sorted lines "file:line: #include path: reason"."""
    public = set(public)
    found = []
    for folder in sorted({module.split("/")[0] for module in MAY_INCLUDE}):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            relative = file.relative_to(root)
            if module_of(relative.as_posix()) is None:
                found.append(f"{relative}: belongs to no module")
                continue
            for line, quoted, path in includes_of(file):
                why = why_forbidden(root, relative, path, quoted, public)
                if why:
                    found.append(f"{relative}:{line}: #include {path}: {why}")
    return sorted(found)


def not_described(page, public):
    """The public headers without a row in the page, and the rows of other headers."""
    described = re.findall(r"^\| `([\w/]+\.h)` \|", page, re.MULTILINE)
    return sorted(set(described) ^ set(public))


def main():
    parser = argparse.ArgumentParser(
        description="Finds forbidden #includes, and installed headers that docs/embedding.md omits.")
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--public", nargs="*", default=[])
    arguments = parser.parse_args()
    found = forbidden_includes(arguments.root, arguments.public)
    if arguments.public:
        page = (arguments.root / "docs/embedding.md").read_text(encoding="utf-8")
        for header in not_described(page, arguments.public):
            found.append(f"docs/embedding.md: {header} is installed or described, but not both")
    for line in found:
        print(line)
    print(f"{len(found)} forbidden #includes or headers that are not described")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
