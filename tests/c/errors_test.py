"""What a C program is told when its group breaks."""

import os
import socket
import subprocess
import unittest

EVERY_CALL = os.environ["EVERY_CALL"]
DROPPED = ("LOCKSTEP_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMP_NUM_THREADS")
STATUS = {"invalid_argument": 1, "timeout": 3, "peer_lost": 4, "cancelled": 6}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(mode, **extra):
    """Exit status and output of each of 3 ranks."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED)}
    common = {**kept, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
              "WORLD_SIZE": "3", "LOCKSTEP_SECRET": "s", "LOCKSTEP_RECORD": "none", **extra}
    ranks = [
        subprocess.Popen([EVERY_CALL, mode], env={**common, "RANK": str(rank)}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(3)
    ]
    try:
        ended = [rank.communicate(timeout=30) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [(rank.returncode, out, err) for rank, (out, err) in zip(ranks, ended)]


class ErrorsTest(unittest.TestCase):
    def expect(self, ended, name, words):
        status, out, err = ended
        self.assertEqual(status, STATUS[name], (out, err))
        self.assertRegex(out, f"^{name}: .*{words}")

    def test_ranks_that_do_not_agree(self):  # S-HANG-01
        for transport in ("shm", "tcp"):
            for ended in run("disagree", LOCKSTEP_TRANSPORT=transport):
                self.expect(ended, "invalid_argument", "do(es)? not agree|f32")

    def test_a_rank_that_aborts(self):
        for transport in ("shm", "tcp"):
            for ended in run("abort", LOCKSTEP_TRANSPORT=transport):
                self.expect(ended, "cancelled", "rank 1: enough")

    def test_a_rank_that_ends_without_freeing_its_group(self):  # S-FT-01
        for transport in ("shm", "tcp"):
            zero, one, two = run("lost", LOCKSTEP_TRANSPORT=transport)
            self.assertEqual(one[0], 0)
            for ended in (zero, two):
                self.expect(ended, "peer_lost", "rank 1")

    def test_settings_that_cannot_be(self):
        for ended in run("all", WORLD_SIZE="none"):
            self.expect(ended, "invalid_argument", "WORLD_SIZE='none'")


if __name__ == "__main__":
    unittest.main(verbosity=2)
