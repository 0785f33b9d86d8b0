#!/usr/bin/env python3
"""bench/gpu/gpu_check's own logic, with commands that cost nothing: what is done stays done, what failed is said, what ran
out of time is done again, what was printed is on disk; the archives of libraries and programs; what claims.py keeps of a
training that fails; the limit of planned_claims.py; and the rates and rows of emulated_claims.py."""

import contextlib
import importlib.util
import io
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock
from importlib.machinery import SourceFileLoader

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench" / "gpu"))

import machine  # noqa: E402
import parts  # noqa: E402
import planned_claims  # noqa: E402
import vendor  # noqa: E402
from record import DONE, FAILED, TIME_IS_UP, Record, Unit  # noqa: E402


def shell(name, script, **more):
    return Unit(name, ["sh", "-c", script], **more)


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.held = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.held.name)
        self.addCleanup(self.held.cleanup)

    def record(self, seconds=60.0):
        return Record(self.folder, seconds)


class RecordTest(WithFolder):
    def count(self, name):
        file = self.folder / name
        return len(file.read_text().splitlines()) if file.exists() else 0

    def counting(self, name, then="true", **more):
        return shell(name, f"echo x >>{self.folder}/{name}; {then}", **more)

    def test_what_is_done_is_not_done_again(self):
        units = [self.counting("first"), self.counting("second")]
        self.assertEqual(self.record().run("test", units), DONE)
        self.assertEqual(self.record().run("test", units), DONE)
        self.assertEqual([self.count("first"), self.count("second")], [1, 1])
        again = self.record()
        again.forget("test")
        self.assertEqual(again.run("test", units), DONE)
        self.assertEqual(self.count("first"), 2)
        for log in ("test.log", "test.before.log"):  # the old log is kept, because the GPU may no longer be available
            self.assertEqual((self.folder / log).read_text().count("==== first: passed"), 1)

    def test_a_few_tests_first_are_not_done_again_by_all(self):
        units = [self.counting("first"), self.counting("second")]
        self.assertEqual(self.record().run("test", units[1:]), DONE)
        self.assertEqual(self.record().run("test", units), DONE)
        self.assertEqual([self.count("first"), self.count("second")], [1, 1])

    def test_only_chosen_units_run_and_others_stay(self):
        units = [self.counting("first", "false"), self.counting("second"), self.counting("third")]
        self.assertEqual(self.record().run("test", units[:1]), FAILED)
        self.assertEqual(self.record().run("test", units, only="^(second|none)$"), DONE)
        self.assertEqual([self.count(name) for name in ("first", "second", "third")], [1, 1, 0])
        again = self.record()
        again.forget("test", "second")
        self.assertEqual(again.units_of("test").keys(), {"first"})
        self.assertEqual(again.run("test", units, only="second"), DONE)
        self.assertEqual([self.count(name) for name in ("first", "second", "third")], [1, 2, 0])
        self.assertFalse((self.folder / "test.before.log").exists())
        self.assertEqual(self.record().run("test", units, only="secnod"), FAILED)

    def test_a_failure_stays_one_and_others_still_run(self):
        units = [self.counting("first", "echo why; exit 3"), self.counting("second")]
        self.assertEqual(self.record().run("test", units), FAILED)
        self.assertEqual(self.record().run("test", units), FAILED)
        self.assertEqual([self.count("first"), self.count("second")], [1, 1])
        self.assertIn("why", self.record().summary())
        self.assertIn("1 FAILED, 1 passed", self.record().summary())

    def test_another_command_is_another_unit(self):
        for flag in ("a", "a", "b"):
            command = ["sh", "-c", f'echo "$0" >>{self.folder}/ran', flag]
            self.assertEqual(self.record().run("build", [Unit("configure", command)]), DONE)
        self.assertEqual((self.folder / "ran").read_text(), "a\nb\n")

    def test_where_a_unit_stops_the_part_nothing_follows(self):
        units = [self.counting("first", "false", stops=True), self.counting("second")]
        self.assertEqual(self.record().run("test", units), FAILED)
        self.assertEqual(self.count("second"), 0)

    def test_output_can_be_a_failure_or_a_skip(self):
        wrong, skip = re.compile("left out"), re.compile("^no GPU:", re.MULTILINE)
        self.assertEqual(self.record().run("a", [shell("a", "echo CUDA left out", fails_if=wrong)]), FAILED)
        self.assertEqual(self.record().run("b", [shell("b", "echo no GPU: none", skipped_if=skip)]), DONE)
        self.assertIn("1 skipped", self.record().summary())
        self.assertEqual(self.record().run("c", [shell("c", "echo no GPU: none; false", skipped_if=skip)]), FAILED)

    def test_what_ran_out_of_time_is_done_by_the_next_call(self):
        short = self.record(6.5)
        units = [self.counting("first", "sleep 2"), self.counting("second", "sleep 1.5; test -e $0.go || sleep 60")]
        units[1].command.append(str(self.folder / "x"))
        self.assertEqual(short.run("test", units), TIME_IS_UP)
        self.assertEqual([self.count("first"), self.count("second")], [1, 1])
        (self.folder / "x.go").touch()
        self.assertEqual(self.record(60).run("test", units), DONE)
        self.assertEqual([self.count("first"), self.count("second")], [1, 2])

    def test_a_unit_that_reaches_its_limit_failed_and_the_next_runs(self):
        units = [shell("first", "echo before; sleep 60", limit_s=0.5), self.counting("second")]
        began = time.monotonic()
        self.assertEqual(self.record().run("test", units), FAILED)
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(self.count("second"), 1)
        lines = self.record().units_of("test")["first"]["lines"]
        self.assertEqual(lines, ["before", "", "ended at its limit of 0.5 s"])
        self.assertEqual((self.folder / "test.log").read_text().count("ended at its limit of 0.5 s"), 1)

    def test_a_limit_of_the_call_replaces_those_of_units(self):
        self.assertEqual(self.record().run("test", [shell("first", "sleep 60")], limit_s=0.5), FAILED)
        self.assertEqual(self.record().run("bench", [shell("first", "sleep 1", limit_s=0.5)], limit_s=30), DONE)

    def test_a_compilation_has_no_limit(self):
        self.assertEqual(self.record(4.5).run("build", [shell("compile", "sleep 60", limit_s=math.inf)]), TIME_IS_UP)

    def test_output_is_on_disk_while_a_unit_runs(self):
        log = self.folder / "test.log"
        shown = f"echo printed; sleep 0.1; grep -c '^printed$' {log} >{self.folder}/seen"
        self.assertEqual(self.record().run("test", [shell("first", shown)]), DONE)
        self.assertEqual((self.folder / "seen").read_text(), "1\n")

    def test_summary_and_record_are_on_disk_after_each_unit(self):
        units = [shell("first", "echo why; false"),
                 shell("second", f"cp {self.folder}/summary.md {self.folder}/seen; cp {self.folder}/record.json {self.folder}/kept")]
        self.record().run("test", units)
        self.assertIn("first: FAILED", (self.folder / "seen").read_text())
        self.assertEqual(json.loads((self.folder / "kept").read_text())["parts"]["test"]["first"]["lines"], ["why"])

    def test_what_was_printed_survives_the_end_of_the_tool(self):
        """Ends a Python that runs a unit: by SIGTERM, which ends the unit too, and by SIGKILL. The unit has printed before the
        Python knows that it started."""
        for way in (signal.SIGTERM, signal.SIGKILL):
            folder = self.folder / way.name
            script = (f"import sys, signal; sys.path.insert(0, {str(ROOT / 'bench' / 'gpu')!r}); sys.dont_write_bytecode = True\n"
                      "from record import Record, Unit\nimport pathlib, subprocess, time\n"
                      "class Late(subprocess.Popen):\n"
                      "    def __init__(self, *given, **named):\n"
                      "        super().__init__(*given, **named)\n"
                      "        time.sleep(1)\n"
                      "subprocess.Popen = Late\n"
                      "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
                      f"Record(pathlib.Path({str(folder)!r}), 60).run('test', [Unit('a', ['sh', '-c', 'echo $$; exec sleep 60'])])")
            tool = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
            log = folder / "test.log"
            deadline = time.monotonic() + 30
            while not (log.exists() and re.search(r"^\d+$", log.read_text(), re.MULTILINE)):
                self.assertLess(time.monotonic(), deadline, "nothing is in the log")
                time.sleep(0.05)
            unit = int(re.search(r"^\d+$", log.read_text(), re.MULTILINE)[0])
            tool.send_signal(way)
            tool.wait()
            self.assertIn("==== a\n", log.read_text())
            if way == signal.SIGTERM:
                self.assertFalse(pathlib.Path(f"/proc/{unit}").exists(), "the unit still runs")
            else:
                os.kill(unit, signal.SIGKILL)

    def test_a_compilation_that_is_ended_leaves_no_compiler_behind(self):
        build = self.folder / "build"
        build.mkdir()
        (build / "build.ninja").write_text("rule compile\n command = touch $out; echo $$$$ > pid; exec sleep 60\nbuild half: compile\n")
        unit = Unit("compile", ["ninja", "-C", str(build)], limit_s=math.inf)
        self.assertEqual(self.record(4.5).run("build", [unit]), TIME_IS_UP)
        process = (build / "pid").read_text().strip()
        self.assertFalse(pathlib.Path(f"/proc/{process}").exists(), "the compiler is still there")
        self.assertFalse((build / "half").exists(), "an incomplete file is left")

    def test_what_does_not_end_when_asked_is_killed(self):
        unit = shell("first", "trap '' TERM; sleep 60 & wait; sleep 60", limit_s=math.inf)
        self.assertEqual(self.record(3.5).run("build", [unit]), TIME_IS_UP)

    def test_a_command_that_is_not_there_is_a_failure(self):
        self.assertEqual(self.record().run("test", [Unit("none", ["/nowhere/none"])]), FAILED)


class BuildTest(WithFolder):
    """A build that compiled something makes earlier test results stale."""

    def here(self, ninja_says):
        build = self.folder / "build"
        build.mkdir(exist_ok=True)
        (build / "build.ninja").touch()
        ninja = self.folder / "ninja"
        ninja.write_text(f"#!/bin/sh\necho {ninja_says}\n")
        ninja.chmod(0o755)
        options = types.SimpleNamespace(jobs=1, targets=[])
        return types.SimpleNamespace(programs=build, packed=False, ninja=str(ninja), options=options,
                                     configure_command=lambda: ["echo", "CUDA backend: toolkit 13.0"])

    def test_only_a_build_that_compiled_makes_tests_stale(self):
        record = self.record()
        self.assertEqual(parts.build(self.here("compiling"), record), DONE)
        record.run("test", [shell("a", "true")])
        self.assertEqual(parts.build(self.here("ninja: no work to do."), record), DONE)
        self.assertIn("a", record.units_of("test"))
        self.assertFalse((self.folder / "test.before.log").exists())
        self.assertEqual(parts.build(self.here("compiling"), record), DONE)
        self.assertNotIn("a", record.units_of("test"))

    def test_a_build_without_cuda_is_refused(self):
        here = self.here("compiling")
        here.configure_command = lambda: ["echo", "CUDA backend: left out (no toolkit 12.4 or later)"]
        record = self.record()
        self.assertEqual(parts.build(here, record), FAILED)
        self.assertNotIn("compile", record.units_of("build"))


class VendorTest(unittest.TestCase):
    def test_names_are_those_of_setup(self):
        names = vendor.packages(ROOT)
        for name in ("libtbb-dev", "libhwloc-dev", "libgtest-dev"):
            self.assertIn(name, names)
        self.assertNotIn("dpkg-dev", names)

    def test_the_archive_serves_from_another_place(self):
        missing = [name for name in vendor.packages(ROOT)
                   if subprocess.run(["dpkg-query", "-W", name], capture_output=True).returncode != 0]
        if missing:
            self.skipTest(f"not installed: {missing}")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            archive = folder / "libraries.tar.gz"
            vendor.write_archive(vendor.tree_of(vendor.packages(ROOT)), archive)
            usr = vendor.unpack(archive, folder / "elsewhere")
            self.assertLess(archive.stat().st_size, 10 << 20)
            says = subprocess.run([usr / "bin" / "pkg-config", "--cflags", "--libs", "hwloc", "libhwy", "libxxhash"],
                                  check=True, capture_output=True, text=True).stdout
            self.assertIn(f"-I{usr}/include", says)
            self.assertNotIn(" -I/usr", " " + says)
            folders = [f"-isystem{path}" for path in vendor.include_folders(usr)]
            read = subprocess.run(["c++", "-M", *folders, "-xc++", "-"], check=True, capture_output=True, text=True,
                                  input="#include <hwloc.h>").stdout.split()
            self.assertEqual([path for path in read if "hwloc" in path and not path.startswith(str(usr))], [])
            for library in usr.glob("lib/*-linux-gnu/*.so*"):
                self.assertTrue(library.exists(), f"{library} leads nowhere")
                for own_name, _ in vendor.needed_libraries(str(library)):
                    self.assertTrue((library.parent / own_name).exists(), f"{library.name} needs {own_name}")


class PackedTest(WithFolder):
    """Programs of a build folder run on another machine, without a build folder and without ctest."""

    @classmethod
    def setUpClass(cls):
        loader = SourceFileLoader("gpu_check", str(ROOT / "bench" / "gpu" / "gpu_check"))
        cls.tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
        loader.exec_module(cls.tool)

    def setUp(self):
        super().setUp()
        missing = [name for name in ("strip", "c++", "ldd", "readelf") if shutil.which(name) is None]
        if missing:
            self.skipTest(f"not installed: {missing}")
        self.build, self.archive = self.folder / "compiled", self.folder / "vendor" / "programs.tar.gz"
        self.source = self.folder / "where" / "it" / "was" / "compiled"
        for folder in ("tools", "bench", "tests"):
            (self.build / folder).mkdir(parents=True)
        (self.build / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={self.source}\n")
        for library in ("libown.so.1", "libcudart.so.13"):
            name = library.split(".")[0].removeprefix("lib")
            self.compile(self.folder / library, f'extern "C" int {name}() {{ return 0; }}', "-shared", "-fPIC", f"-Wl,-soname,{library}")
        program = self.folder / "program"
        self.compile(program, '#include <cstdio>\nextern "C" int own();\nint main() { std::puts("it runs"); return own(); }',
                     self.folder / "libown.so.1")
        for name in (*vendor.PROGRAMS, "bench/queue_probe"):
            shutil.copy(program, self.build / name)
        self.compile(self.build / "tools" / "ebb", 'extern "C" int cudart();\nint main() { return cudart(); }',
                     self.folder / "libcudart.so.13")
        for folder in ("nvidia/cu13/lib", "cuda/lib"):
            (self.folder / folder).mkdir(parents=True)
        (self.folder / "nvidia" / "cu13" / "lib" / "libcudnn.so.9").touch()
        (self.folder / "cuda" / "lib" / "libcublasLt.so.13").touch()
        for name, value in (("find", lambda name, *folders: str(self.folder / "cuda" / "bin" / name)),
                            ("folders_of_python", lambda: [self.folder / "nvidia"])):
            patch = unittest.mock.patch.object(machine, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def compile(self, output, text, *flags):
        command = ["c++", "-g", "-o", output, "-xc++", "-", "-xnone", "-Wl,--no-as-needed", *flags, f"-Wl,-rpath,{self.folder}"]
        subprocess.run(command, input=text, text=True, check=True)

    def arguments(self, part, *more):
        return [part, "--folder", str(self.folder / "gpu"), "--programs", str(self.build), "--programs-archive", str(self.archive),
                "--archive", str(self.folder / "none"), "--without-gpu", *more]

    def call(self, *arguments):
        """(exit code, output) of gpu_check."""
        stdout = io.StringIO()
        with contextlib.redirect_stdout(stdout):
            code = self.tool.main(self.arguments(*arguments))
        return code, stdout.getvalue()

    def here(self):
        self.call("pack")
        return machine.Machine(self.tool.parse(self.arguments("first")), ROOT)

    def test_packed_tests_run_and_need_nothing_of_the_build(self):
        self.assertEqual(self.call("pack")[0], DONE)
        shutil.rmtree(self.build)
        (self.folder / "libown.so.1").unlink()
        code, says = self.call("test", "--only", "device|kernels")
        self.assertEqual(code, DONE, says)
        log = (self.folder / "gpu" / "results" / "test.log").read_text()
        self.assertEqual(log.count("\nit runs\n"), 2)
        programs, = (self.folder / "gpu").glob("programs-*/usr")
        self.assertFalse((programs / "lib" / "libcudart.so.13").exists())
        self.assertFalse(list((programs / "lib").glob("libc.*")))
        self.assertNotIn(".symtab", vendor.output_of("readelf", "-SW", str(programs / "tests" / "test_device")))
        self.assertTrue((self.source / "tests" / "gpu_check").exists(), "test programs find no source folder")
        code, says = self.call("build")
        self.assertEqual(code, DONE)
        self.assertIn("nothing to do", says)

    def test_results_of_other_programs_do_not_count(self):
        self.call("pack")
        self.assertIn("test_device: passed", self.call("test", "--only", "device")[1])
        self.assertNotIn("test_device: passed", self.call("test", "--only", "device")[1])
        self.compile(self.build / "tests" / "test_device", "int main() { return 3; }")
        self.call("pack")
        self.assertEqual(self.call("test", "--only", "device")[0], FAILED)

    def test_a_missing_program_is_named(self):
        (self.build / "tests" / "test_device").unlink()
        with self.assertRaisesRegex(SystemExit, "tests/test_device"):
            self.call("pack")

    def test_the_first_half_hour_is_enough_for_first(self):
        units = parts.first_units(self.here())
        self.assertEqual([unit.name for unit in units], parts.FIRST)
        self.assertLess(sum(unit.estimated_s for unit in units), 30 * 60)
        for unit in units:
            self.assertLess(unit.estimated_s, unit.limit_s, unit.name)
        (self.build / "bench" / "queue_probe").unlink()
        self.assertEqual([unit.name for unit in parts.first_units(self.here())], parts.FIRST[1:])

    def test_first_says_its_time_and_runs_chosen_units(self):
        self.call("pack")
        code, says = self.call("first", "--only", "^(queue_probe|gemm)$")
        self.assertEqual(code, DONE, says)
        self.assertRegex(says, "first: 16 units, about [12][0-9] minutes")
        self.assertEqual(re.findall(r"^first: (.*): passed", says, re.MULTILINE), ["queue_probe", "gemm"])

    def test_limits_of_units(self):
        here = self.here()
        sanitize = parts.sanitize_units(here, "compute-sanitizer")
        self.assertEqual({unit.limit_s for unit in sanitize}, {120})
        self.assertEqual({unit.environment["EBB_BLOCK_SUBMITTING_THREAD"] for unit in sanitize}, {"1"})
        for unit in [*parts.test_units(here), *parts.bench_units(here)]:
            self.assertEqual(unit.limit_s, 300 if unit.name.startswith("claim") else 180, unit.name)
            self.assertNotIn("EBB_BLOCK_SUBMITTING_THREAD", unit.environment)

    def test_programs_find_the_libraries_of_cuda(self):
        self.assertIn("there is no libnvrtc.so.* of NVRTC", "\n".join(self.here().describe()))
        nvrtc = self.folder / "nvidia" / "cuda_nvrtc" / "lib"
        nvrtc.mkdir(parents=True)
        (nvrtc / "libnvrtc.so.13").touch()
        here = self.here()
        self.assertNotIn("there is no", "\n".join(here.describe()))
        folders = here.environment()["LD_LIBRARY_PATH"].split(":")
        self.assertEqual(folders[:4], [str(path) for path in (here.programs / "lib", self.folder / "cuda" / "lib",
                                                              self.folder / "nvidia" / "cu13" / "lib", nvrtc)])

    def test_only_is_refused_where_it_has_no_meaning(self):
        for part, pattern, why in (("build", "x", "--only selects units of"), ("all", "x", "--only selects units of"),
                                   ("test", "(", "( is no regular expression")):
            stderr = io.StringIO()
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(stderr):
                self.tool.parse([part, "--only", pattern])
            self.assertIn(why, stderr.getvalue())


class ClaimsTest(WithFolder):
    """claims.py with a program in place of ebb."""

    STEP = '{"step_seconds": 2, "tokens_per_second": 30, "tflops": 4, "bound_share": 0.5}'

    def claims(self, train, models=("toy",)):
        """Starts claims.py. `train` is the shell script of `ebb train`; $log is its step log."""
        ebb = self.folder / "ebb"
        ebb.write_text(f"""#!/bin/sh
case $1 in
devices) echo "CUDA 0: a GPU"; exit;;
plan) echo '{{"fits": true, "predicted_seconds": 1, "tflops": 1}}'; exit;;
esac
step='{self.STEP}'
for log do :; done
{train}
""")
        ebb.chmod(0o755)
        command = [sys.executable, ROOT / "bench" / "gpu" / "claims.py", ebb, *models]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def test_a_failed_training_keeps_its_row_and_the_next_budget_runs(self):
        process = self.claims('echo "$step" >"$log"; printf \'{"half\' >>"$log"; echo no memory >&2; exit 3', ["8B", "toy"])
        says = process.communicate()[0]
        self.assertEqual(process.returncode, 1)
        self.assertEqual(len(re.findall(r"^(?:8B|toy) .* 2\.000 .*50\.0 %", says, re.MULTILINE)), 4, says)
        self.assertEqual(says.count("ended with 3"), 4)
        self.assertEqual(says.count("no memory"), 4)

    def test_a_training_without_a_step_is_a_failure_without_a_row(self):
        process = self.claims('case "$*" in *--device-memory*) echo "$step" >"$log"; echo \'{"state_hash": "1"}\' >>"$log";; *) exit 3;; esac')
        says = process.communicate()[0]
        self.assertEqual(process.returncode, 1)
        self.assertEqual(len(re.findall(r"^toy .* 2\.000 ", says, re.MULTILINE)), 1, says)
        self.assertEqual(says.count("FAILED: the training ended with 3"), 1, says)

    def test_a_training_that_does_not_reach_its_end_is_a_failure(self):
        process = self.claims('echo "$step" >"$log"')
        says = process.communicate()[0]
        self.assertEqual(process.returncode, 1)
        self.assertEqual(says.count("FAILED: the training wrote no state hash"), 2, says)

    def test_trainings_to_the_same_bits_pass(self):
        for state, code in (("1", 0), ("$$", 1)):
            process = self.claims(f'echo "$step" >"$log"; echo "{{\\"state_hash\\": \\"{state}\\"}}" >>"$log"')
            says = process.communicate()[0]
            self.assertEqual(process.returncode, code, says)
            self.assertEqual("WRONG RESULT" in says, code == 1, says)

    def test_a_training_that_is_cut_off_keeps_its_row(self):
        process = self.claims(f'echo "$step" >"$log"; touch {self.folder}/began; exec sleep 60')
        deadline = time.monotonic() + 30
        while not (self.folder / "began").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM)
        says = process.communicate()[0]
        self.assertEqual(process.returncode, 1)
        self.assertRegex(says, r"(?m)^toy .* 2\.000 ")
        self.assertIn("was cut off", says)


class LimitTest(unittest.TestCase):
    """The time that no schedule falls below, in planned_claims.py."""

    RATES = {"load_bytes_per_s": 1e9, "store_bytes_per_s": 1e9, "update_bytes_per_s": 1e9}

    def limit(self, device_bytes):
        """Of 10^9 parameters without host memory, with 10^9 bytes of activations that can be computed again in half a second."""
        costs = types.SimpleNamespace(parameters=1e9, compute_s=1, kept_bytes=1e9, steps=[(1e9, 0.5)], home_bytes=12)
        return planned_claims.fastest_s(costs, 1, device_bytes, 0, self.RATES)

    def test_the_state_and_all_activations_need_no_recomputation(self):
        self.assertEqual(self.limit(13e9), (1, "compute"))

    def test_what_is_missing_is_computed_again(self):
        range_s = 12e9 / planned_claims.PARTS / 1e9 * 0.5
        seconds, by = self.limit(12.5e9)
        self.assertEqual(by, "compute")
        self.assertLessEqual(seconds, 1.25)
        self.assertGreater(seconds, 1.25 - 1.01 * range_s)

    def test_a_plan_that_is_faster_shows_an_error_in_the_limit(self):
        claim = planned_claims.Claim("C", "19B", 1, "0GiB", "12GiB", 0.9)
        machine = types.SimpleNamespace(name="h200", file="h200.json", rates=self.RATES)
        costs = types.SimpleNamespace(parameters=1e9, compute_s=1, kept_bytes=1, steps=[(1, 0.5)], home_bytes=12)
        for seconds, is_wrong in ((1, False), (0.99, True)):
            plan = {"predicted_seconds": seconds, "recompute_text": "none"}
            planner = types.SimpleNamespace(fastest=lambda *_, plan=plan: plan, costs=lambda *_: costs)
            if is_wrong:
                with self.assertRaisesRegex(SystemExit, r"the plan takes 0\.9900 s, the limit 1\.0000 s"):
                    planned_claims.row(planner, claim, machine)
            else:
                self.assertIn("met", planned_claims.row(planner, claim, machine))


class EmulatedClaimsTest(WithFolder):
    """emulated_claims.py with a program in place of ebb, whose plans take 2 s."""

    def rows_of(self, step_seconds):
        """Returns the exit code, the rows, and the flags of the last training."""
        ebb, flags = self.folder / "ebb", self.folder / "flags"
        plan = {"fits": True, "predicted_seconds": 2, "chosen": 0, "candidates": [{"recompute": "none"}], "full_device_bytes": 1,
                "stream_seconds": {"compute": 2, "load": 1, "store": 1, "update": 1}}
        ebb.write_text(f"""#!/bin/sh
for last do :; done
case "$*" in
*--write-machine*) echo '{{"update_bytes_per_s": {{"value": 2.4e10}}}}' >"$last";;
plan*) echo '{json.dumps(plan)}';;
train*) echo "$*" >{flags}; echo '{{"step_seconds": {step_seconds}, "tokens_per_second": 1, "tflops": 1, "bound_share": 1}}' >"$last";;
esac
""")
        ebb.chmod(0o755)
        command = [sys.executable, ROOT / "bench" / "gpu" / "emulated_claims.py", ebb, "14B"]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, re.findall(r"^B .*$", done.stdout, re.MULTILINE), flags.read_text()

    def test_steps_beside_their_plans(self):
        for step_seconds, code, off in ((2.1, 0, "+5.0%"), (2.3, 1, "+15.0%")):
            found, rows, _ = self.rows_of(step_seconds)
            self.assertEqual(found, code)
            self.assertEqual(len(rows), 2)
            self.assertTrue(all(row.endswith(off) for row in rows), rows)

    def test_rates_follow_adam_and_bytes_the_square_of_the_lengths(self):
        flags = self.rows_of(2)[2]  # Adam is a tenth as fast as on the H200's host
        for flag in ("--link 5300000000B/s,5300000000B/s", f"--emulate-compute {7.2e13 * 7 / 32:.0f}FLOP/s,400000000000B/s",
                     f"--device-memory {149250113536 * 49 // 1024}", f"--host-memory {192 * 2**30 * 49 // 1024}", "--seq-length 448"):
            self.assertIn(flag, flags)


if __name__ == "__main__":
    unittest.main()
