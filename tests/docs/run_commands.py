#!/usr/bin/env python3
"""Runs each `sh` block of the README and of docs/, as a reader would type it.

Usage: run_commands.py --root DIR --ebb BINARY [FILE...]    only these FILEs

A block must end with exit code 0. A comment on the line before changes this. Its items are separated by semicolons:
  <!-- run: before COMMAND --> COMMAND, which the reader does not see, prepares the folder
  <!-- run: skip REASON -->    the block is not run; REASON names the test that runs it
  <!-- run: add FLAGS -->      FLAGS replace or extend those of each `ebb train` and `ebb profile`, to shorten the run
  <!-- run: exit CODE -->      the exit code of the last command
  <!-- run: says TEXT -->      the output contains TEXT
bash runs a block in a folder that looks like a built checkout. A failing command ends the block. `python3` is the
Python that runs this script. Each script that a page names must be executable.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

BLOCK = re.compile(r"(?:^<!-- run: (?P<marks>.*?) -->\n)?^```sh\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TRAINS = re.compile(r"(?P<command>\bebb (?:train|profile)\b(?:[^\n|>\\]|\\\n)*)")
PATHS = re.compile(r"(?<![\w/.~-])[\w.-]+(?:/[\w.-]+)+")
MARKS = ("before", "skip", "add", "exit", "says")


@dataclasses.dataclass
class Block:
    place: str  # "README.md:40"
    text: str
    before: str = ""
    skip: str = ""
    add: str = ""
    exit: int = 0
    says: str = ""


def blocks_of(name, page):
    """The blocks of a page. An unknown mark is an error."""
    for match in BLOCK.finditer(page):
        block = Block(f"{name}:{page.count(chr(10), 0, match.start('text'))}", match["text"])
        for item in filter(None, re.split(r";\s*", match["marks"] or "")):
            mark, _, value = item.partition(" ")
            if mark not in MARKS or not value:
                raise SystemExit(f"{block.place}: what does 'run: {item}' mean? There is {', '.join(MARKS)}, each with a value")
            setattr(block, mark, int(value) if mark == "exit" else value)
        yield block


def with_flags(command, flags):
    """The command with these flags; they replace flags of the same names."""
    for name in re.findall(r"--[a-z0-9-]+", flags):
        command = re.sub(rf"{name}(?= )[ ]+[^ \n]+", "", command)
    return f"{command.rstrip()} {flags} "


def shortened(block):
    """The commands of a block, with the flags added to each command that trains."""
    if not block.add:
        return block.text
    return TRAINS.sub(lambda match: with_flags(match["command"], block.add), block.text)


def scripts_of(page, root):
    """The scripts of the checkout that a page names, in its text or in its commands."""
    paths = sorted({match[0].rstrip(".") for match in PATHS.finditer(page)})
    return [path for path in paths if (root / path).is_file() and (
        path.endswith(".py") or (root / path).read_bytes().startswith(b"#!"))]


def not_executable(page, root):
    """The named scripts that cannot be run as the page writes them."""
    return [path for path in scripts_of(page, root)
            if not (os.access(root / path, os.X_OK) and (root / path).read_bytes().startswith(b"#!"))]


def looks_like_a_checkout(folder, root, ebb, files):
    for path in (*(root / name for name in ("README.md", "LICENSE", "docs", "examples", "tools")), *files):
        (folder / path.name).symlink_to(path)
    programs = folder / "build" / "release" / "tools"
    programs.mkdir(parents=True)
    (programs / "ebb").symlink_to(ebb)
    # A link would lose a virtual environment.
    (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python3").chmod(0o755)
    return programs


def run(block, root, ebb, files=()):
    """Runs a block, with links to more files in its folder. Returns None, or the failure."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        programs = looks_like_a_checkout(folder, root, ebb, files)
        cache = pathlib.Path(tempfile.gettempdir()) / "ebb-test-cache"
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(cache)}
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", f"{block.before}\n{shortened(block)}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",  # a model over bytes that has learned little writes bytes that are no UTF-8
            timeout=600,
        )
    if done.returncode != block.exit:
        return f"ends with {done.returncode}, not {block.exit}:\n{done.stdout[-2000:]}"
    if block.says not in done.stdout:
        return f"does not say '{block.says}':\n{done.stdout[-2000:]}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--ebb", type=pathlib.Path, required=True)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    root = options.root.resolve()
    files = options.files or [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    num_run = num_failed = 0
    for file in files:
        page = file.read_text(encoding="utf-8")
        for script in not_executable(page, root):
            num_failed += 1
            print(f"{file.name}: {script} is not executable: chmod +x, and a first line like #!/usr/bin/env python3")
        for block in blocks_of(file.name, page):
            if block.skip:
                print(f"{block.place}: not run: {block.skip}")
                continue
            start = time.monotonic()
            wrong = run(block, root, options.ebb.resolve())
            num_run += 1
            num_failed += wrong is not None
            print(f"{block.place}: {wrong or 'as it says'} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"{num_run} blocks run; {num_failed} failures")
    return 1 if num_failed or num_run == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
