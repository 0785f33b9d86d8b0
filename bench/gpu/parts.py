"""The parts of gpu_check: which commands each of them runs."""

import json
import re
import subprocess

import machine
from record import DONE, Unit

NUM_SHARDS = 8  # parts of a test program under compute-sanitizer, each shorter than a call
SKIPPED = re.compile(r"\*\*\*Skipped|\[  SKIPPED \]")
NO_GPU = re.compile(r"^no GPU:", re.MULTILINE)
NO_PYTORCH = re.compile(r"^no GPU:|has no PyTorch", re.MULTILINE)
# Such a build would work, but it would not test CUDA.
LEFT_OUT = re.compile(r"CUDA backend: left out")
# Test programs, and the pattern of those of their cases that use the GPU. Racecheck checks only kernels.
GPU_CASES = {"test_kernels_cuda": "*", "test_device": "*Cuda*", "test_training_cuda": "*"}
RACE_CHECKED = ["test_kernels_cuda"]
QUESTIONS = ["copy", "map", "gemm", "attention", "memory", "step"]
CLAIMS = ["8B", "10B", "14B", "17B", "19B"]


def build(here, record):
    """Configures once, and compiles what changed since the last call."""
    done = record.units_of("build")
    done.pop("compile", None)
    if not (here.build_folder / "build.ninja").exists() or done.get("configure", {}).get("result") != "passed":
        record.forget("build")
    units = [Unit("configure", here.configure_command(), fails_if=LEFT_OUT, stops=True),
             Unit("compile", [here.ninja, "-C", str(here.build_folder), "-j", str(here.options.jobs), *here.options.targets],
                  kept_lines=1, goes_on=True)]
    result = record.run("build", units)
    compiled = record.units_of("build").get("compile", {"lines": []})
    if not any("no work to do" in line for line in compiled["lines"]):
        for part in ("test", "sanitize", "bench"):
            record.forget(part)
    return result


def fast_tests(here):
    text = subprocess.run(["ctest", "--test-dir", str(here.build_folder), "--label-regex", "^fast$", "--show-only=json-v1"],
                          check=True, capture_output=True, text=True).stdout
    names = [test["name"] for test in json.loads(text)["tests"]]
    return [name for name in names if re.search(here.options.tests, name)]


def test(here, record):
    units = [Unit(name, ["ctest", "--test-dir", str(here.build_folder), "--tests-regex", f"^{name}$", "--output-on-failure",
                         "--no-tests=error"], here.environment(), SKIPPED) for name in fast_tests(here)]
    return record.run("test", units)


def sanitize(here, record):
    tool = machine.shutil.which("compute-sanitizer") or machine.shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer")
    if not here.has_gpu() and here.options.without_gpu:
        print("sanitize: no GPU: compute-sanitizer has nothing to check")
        return DONE
    if tool is None:
        raise machine.Unfit("there is no compute-sanitizer in PATH or /usr/local/cuda; it is part of the CUDA toolkit")
    units = []
    for check, programs in (("memcheck", list(GPU_CASES)), ("racecheck", RACE_CHECKED)):
        for program in programs:
            command = [tool, "--tool", check, "--error-exitcode", "1", "--print-limit", "20",
                       str(here.build_folder / "tests" / program), f"--gtest_filter={GPU_CASES[program]}"]
            for shard in range(NUM_SHARDS):
                shards = {"GTEST_TOTAL_SHARDS": str(NUM_SHARDS), "GTEST_SHARD_INDEX": str(shard)}
                units.append(Unit(f"{check} {program} {shard + 1}/{NUM_SHARDS}", command,
                                  {**here.environment(), **shards}, SKIPPED))
    return record.run("sanitize", units)


def bench(here, record):
    program = str(here.build_folder / "bench" / "bench_gpu")
    units = [Unit(question, [program, question], here.environment(), NO_GPU, kept_lines=60) for question in QUESTIONS]
    units.append(Unit("torch", ["python3", str(here.root / "bench" / "gpu" / "torch_step.py")], here.environment(), NO_PYTORCH, kept_lines=40))
    claims = ["python3", str(here.root / "bench" / "gpu" / "claims.py"), str(here.build_folder / "tools" / "ebb")]
    units += [Unit(f"claim {name}", [*claims, name], here.environment(), NO_GPU, kept_lines=10) for name in CLAIMS]
    return record.run("bench", units)
