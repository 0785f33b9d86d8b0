"""Reads Dockerfiles: their stages and instructions. Only what the files of this repository use is known; everything else is an
error, so that a test cannot overlook an instruction. Also the sources of COPY and the packages that a command installs."""

import dataclasses
import re
import shlex

KNOWN = ("FROM", "COPY", "RUN", "WORKDIR", "ENTRYPOINT")
MOUNT = re.compile(r"--mount=(\S+)\s+")


@dataclasses.dataclass
class Instruction:
    line: int
    name: str  # "RUN"
    text: str  # the rest, in one line


@dataclasses.dataclass
class Stage:
    name: str  # "" for a stage without a name
    base: str  # an image or an earlier stage
    instructions: list


@dataclasses.dataclass
class Mount:
    stage: str
    source: str
    target: str


def instructions_of(text):
    """The instructions of a Dockerfile, with continued lines joined."""
    pending, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        first = first if pending else number
        pending += (" " if pending else "") + line.removesuffix("\\").strip()
        if line.endswith("\\"):
            continue
        name, _, rest = pending.partition(" ")
        if name not in KNOWN:
            raise ValueError(f"line {first}: {name} is none of {', '.join(KNOWN)}")
        yield Instruction(first, name, rest.strip())
        pending = ""
    if pending:
        raise ValueError(f"line {first}: the last line is continued")


def stages_of(text):
    """The stages of a Dockerfile in order. A name that is used must be that of an earlier stage."""
    stages = []
    for step in instructions_of(text):
        if step.name == "FROM":
            match = re.fullmatch(r"(\S+)(?: AS (\S+))?", step.text)
            if not match:
                raise ValueError(f"line {step.line}: FROM {step.text}")
            stages.append(Stage(match[2] or "", match[1], []))
        elif not stages:
            raise ValueError(f"line {step.line}: {step.name} before FROM")
        else:
            for name in [mount.stage for mount in mounts_of(step)[0]]:
                if name not in [stage.name for stage in stages]:
                    raise ValueError(f"line {step.line}: there is no stage {name}")
            stages[-1].instructions.append(step)
    return stages


def mounts_of(step):
    """The bind mounts of a RUN, and its command without them."""
    mounts, command = [], step.text
    while match := MOUNT.match(command):
        options = dict(option.split("=", 1) for option in match[1].split(","))
        if options.pop("type") != "bind":
            raise ValueError(f"line {step.line}: only bind mounts are known")
        mounts.append(Mount(options.pop("from"), options.pop("source"), options.pop("target")))
        if options:
            raise ValueError(f"line {step.line}: unknown options of a mount: {', '.join(options)}")
        command = command[match.end():]
    return mounts, command


def copy_of(step):
    """(source, target) of a COPY."""
    words = shlex.split(step.text)
    if len(words) != 2 or words[0].startswith("--"):
        raise ValueError(f"line {step.line}: COPY SOURCE TARGET is known, not {step.text}")
    return words[0], words[1]


def packages_of(command):
    """The names that the `apt-get install` of a command installs, without files."""
    names = []
    for part in re.split(r"&&|;", command):
        words = shlex.split(part)
        if words[:2] == ["apt-get", "install"]:
            names += [word for word in words[2:] if not word.startswith("-") and "/" not in word]
    return names
