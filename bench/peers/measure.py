"""Shared code of the comparisons: the check of the machine's load, peer processes with pipes, samples, the line about the machine.

    python3 measure.py ENV     prints the machine line and the versions in that environment
"""

import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Cores that other processes may use during a sample that counts.
QUIET_CORES = 0.04
# By default, glibc's malloc frees large blocks at once and uses new pages for the next ones. With these settings it
# keeps them, in huge pages.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "17179869184", "MALLOC_TRIM_THRESHOLD_": "17179869184",
               "MALLOC_TOP_PAD_": "268435456", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class LoadGate:
    """Busy time of the machine in /proc/stat less our own, since its construction."""

    def __init__(self, who=resource.RUSAGE_SELF):
        self.who = who
        self.start, self.busy, self.own = time.perf_counter(), self._busy(), self._own()

    def other_cores(self):
        elapsed = time.perf_counter() - self.start
        return ((self._busy() - self.busy) - (self._own() - self.own)) / elapsed

    @staticmethod
    def _busy():
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        idle, iowait = 3, 4
        return (sum(ticks) - ticks[idle] - ticks[iowait]) / os.sysconf("SC_CLK_TCK")

    def _own(self):
        usage = resource.getrusage(self.who)
        return usage.ru_utime + usage.ru_stime


class Peer:
    """A worker of this folder that answers each line with one of JSON. Ends with the `with` block."""

    def __init__(self, env, script, arguments, variables, threads):
        # DeepSpeed's extension is compiled on first use: its build tool and its result stay inside the environment.
        own = {"PATH": f"{env / 'bin'}:{os.environ['PATH']}", "TORCH_EXTENSIONS_DIR": str(env / "torch_extensions"),
               "TORCHINDUCTOR_CACHE_DIR": str(env / "inductor"), "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [env / "bin/python", HERE / script, "--threads", str(threads), *map(str, arguments)],
            env=os.environ | own | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, request):
        self.process.stdin.write(f"{request}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):  # extensions print to stdout, too
                return json.loads(line)
        raise SystemExit(f"a peer ended: {self.process.args}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def run_gated(command):
    """Runs a program; its stdout and the cores that others used meanwhile."""
    gate = LoadGate(resource.RUSAGE_CHILDREN)
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{command}: {result.returncode}\n{result.stderr}")
    return result.stdout, gate.other_cores()


def quietest(take, attempts):
    """take() until its "others" is quiet, at most so often; the quietest of what it gave."""
    best = take()
    while best["others"] >= QUIET_CORES and attempts > 1:
        attempts -= 1
        time.sleep(1)
        best = min(best, take(), key=lambda s: s["others"])
    return best


class Samples:
    """One number a round, and whether it was taken while others left the cores alone. Those count; all where none was."""

    def __init__(self):
        self.values, self.quiet = [], []

    def add(self, value, others):
        self.values.append(value)
        self.quiet.append(others < QUIET_CORES)

    def counting(self):
        return [v for v, quiet in zip(self.values, self.quiet) if quiet] or self.values

    def median(self):
        return statistics.median(self.counting())

    def spread(self):
        """Half the range over the median, in percent."""
        return 50 * (max(self.counting()) - min(self.counting())) / self.median()

    def load(self):
        return f"{sum(self.quiet)} of {len(self.quiet)}"


def ratio(over, under):
    """Median of the ratios of the rounds in which both were quiet, as text; "LOUD" beside one that means little."""
    pairs = list(zip(over.values, under.values))
    quiet = [pair for pair, *both in zip(pairs, over.quiet, under.quiet) if all(both)]
    text = f"{statistics.median(a / b for a, b in quiet or pairs):.2f}"
    return text if quiet else f"{text} LOUD"


def progress(text):
    print(text, file=sys.stderr, flush=True)


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        facts = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    return f"{facts.get('model name')} (family {facts.get('cpu family')}, model {facts.get('model')})"


def machine_lines(env):
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = subprocess.run(
        [env / "bin/python", "-c", "from importlib.metadata import version as v; "
         "print(f'torch {v(\"torch\")}, deepspeed {v(\"deepspeed\")}, numpy {v(\"numpy\")}')"],
        capture_output=True, text=True, check=True).stdout.strip()
    compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    pages = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="ascii").strip()
    return "\n".join([
        f"- Machine: {cpu_model()}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB, "
        f"Linux {platform.release()}, {platform.libc_ver()[0]} {platform.libc_ver()[1]}; huge pages: {pages}",
        f"- Peers: {versions}, Python {platform.python_version()}, {compiler}"])


if __name__ == "__main__":
    print(machine_lines(pathlib.Path(sys.argv[1]).resolve()))
