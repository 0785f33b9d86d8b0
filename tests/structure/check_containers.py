#!/usr/bin/env python3
"""Checks the files for containers without running them: instructions, stages, sources of COPY, names of packages.

Usage: check_containers.py --root DIR
The names of Debian's packages are checked where this machine has apt-cache and its lists. Exit code: 0 if nothing is wrong.
"""

import argparse
import functools
import json
import pathlib
import re
import subprocess
import sys

import containers

DOCKERFILES = ("Dockerfile", "Dockerfile.cuda")
# NVIDIA's repository has these; Debian and Ubuntu do not.
OF_NVIDIA = ("libcublas-13-0", "libcudnn9-cuda-13")


@functools.cache
def packages_of_apt():
    """The names in the lists of apt on this machine."""
    try:
        return set(subprocess.run(["apt-cache", "pkgnames"], capture_output=True, text=True, check=True).stdout.split())
    except (OSError, subprocess.CalledProcessError):
        return set()


def known_packages(names):
    """The names that apt's lists on this machine have; all of them if there are no lists."""
    return set(names) if len(packages_of_apt()) < 10000 else set(names) & packages_of_apt()


def wrong_in_dockerfile(root, name):
    try:
        stages = containers.stages_of((root / name).read_text(encoding="utf-8"))
        steps = [step for stage in stages for step in stage.instructions]
        for step in steps:
            if step.name == "COPY" and not (root / containers.copy_of(step)[0]).exists():
                yield f"{name}:{step.line}: there is no {containers.copy_of(step)[0]}"
        packages = [p for step in steps if step.name == "RUN" for p in containers.packages_of(containers.mounts_of(step)[1])]
        for package in sorted(set(packages) - known_packages(packages) - set(OF_NVIDIA)):
            yield f"{name}: no package is named {package}"
        for stage in stages:
            if ":" not in stage.base and stage.base not in [s.name for s in stages]:
                yield f"{name}: the image {stage.base} has no tag and is no stage"
        if stages[-1].name:
            yield f"{name}: the last stage is the image of a user and has no name"
    except (OSError, ValueError) as error:
        yield f"{name}: {error}"


def wrong_in_devcontainer(root, file):
    where = file.relative_to(root)
    try:
        build = json.loads(file.read_text(encoding="utf-8"))["build"]
        stages = containers.stages_of((file.parent / build["dockerfile"]).read_text(encoding="utf-8"))
        if build["target"] not in [stage.name for stage in stages]:
            yield f"{where}: {build['dockerfile']} has no stage {build['target']}"
        if (file.parent / build["context"]).resolve() != root.resolve():
            yield f"{where}: its context is {build['context']}, not the root"
    except (OSError, ValueError, KeyError) as error:
        yield f"{where}: {error}"


def wrong(root):
    """Sentences about everything that is wrong."""
    for name in DOCKERFILES:
        yield from wrong_in_dockerfile(root, name)
    files = sorted((root / ".devcontainer").glob("*/devcontainer.json"))
    if len(files) < 2:
        yield ".devcontainer/ lacks a container for the CPU or for CUDA"
    for file in files:
        yield from wrong_in_devcontainer(root, file)
    ignored = (root / ".dockerignore").read_text(encoding="utf-8").split("\n")
    for line in filter(None, (root / ".gitignore").read_text(encoding="utf-8").split("\n")):
        if line.startswith("/") and line.strip("/") not in ignored:
            yield f".dockerignore: git ignores {line}, so an image should not copy it"
    page = (root / "docs/containers.md").read_text(encoding="utf-8")
    for name in re.findall(r"-f (Dockerfile\S*)", page):
        if name not in DOCKERFILES:
            yield f"docs/containers.md: there is no {name}"


def main():
    parser = argparse.ArgumentParser(description="Checks the files for containers without running them.")
    parser.add_argument("--root", type=pathlib.Path, required=True)
    found = list(wrong(parser.parse_args().root))
    for line in found:
        print(line)
    print(f"{len(found)} mistakes in the files for containers")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
