#!/usr/bin/env python3
"""Runs the program machine_rank under mpirun: ranks that meet through MPI, as if they were on several machines.

Usage: test_machine_ranks.py MACHINE_RANK EBB [TEST...]; libebb_mpi.so is in the folder of EBB
Exit code: 0 if all is well, 77 where mpirun or libebb_mpi.so is missing.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PROGRAM, EBB = sys.argv[1:3]
LIBRARIES = pathlib.Path(EBB).parent
# A container has few cores and may have no other user. Ranks of one machine do not copy from the memory of each other by the
# kernel: OpenMPI stalls when it does so from a process that was killed, and machines have nothing like it.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl_vader_single_copy_mechanism", "none"]


def kill_if_alive(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Run:
    """A run of machine_rank. `lines`: what its ranks have printed. recovery: mpirun leaves the other ranks alone if one ends."""

    def __init__(self, num_ranks, case, per_machine=1, timeout=30, silence=10, recovery=True):
        environment = dict(os.environ, LD_LIBRARY_PATH=f"{LIBRARIES}:{os.environ.get('LD_LIBRARY_PATH', '')}")
        command = [*MPIRUN, *["--enable-recovery"] * recovery, "-n", str(num_ranks), PROGRAM, case, str(per_machine), str(timeout), str(silence)]
        self.process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines = []
        # A test that fails must end, also if it leaves a process behind that is stopped.
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, pattern, count=1):
        """Waits until so many lines match, and returns their matches."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = [match for match in (re.fullmatch(pattern, line) for line in list(self.lines)) if match]
            if len(found) >= count:
                return found
            time.sleep(0.01)
        raise AssertionError(f"fewer than {count} lines are {pattern}: {self.lines}")

    def process_of(self, rank):
        return int(self.wait_for(rf"rank {rank} joined, process (\d+)")[0][1])

    def end(self):
        """Returns the exit code."""
        try:
            self.process.wait(timeout=90)
        finally:
            self.process.kill()
            self.reader.join()
            self.process.stdout.close()
        return self.process.returncode


class MachineRanks(unittest.TestCase):
    def check_success(self, case, numbers):
        for num_ranks, per_machine in numbers:
            with self.subTest(case=case, num_ranks=num_ranks, per_machine=per_machine):
                run = Run(num_ranks, case, per_machine)
                code = run.end()
                said = sorted(line for line in run.lines if line.startswith("rank") and "joined" not in line)
                self.assertEqual(said, [f"rank {rank} ends" for rank in range(num_ranks)])
                self.assertEqual(code, 0)

    def check_errors(self, run, errors):
        """`errors`: the pattern of the error of each rank that ends with one."""
        begin = time.monotonic()
        for rank, pattern in errors.items():
            run.wait_for(f"rank {rank}: {pattern}")
        return time.monotonic() - begin

    def test_cases(self):
        self.check_success("cases", [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2)])

    def test_emulated_network(self):
        self.check_success("paced", [(2, 1), (4, 1)])

    def test_disagreements(self):
        self.check_success("disagreements", [(2, 1), (4, 2)])

    def test_a_busy_rank_is_not_lost(self):
        run = Run(2, "wait", silence=1)
        self.assertEqual(run.end(), 0)

    def test_killed_rank(self):
        for num_ranks, per_machine, killed in [(3, 1, 1), (3, 1, 0), (4, 2, 3)]:
            with self.subTest(num_ranks=num_ranks, per_machine=per_machine, killed=killed):
                run = Run(num_ranks, "work", per_machine, silence=2)
                processes = [run.process_of(rank) for rank in range(num_ranks)]
                run.wait_for(r"rank \d+ works", num_ranks)
                time.sleep(0.3)
                os.kill(processes[killed], signal.SIGKILL)
                lost = "is gone" if per_machine > 1 else "does not answer"
                text = f"rank {killed} {lost}: its process {processes[killed]} .*"
                seconds = self.check_errors(run, {rank: text for rank in range(num_ranks) if rank != killed})
                self.assertLess(seconds, 5)
                run.end()

    def test_mpirun_ends_the_others(self):
        run = Run(2, "work", recovery=False)
        killed = run.process_of(1)
        run.wait_for(r"rank \d+ works", 2)
        os.kill(killed, signal.SIGKILL)
        begin = time.monotonic()
        self.assertEqual(run.end(), 128 + signal.SIGKILL)
        self.assertLess(time.monotonic() - begin, 5)

    def test_stopped_rank(self):
        run = Run(3, "work", silence=1.5)
        stopped = run.process_of(1)
        self.addCleanup(kill_if_alive, stopped)
        run.wait_for(r"rank \d+ works", 3)
        os.kill(stopped, signal.SIGSTOP)
        text = f"rank 1 does not answer: its process {stopped} has done nothing for 1.5 s"
        self.assertLess(self.check_errors(run, {0: text, 2: text}), 5)
        time.sleep(3)  # the others give up waiting for the end of this rank
        os.kill(stopped, signal.SIGCONT)
        self.check_errors(run, {1: "rank . does not answer: .*"})
        run.end()

    def test_failing_rank(self):
        for num_ranks, per_machine in [(2, 1), (4, 2)]:
            run = Run(num_ranks, "fail", per_machine, recovery=False)
            last = num_ranks - 1
            errors = {rank: f"rank {last} failed: out of luck" for rank in range(last)}
            self.check_errors(run, {**errors, last: "out of luck"})
            self.assertEqual(run.end(), 1)

    def test_stuck_rank(self):
        run = Run(2, "stuck", timeout=8, recovery=False)
        self.check_errors(run, {0: r"rank 0 has waited 8 s for rank 1, which has not raised signal 0 to 1 \(its value is 0\)"})
        self.assertNotEqual(run.end(), 0)

    def test_missing_rank(self):
        run = Run(3, "missing", timeout=8, recovery=False)
        text = "MPI has not started for 8 s: at least one rank of the run has not come"
        self.check_errors(run, {0: text, 2: text})
        self.assertNotEqual(run.end(), 0)

    def test_leaving_rank(self):
        for num_ranks, per_machine in [(3, 1), (4, 2)]:
            run = Run(num_ranks, "leave", per_machine, recovery=False)
            last = num_ranks - 1
            text = rf"rank \d waits for rank {last}, which has left the run and has not raised signal 0 to 1 \(its value is 0\)"
            self.check_errors(run, {rank: text for rank in range(last)})
            self.assertNotEqual(run.end(), 0)

    def test_training_has_the_bits_of_one_rank(self):
        train = [EBB, "train", "--preset", "toy-bytes", "--data", __file__, "--seq-length", "64", "--steps", "3", "--threads", "1",
                 "--gradient-accumulation", "6", "--chunk-size", "256KiB", "--device-memory", "24MiB", "--host-memory", "1GB"]

        def results(command, folder):
            """The hash of the state, and the weights and planes in the checkpoint; the header of a state has the id of its run."""
            done = subprocess.run([*command, "--save", folder, "--save-steps", "2"], capture_output=True, text=True, check=False, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            state_hash = re.search(r"^state_hash (\w+)$", done.stdout, re.MULTILINE)[1]
            checkpoint = pathlib.Path(folder) / "step-3"
            return state_hash, (checkpoint / "model.safetensors").read_bytes(), (checkpoint / "state.ebb").read_bytes()[4096:]

        with tempfile.TemporaryDirectory() as folder:
            one = results(train, f"{folder}/1")
            for num_ranks in (2, 3):  # two chain the sums of six groups, three do not
                several = results([*MPIRUN, "-n", str(num_ranks), *train, "--rank-transport", "mpi"], f"{folder}/{num_ranks}")
                self.assertTrue(several == one, f"{num_ranks} ranks")


if __name__ == "__main__":
    if shutil.which("mpirun") is None or not (LIBRARIES / "libebb_mpi.so").exists():
        print("skipped: no mpirun or no libebb_mpi.so")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
