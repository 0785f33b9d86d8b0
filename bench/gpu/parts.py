"""The parts of gpu_check: which commands each of them runs."""

import json
import math
import re
import shutil
import subprocess

import machine
from record import DONE, Unit

NUM_SHARDS = 8  # parts of a test program under compute-sanitizer, each shorter than a call
# ctest says the first, a test program whose cases were all skipped the second.
SKIPPED = re.compile(r"\*\*\*Skipped|\[  PASSED  \] 0 tests")
NO_GPU = re.compile(r"^no GPU:", re.MULTILINE)
NO_PYTORCH = re.compile(r"^no GPU:|has no PyTorch", re.MULTILINE)
# Such a build would work, but it would not test CUDA.
LEFT_OUT = re.compile(r"CUDA backend: left out")
# Test programs, and the pattern of those of their cases that use the GPU. Racecheck checks only kernels.
GPU_CASES = {"test_kernels_cuda": "*", "test_device": "*Cuda*", "test_training_cuda": "*"}
RACE_CHECKED = ["test_kernels_cuda"]
QUESTIONS = ["copy", "map", "gemm", "attention", "memory", "step"]
CLAIMS = ["8B", "10B", "14B", "17B", "19B"]
SANITIZE_LIMIT_S, CLAIM_LIMIT_S = 120, 300
# What is most useful to know comes first. A program that does not exist is left out.
FIRST = ["queue_probe", "test_device", "map", "gemm", "attention", "memory", "torch_kernels", "copy", "test_kernels_cuda",
         "test_training_cuda", "step", "torch", "claim 8B", "claim 14B", "claim 17B", "claim 19B"]
# Estimates from runs on an H200 with 16 cores. Those of attention, test_kernels_cuda (it ran in four parts), step, torch and the
# claims 10B, 17B and 19B are guesses.
ESTIMATED_S = {"queue_probe": 15, "test_device": 10, "map": 15, "gemm": 35, "attention": 45, "memory": 12, "torch_kernels": 50,
               "copy": 30, "test_kernels_cuda": 70, "test_training_cuda": 20, "step": 60, "torch": 150,
               **{f"claim {name}": 100 for name in CLAIMS}}


def build(here, record):
    """Configures once, and compiles what changed since the last call."""
    if here.packed:
        print(f"build: nothing to do: the programs come from {here.options.programs_archive}; remove it to compile them")
        return DONE
    done = record.units_of("build")
    done.pop("compile", None)
    if not (here.programs / "build.ninja").exists() or done.get("configure", {}).get("result") != "passed":
        record.forget("build")
    units = [Unit("configure", here.configure_command(), fails_if=LEFT_OUT, stops=True),
             Unit("compile", [here.ninja, "-C", str(here.programs), "-j", str(here.options.jobs), *here.options.targets],
                  kept_lines=1, limit_s=math.inf)]
    result = record.run("build", units)
    compiled = record.units_of("build").get("compile", {"lines": []})
    if not any("no work to do" in line for line in compiled["lines"]):
        for part in ("test", "sanitize", "bench", "first"):
            record.forget(part)
    return result


def chosen(here, record, part, units):
    return record.run(part, units, here.options.only, here.options.limit)


def fast_tests(here):
    """{name: command} of the fast tests. Packed test programs run without ctest."""
    if here.packed:
        return {path.name: [str(path)] for path in sorted((here.programs / "tests").iterdir())}
    ctest = ["ctest", "--test-dir", str(here.programs)]
    text = subprocess.run([*ctest, "--label-regex", "^fast$", "--show-only=json-v1"],
                          check=True, capture_output=True, text=True).stdout
    return {test["name"]: [*ctest, "--tests-regex", f"^{test['name']}$", "--output-on-failure", "--no-tests=error"]
            for test in json.loads(text)["tests"]}


def test_units(here):
    return [Unit(name, command, here.environment(), SKIPPED, estimated_s=ESTIMATED_S.get(name, 60))
            for name, command in fast_tests(here).items()]


def test(here, record):
    return chosen(here, record, "test", test_units(here))


def sanitize(here, record):
    tool = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer")
    if not here.has_gpu() and here.options.without_gpu:
        print("sanitize: no GPU: compute-sanitizer has nothing to check")
        return DONE
    if tool is None:
        raise machine.Unfit("there is no compute-sanitizer in PATH or /usr/local/cuda; it is part of the CUDA toolkit")
    return chosen(here, record, "sanitize", sanitize_units(here, tool))


def sanitize_units(here, tool):
    units = []
    for check, programs in (("memcheck", list(GPU_CASES)), ("racecheck", RACE_CHECKED)):
        for program in programs:
            command = [tool, "--tool", check, "--error-exitcode", "1", "--print-limit", "20",
                       str(here.programs / "tests" / program), f"--gtest_filter={GPU_CASES[program]}"]
            for shard in range(NUM_SHARDS):
                # Under the sanitizer an operation may wait for the thread that submits the operations after it.
                more = {"EBB_BLOCK_SUBMITTING_THREAD": "1",
                        "GTEST_TOTAL_SHARDS": str(NUM_SHARDS), "GTEST_SHARD_INDEX": str(shard)}
                units.append(Unit(f"{check} {program} {shard + 1}/{NUM_SHARDS}", command, {**here.environment(), **more},
                                  SKIPPED, limit_s=SANITIZE_LIMIT_S))
    return units


def bench_units(here):
    def unit(name, command, skipped_if=NO_GPU, **more):
        return Unit(name, command, here.environment(), skipped_if, estimated_s=ESTIMATED_S[name], **more)

    # Without stdbuf, lines that a program printed before it was ended at its limit would be lost.
    by_lines, scripts = ["stdbuf", "-oL"], here.root / "bench" / "gpu"
    units = [unit(question, [*by_lines, str(here.programs / "bench" / "bench_gpu"), question], kept_lines=60)
             for question in QUESTIONS]
    if probe := here.queue_probe():
        units.append(unit("queue_probe", [*by_lines, str(probe)], kept_lines=60))
    torch = [unit(name, ["python3", str(scripts / script)], NO_PYTORCH, kept_lines=60)
             for name, script in (("torch_kernels", "torch_kernels.py"), ("torch", "torch_step.py"))]
    for one in torch:
        one.environment = {}  # PyTorch finds its own libraries, and other versions could displace them
    claims = ["python3", str(scripts / "claims.py"), str(here.programs / "tools" / "ebb")]
    return [*units, *torch, *(unit(f"claim {name}", [*claims, name], kept_lines=20, limit_s=CLAIM_LIMIT_S) for name in CLAIMS)]


def bench(here, record):
    return chosen(here, record, "bench", bench_units(here))


def first_units(here):
    units = {unit.name: unit for unit in [*test_units(here), *bench_units(here)]}
    return [units[name] for name in FIRST if name in units]


def first(here, record):
    units = first_units(here)
    print(f"first: {len(units)} units, about {sum(unit.estimated_s for unit in units) / 60:.0f} minutes", flush=True)
    return chosen(here, record, "first", units)
