#!/usr/bin/env python3
"""bench/gpu/gpu_check's own logic, with commands that cost nothing: what is done stays done, what failed is said, what ran
out of time is done again; the archive of libraries, where Debian's packages are; and what claims.py keeps of a training that
fails."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench" / "gpu"))

import parts  # noqa: E402
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
            self.assertEqual((self.folder / "results" / log).read_text().count("==== first: passed"), 1)

    def test_a_few_tests_first_are_not_done_again_by_all(self):
        units = [self.counting("first"), self.counting("second")]
        self.assertEqual(self.record().run("test", units[1:]), DONE)
        self.assertEqual(self.record().run("test", units), DONE)
        self.assertEqual([self.count("first"), self.count("second")], [1, 1])

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

    def test_what_takes_a_whole_call_never_ends(self):
        self.assertEqual(self.record(4.5).run("test", [shell("first", "sleep 60")]), FAILED)
        self.assertIn("no end within", self.record().summary())

    def test_a_compilation_goes_on(self):
        self.assertEqual(self.record(4.5).run("build", [shell("compile", "sleep 60", goes_on=True)]), TIME_IS_UP)

    def test_a_compilation_that_is_ended_leaves_no_compiler_behind(self):
        build = self.folder / "build"
        build.mkdir()
        (build / "build.ninja").write_text("rule compile\n command = touch $out; echo $$$$ > pid; exec sleep 60\nbuild half: compile\n")
        unit = Unit("compile", ["ninja", "-C", str(build)], goes_on=True)
        self.assertEqual(self.record(4.5).run("build", [unit]), TIME_IS_UP)
        process = (build / "pid").read_text().strip()
        self.assertFalse(pathlib.Path(f"/proc/{process}").exists(), "the compiler is still there")
        self.assertFalse((build / "half").exists(), "an incomplete file is left")

    def test_what_does_not_end_when_asked_is_killed(self):
        unit = shell("first", "trap '' TERM; sleep 60 & wait; sleep 60", goes_on=True)
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
        return types.SimpleNamespace(build_folder=build, ninja=str(ninja), options=options,
                                     configure_command=lambda: ["echo", "CUDA backend: toolkit 13.0"])

    def test_only_a_build_that_compiled_makes_tests_stale(self):
        record = self.record()
        self.assertEqual(parts.build(self.here("compiling"), record), DONE)
        record.run("test", [shell("a", "true")])
        self.assertEqual(parts.build(self.here("ninja: no work to do."), record), DONE)
        self.assertIn("a", record.units_of("test"))
        self.assertFalse((self.folder / "results" / "test.before.log").exists())
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

    def test_a_training_that_does_not_reach_its_end_is_a_failure(self):
        process = self.claims('echo "$step" >"$log"')
        process.communicate()
        self.assertEqual(process.returncode, 1)

    def test_trainings_to_the_same_bits_pass(self):
        for state, code in (("1", 0), ("$$", 1)):
            process = self.claims(f'echo "$step" >"$log"; echo "{{\\"state_hash\\": \\"{state}\\"}}" >>"$log"')
            says = process.communicate()[0]
            self.assertEqual(process.returncode, code, says)

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


if __name__ == "__main__":
    unittest.main()
