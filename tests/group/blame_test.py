"""What ranks say when an operation stalls or fails, and what `lockstep blame` finds out afterwards."""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from group_test import LOCKSTEP, PROBE, Job, ended, environment

TRANSPORTS = ("shm", "tcp")
FIFTH = r"all_reduce number 4 \(sum of f32\[1000\]\)"


def blame(*arguments):
    done = subprocess.run(
        [LOCKSTEP, "blame", *arguments], capture_output=True, text=True, timeout=20
    )
    return done.returncode, done.stdout, done.stderr


class Recorded(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def job(self, transport, **extra):
        return Job(self, LOCKSTEP_TRANSPORT=transport, LOCKSTEP_RECORD=self.folder, **extra)

    def records(self):
        return sorted(glob.glob(os.path.join(self.folder, "lockstep-*", "*.record")))

    def blamed(self):
        """The verdict on the one job in the folder, which is forgotten then."""
        (job,) = glob.glob(os.path.join(self.folder, "lockstep-*"))
        status, out, err = blame("--json", job)
        self.assertEqual((status, err), (0, ""))
        text = blame(job)[1]
        shutil.rmtree(job)
        return json.loads(out), text

    def await_ready(self, ranks, word="ready\n"):
        for process in ranks:
            self.assertEqual(process.stdout.readline(), word)


class BlameTest(Recorded):
    def test_ranks_that_disagree_on_the_count(self):  # S-HANG-01
        for transport in TRANSPORTS:
            for process in self.job(transport).start_all("differ", 4):
                status, _, err = ended(process)
                self.assertEqual(status, 1)
                self.assertRegex(err, r"f32\[998\]")
                self.assertRegex(err, r"f32\[1000\]")
            self.assertEqual(len(self.records()), 4)
            found, text = self.blamed()
            self.assertEqual((found["verdict"], found["ranks"]), ("diverged", [1]), text)
            self.assertEqual(found["number"], 4)
            self.assertRegex(text, r"rank 1 diverged first, at number 4: .*f32\[998\].*f32\[1000\]")

    def test_a_rank_that_does_not_come_to_an_operation(self):
        for transport in TRANSPORTS:
            ranks = self.job(transport, LOCKSTEP_TIMEOUT=1).start_all("wait", 3)
            self.await_ready(ranks)
            err = ended(ranks[0])[2]
            self.assertRegex(err, rf"timeout: rank \d waited \d\.\d s in {FIFTH} for rank 1")
            if transport == "shm":
                self.assertRegex(err, r"which has not come to it \(its last: all_reduce number 3 ")
            for process in ranks[1:]:
                self.assertEqual(ended(process)[0], 1)
            self.assertEqual(len(self.records()), 3)
            found, text = self.blamed()
            self.assertEqual((found["verdict"], found["ranks"]), ("stopped", [1]), text)
            self.assertRegex(text, f"rank 1 stopped first, before {FIFTH}, which ranks 0, 2 called")

    def test_a_killed_rank_leaves_no_record_and_is_named(self):  # S-FT-01
        for transport in TRANSPORTS:
            ranks = self.job(transport).start_all("loop", 3, elements=1 << 16)
            self.await_ready(ranks, "looping\n")
            ranks[1].kill()
            said = "".join(ended(ranks[rank])[2] for rank in (0, 2))
            self.assertEqual(len(re.findall("`lockstep blame .*`", said)), 1, said)
            self.assertEqual(len(self.records()), 2)
            found, text = self.blamed()
            self.assertEqual((found["verdict"], found["ranks"]), ("missing", [1]), text)
            self.assertRegex(text, "first error: peer_lost: .*rank 1")

    def test_damaged_and_foreign_files_are_named_and_the_others_used(self):
        for process in self.job("shm").start_all("differ", 4):
            ended(process)
        files = self.records()
        with open(files[0], "r+") as file:
            file.truncate(os.path.getsize(files[0]) - 1)
        status, out, err = blame(*files, PROBE, "/nowhere/rank-9.record")
        self.assertEqual(status, 2)
        self.assertRegex(out, "rank 1 diverged first, at number 4")
        self.assertRegex(err, f"'{files[0]}' is a damaged flight record")
        self.assertRegex(err, f"'{PROBE}' is no flight record")
        self.assertRegex(err, "cannot read '/nowhere/rank-9.record'")
        self.assertEqual(blame(PROBE)[0], 2)
        self.assertEqual(blame()[0], 2)
        self.assertEqual(blame(self.folder)[0], 2)

    def test_by_default_the_records_are_in_the_folder_for_temporary_files(self):
        done = subprocess.run(
            [LOCKSTEP, "run", "-n", "4", "--", PROBE, "differ"],
            env=environment({"TMPDIR": self.folder, "LOCKSTEP_RECORD": None}),
            capture_output=True, text=True, timeout=30,
        )
        self.assertEqual(done.returncode, 1)
        said = re.search("`lockstep blame (.*?)`", done.stderr)
        self.assertTrue(said, done.stderr)
        self.assertEqual(os.path.dirname(said.group(1)), self.folder)
        self.assertEqual(blame(said.group(1))[0], 0)

    def test_a_job_that_ends_well_or_is_told_not_to_writes_none(self):
        for process in self.job("shm").start_all("sum", 2):
            self.assertEqual(ended(process)[0], 0)
        for process in Job(self, TMPDIR=self.folder).start_all("differ", 2):
            self.assertEqual(ended(process)[0], 1)
        self.assertEqual(os.listdir(self.folder), [])


class StallTest(Recorded):
    def lines(self, process, words):
        return [line for line in process.communicate(timeout=20)[1].splitlines() if words in line]

    def test_who_waits_for_whom_is_said_once_and_that_it_goes_on(self):
        for transport in TRANSPORTS:
            ranks = self.job(transport, LOCKSTEP_STALL_AFTER=1).start_all("wait", 3)
            self.await_ready(ranks)
            place = r", which has not come to it \(its last: all_reduce number 3 .*\)"
            for rank in (0, 2):  # one waits, the other leaves it to the progress thread
                self.assertRegex(
                    ranks[rank].stderr.readline(),
                    rf"^lockstep: rank {rank}: warning: has waited \d+ s in {FIFTH} for rank 1"
                    + (place if transport == "shm" else "") + "$",
                )
            time.sleep(1.5)  # a second line would have come by now
            ranks[1].stdin.write("\n")
            ranks[1].stdin.flush()
            for rank in (0, 2):
                self.assertRegex(
                    ranks[rank].stderr.readline(),
                    rf"^lockstep: rank {rank}: warning: {FIFTH} goes on after \d+ s$",
                )
            for process in ranks:
                self.assertEqual(ended(process)[::2], (0, ""))

    def test_a_frozen_rank(self):
        for transport in TRANSPORTS:
            job = self.job(transport, LOCKSTEP_STALL_AFTER=1)
            ranks = job.start_all("loop", 2, elements=1 << 16)
            self.await_ready(ranks, "looping\n")
            ranks[1].send_signal(signal.SIGSTOP)
            self.assertRegex(ranks[0].stderr.readline(), r"has waited \d+ s in .* for rank 1")
            ranks[1].send_signal(signal.SIGCONT)
            self.assertRegex(ranks[0].stderr.readline(), r"goes on after \d+ s")
            ranks[1].kill()
            self.assertRegex(ended(ranks[0])[2], "peer_lost: .*rank 1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
