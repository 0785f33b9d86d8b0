"""The units of work that are done, so that a later call continues where an earlier call ended.

A unit is one command. Its result is passed, FAILED or skipped. If the time of a call ends before the unit, the next call
runs the unit again from its start. A unit is also repeated if its command changed. The record is written after every unit.
"""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass, field

DONE, FAILED, TIME_IS_UP = 0, 1, 75
LEAST_SECONDS = 3  # no unit starts when less time is left
GRACE_SECONDS = 5  # a process that is asked to end may take so long, beyond the time of a call


@dataclass
class Unit:
    name: str
    command: list
    environment: dict = field(default_factory=dict)
    skipped_if: object = None  # a pattern: a unit whose output matches was skipped
    fails_if: object = None  # a pattern: a unit whose output matches has failed, whatever its exit code is
    kept_lines: int = 0  # the number of last lines of output that the summary shows
    stops: bool = False  # if this unit fails, the units after it do not run
    goes_on: bool = False  # the unit continues its own work when it is started again


class Record:
    def __init__(self, folder, seconds):
        self.folder = folder
        self.results = folder / "results"
        self.results.mkdir(parents=True, exist_ok=True)
        self.path = folder / "record.json"
        self.began = time.monotonic()
        self.seconds = seconds
        self.state = json.loads(self.path.read_text()) if self.path.exists() else {"machine": [], "parts": {}}

    def left_s(self):
        return self.seconds - (time.monotonic() - self.began)

    def note_machine(self, lines):
        if self.state["machine"] != lines:
            self.state["machine"] = lines
            self._write()

    def units_of(self, part):
        return self.state["parts"].setdefault(part, {})

    def forget(self, part):
        self.state["parts"].pop(part, None)
        log = self.results / f"{part}.log"
        if log.exists():
            log.replace(self.results / f"{part}.before.log")
        self._write()

    def run(self, part, units):
        """Runs the units that are not done yet. Returns DONE, FAILED or TIME_IS_UP."""
        done = self.units_of(part)
        commands = {unit.name: unit.command for unit in units}
        for name in [name for name in done if done[name].get("command") != commands.get(name)]:
            del done[name]
        for unit in units:
            if unit.name in done:
                continue
            if self.left_s() < LEAST_SECONDS:
                return self._stop(part, units)
            entry = self._run_one(part, unit)
            if entry is None:
                return self._stop(part, units)
            done[unit.name] = entry | {"command": unit.command}
            self._write()
            print(f"{part}: {unit.name}: {entry['result']} ({entry['seconds']} s)", flush=True)
            if unit.stops and entry["result"] == "FAILED":
                break
        return FAILED if any(entry["result"] == "FAILED" for entry in done.values()) else DONE

    def _stop(self, part, units):
        left = [unit.name for unit in units if unit.name not in self.units_of(part)]
        print(f"{part}: the time is up, {len(left)} of {len(units)} left, next {left[0]}: call again", flush=True)
        return TIME_IS_UP

    def _run_one(self, part, unit):
        """The result of the unit, or None if the time was up before the unit had most of a call."""
        allowed = self.left_s()
        began = time.monotonic()
        code, text = run_within(unit, allowed)
        seconds = round(time.monotonic() - began, 1)
        if code is None and (unit.goes_on or allowed < 0.8 * self.seconds):
            return None
        if code is None:
            text += f"\nno end within {allowed:.0f} s, which is most of the time of a call"
        wrong = code != 0 or (unit.fails_if is not None and unit.fails_if.search(text))
        result = "FAILED" if wrong else "passed"
        if not wrong and unit.skipped_if is not None and unit.skipped_if.search(text):
            result = "skipped"
        self._log(part, unit, result, seconds, text)
        kept = text.rstrip().splitlines()[-unit.kept_lines:] if unit.kept_lines else []
        if result == "FAILED" and not kept:
            kept = text.rstrip().splitlines()[-12:]
        return {"result": result, "seconds": seconds, "lines": kept}

    def _log(self, part, unit, result, seconds, text):
        given = "".join(f"{key}={shlex.quote(value)} " for key, value in unit.environment.items())
        with open(self.results / f"{part}.log", "a", encoding="utf-8") as log:
            log.write(f"==== {unit.name}: {result}, {seconds} s\n{given}{shlex.join(unit.command)}\n{text.rstrip()}\n\n")

    def _write(self):
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(self.state, indent=1))
        os.replace(draft, self.path)

    def summary(self):
        lines = ["# Ebb on a GPU", "", *[f"- {line}" for line in self.state["machine"]], ""]
        for part, units in self.state["parts"].items():
            counts = {}
            for entry in units.values():
                counts[entry["result"]] = counts.get(entry["result"], 0) + 1
            counted = ", ".join(f"{count} {result}" for result, count in sorted(counts.items())) or "nothing yet"
            seconds = sum(entry["seconds"] for entry in units.values())
            lines += [f"## {part}: {counted}, {seconds:.0f} s", ""]
            for name, entry in units.items():
                if entry["lines"] or entry["result"] != "passed":
                    lines.append(f"{name}: {entry['result']}, {entry['seconds']} s")
                    lines += ["```", *entry["lines"], "```"] if entry["lines"] else []
            lines.append("")
        return "\n".join(lines)

    def write_summary(self):
        (self.results / "summary.md").write_text(self.summary(), encoding="utf-8")


def run_within(unit, seconds):
    """(exit code, output). The exit code is None if the process was ended because the time was up."""
    try:
        process = subprocess.Popen(unit.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", env={**os.environ, **unit.environment}, start_new_session=True)
    except OSError as problem:
        return 127, str(problem)
    try:
        text, _ = process.communicate(timeout=seconds)
        return process.returncode, text
    except subprocess.TimeoutExpired:
        return None, end(process)


def end(process):
    """Sends SIGTERM before SIGKILL. Ninja's compilations are process groups of their own: if ninja is killed, they continue
    and write the files that the next call also writes. After SIGTERM ninja ends them and removes incomplete files."""
    for way, patience in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, None)):
        os.killpg(process.pid, way)
        try:
            return process.communicate(timeout=patience)[0]
        except subprocess.TimeoutExpired:
            pass
