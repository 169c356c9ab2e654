"""examples/collectives.cc does what it says, on any number of ranks and over each transport."""

import os
import re
import subprocess
import unittest

DROPPED = ("LOCKSTEP_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMP_NUM_THREADS")


def expected(rank, ranks, transport):
    row = [r for r in range(ranks) if r // 2 == rank // 2]
    swapped = ", ".join(str(10 * r + rank) for r in range(ranks))
    return (
        f"rank {rank} of {ranks} over {transport}: mean {sum(range(ranks)) / ranks:g}, sum of the "
        f"row {sum(row)}, swapped [{swapped}], from the left {(rank - 1) % ranks}"
    )


class CollectivesTest(unittest.TestCase):
    def test_on_one_to_five_ranks(self):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED)}
        for ranks, transport in ((1, "auto"), (2, "tcp"), (4, "shm"), (5, "tcp")):
            done = subprocess.run(
                [os.environ["LOCKSTEP"], "run", "-n", str(ranks), "--", os.environ["COLLECTIVES"]],
                env={**kept, "LOCKSTEP_TRANSPORT": transport, "LOCKSTEP_RECORD": "none"},
                capture_output=True, text=True, timeout=30,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = re.findall(r"rank \d+ of .*", done.stdout)
            words = {"auto": "none needed", "shm": "shared memory"}.get(transport, transport)
            self.assertEqual(sorted(lines), [expected(r, ranks, words) for r in range(ranks)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
