"""The units of work that are done, so that a later call continues where an earlier call ended.

A unit is one command. Its result is passed, FAILED or skipped. A unit that reaches its own time limit has failed. If the
time of a call ends before the unit, the next call runs the unit again from its start. A unit is also repeated if its command
changed. The output of a unit goes into the log of its part while the unit runs. record.json and summary.md are written after
every unit. So if the machine is taken away, the folder has everything that was printed until then.
"""

import contextlib
import json
import math
import os
import re
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass, field

DONE, FAILED, TIME_IS_UP = 0, 1, 75
LEAST_SECONDS = 3  # no unit starts when less time is left
ENDING = {signal.SIGINT, signal.SIGTERM}
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
    limit_s: float = 180  # longest time; infinite for a unit that continues its own work when it is started again
    estimated_s: float = 60  # expected time, for a plan of a short time on a GPU machine


class Record:
    def __init__(self, folder, seconds):
        """`folder` gets record.json, summary.md and a log of each part."""
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
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

    def forget(self, part, only=""):
        """Forgets the results of the units whose names match `only`. If none is left, the part gets a new log."""
        done = self.units_of(part)
        for name in [name for name in done if re.search(only, name)]:
            del done[name]
        log = self._log_of(part)
        if not done:
            del self.state["parts"][part]
            if log.exists():
                log.replace(self.folder / f"{part}.before.log")
        self._write()

    def run(self, part, units, only="", limit_s=None):
        """Runs the units that are not done yet and whose names match `only`. Returns DONE, FAILED or TIME_IS_UP. The results
        of other units stay as they are. `limit_s` replaces the limits of the units."""
        done = self.units_of(part)
        commands = {unit.name: unit.command for unit in units}
        for name in [name for name in done if done[name].get("command") != commands.get(name)]:
            del done[name]
        chosen = [unit for unit in units if re.search(only, unit.name)]
        if units and not chosen:
            print(f"{part}: no unit matches {only}; there are: {', '.join(commands)}", flush=True)
            return FAILED
        for unit in chosen:
            if unit.name in done:
                continue
            if self.left_s() < LEAST_SECONDS:
                return self._stop(part, chosen)
            entry = self._run_one(part, unit, limit_s or unit.limit_s)
            if entry is None:
                return self._stop(part, chosen)
            done[unit.name] = entry | {"command": unit.command}
            self._write()
            print(f"{part}: {unit.name}: {entry['result']} ({entry['seconds']} s)", flush=True)
            if unit.stops and entry["result"] == "FAILED":
                break
        failed = any(done[unit.name]["result"] == "FAILED" for unit in chosen if unit.name in done)
        return FAILED if failed else DONE

    def _stop(self, part, units):
        left = [unit.name for unit in units if unit.name not in self.units_of(part)]
        print(f"{part}: the time is up, {len(left)} of {len(units)} left, next {left[0]}: call again", flush=True)
        return TIME_IS_UP

    def _run_one(self, part, unit, limit_s):
        """The result of the unit, or None if the time of the call was up before the unit reached its own limit."""
        allowed = min(limit_s, self.left_s())
        began = time.monotonic()
        with open(self._log_of(part), "ab+") as log:
            given = "".join(f"{key}={shlex.quote(value)} " for key, value in unit.environment.items())
            log.write(f"==== {unit.name}\n{given}{shlex.join(unit.command)}\n".encode())
            log.flush()
            start = log.tell()
            code = run_within(unit, allowed, log)
            seconds = round(time.monotonic() - began, 1)
            log.seek(start)
            text = log.read().decode(errors="replace")
            time_is_up = code is None and allowed < limit_s
            if code is None and not time_is_up:
                text += f"\nended at its limit of {limit_s:g} s"
                log.write(text.splitlines()[-1].encode())
            wrong = code != 0 or (unit.fails_if is not None and unit.fails_if.search(text))
            result = "FAILED" if wrong else "passed"
            if not wrong and unit.skipped_if is not None and unit.skipped_if.search(text):
                result = "skipped"
            log.write(f"\n==== {unit.name}: {'the time of the call is up' if time_is_up else result}, {seconds} s\n\n".encode())
        kept = text.rstrip().splitlines()[-unit.kept_lines:] if unit.kept_lines else []
        if result == "FAILED" and not kept:
            kept = text.rstrip().splitlines()[-12:]
        return None if time_is_up else {"result": result, "seconds": seconds, "lines": kept}

    def _log_of(self, part):
        return self.folder / f"{part}.log"

    def _write(self):
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(self.state, indent=1))
        os.replace(draft, self.path)
        (self.folder / "summary.md").write_text(self.summary(), encoding="utf-8")

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


def run_within(unit, seconds, log):
    """Runs the unit; its output goes into the log. Returns the exit code, or None if the process was ended because the time
    was up. If this program itself is ended, the process of the unit is ended too."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **unit.environment}
    # A signal that came before Popen returns would leave a process that nothing ends.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        process = subprocess.Popen(unit.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                   env=environment, start_new_session=True,
                                   preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING))
    except OSError as problem:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        log.write(str(problem).encode())
        log.flush()
        return 127
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        return process.wait(None if seconds == math.inf else seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end(process)


def end(process):
    """Ends the process and its children. Sends SIGTERM before SIGKILL. Ninja's compilations are process groups of their own: if
    ninja is killed, they continue and write the files that the next call also writes. After SIGTERM ninja ends them and removes
    incomplete files."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
