"""Training that is killed, interrupted, or fails on one rank: what is said, and what is left."""

import os
import signal
import subprocess
import time
import unittest

import job


def processes_with(mark):
    """Process ids whose environment holds `mark`, zombies left out."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(int(name))
        except (OSError, ValueError):
            continue
    return found


def rank_of(pid):
    with open(f"/proc/{pid}/environ") as file:
        variables = dict(x.split("=", 1) for x in file.read().split("\0") if "=" in x)
    with open(f"/proc/{pid}/comm") as file:
        return variables.get("RANK") if file.read().startswith("lockstep-train") else None


class FaultTest(job.TrainTest):
    def start(self, ranks=3):
        """A long training, seen to be past step 5."""
        data = self.make_data(train=600)
        self.mark = f"LOCKSTEP_TEST_MARK={os.getpid()}-{self.id()}"
        self.shared = set(os.listdir("/dev/shm"))
        arguments = ["--model", "mlp", "--data", data, "--batch", "12", "--epochs", "100000"]
        launcher = subprocess.Popen(
            [job.LOCKSTEP, "run", "-n", str(ranks), "--", job.LOCKSTEP, "train", *arguments,
             "--log-every", "1", "--output", self.path("output")],
            env=job.clean_environment(dict([self.mark.split("=", 1)])),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.addCleanup(launcher.kill)
        self.seen = ""
        while "step 6/" not in self.seen:
            line = launcher.stdout.readline()
            self.assertNotEqual(line, "", self.seen)
            self.seen += line
        return launcher

    def finish(self, launcher):
        rest, _ = launcher.communicate(timeout=30)
        return launcher.returncode, self.seen + rest

    def assert_nothing_left(self):
        self.assertEqual(processes_with(self.mark), [])
        self.assertEqual(set(os.listdir("/dev/shm")) - self.shared, set())
        self.assertEqual(os.listdir(self.path("output")), [])

    def rank_process(self, rank):
        found = [p for p in processes_with(self.mark) if rank_of(p) == str(rank)]
        self.assertEqual(len(found), 1)
        return found[0]

    def test_a_killed_rank_ends_the_job_and_is_named_first(self):
        for victim in (0, 2):
            launcher = self.start()
            os.kill(self.rank_process(victim), signal.SIGKILL)
            began = time.monotonic()
            status, text = self.finish(launcher)
            self.assertEqual(status, 128 + signal.SIGKILL)
            causes = [x for x in text.splitlines() if x.startswith("lockstep run: rank")]
            self.assertRegex(causes[0], f"rank {victim} .*SIGKILL")
            self.assertLess(time.monotonic() - began, 5)
            self.assert_nothing_left()
            os.rename(self.path("data"), self.path(f"data-{victim}"))

    def test_survivors_say_whom_they_lost(self):
        # Without the launcher, which ends the others before they have said much.
        data = self.make_data(train=600)
        port = str(20000 + os.getpid() % 20000)
        ranks = []
        for rank in range(2):
            environment = job.clean_environment({
                "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port, "OMP_NUM_THREADS": "1"})
            ranks.append(subprocess.Popen(
                [job.LOCKSTEP, "train", "--model", "mlp", "--data", data, "--epochs", "100000",
                 "--log-every", "1"],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            self.addCleanup(ranks[-1].kill)
        seen = ""
        while "step 6/" not in seen:
            line = ranks[0].stdout.readline()
            self.assertNotEqual(line, "", seen)
            seen += line
        ranks[1].kill()
        rest, _ = ranks[0].communicate(timeout=30)
        self.assertEqual(ranks[0].returncode, 1)
        self.assertRegex(rest, r"lockstep train: rank 0: rank 1 \(process \d+ on host .*\) is gone")
        ranks[1].communicate()

    def test_ctrl_c_ends_everything_within_two_seconds(self):
        launcher = self.start()
        began = time.monotonic()
        launcher.send_signal(signal.SIGINT)
        status, _ = self.finish(launcher)
        self.assertLess(time.monotonic() - began, 2)
        self.assertEqual(status, 128 + signal.SIGINT)
        self.assert_nothing_left()

    def test_a_killed_launcher_takes_its_ranks_along(self):
        launcher = self.start()
        launcher.kill()
        launcher.communicate()
        deadline = time.monotonic() + 5
        while processes_with(self.mark) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main(verbosity=2)
