"""liblockstep.so from another language: Python's ctypes, without numpy or any binding.

Run by itself it starts two ranks of itself; each sums an array.array with the other.
"""

import array
import ctypes
import os
import subprocess
import sys
import unittest

SUM, F64, I32 = 0, 8, 3


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("count", ctypes.c_int64),
        ("dtype", ctypes.c_int32), ("dimensions", ctypes.c_int32),
        ("sizes", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("is_complex", ctypes.c_int32), ("reserved", ctypes.c_int32),
    ]


def tensor(values, dtype):
    address, count = values.buffer_info()
    return Tensor(data=address, count=count, dtype=dtype)


def load():
    library = ctypes.CDLL(os.environ["LIBRARY"])
    handle = ctypes.c_uint64
    library.lockstep_last_error.restype = ctypes.c_char_p
    library.lockstep_rank.argtypes = library.lockstep_size.argtypes = [handle]
    library.lockstep_all_reduce.argtypes = [
        handle, ctypes.POINTER(Tensor), ctypes.POINTER(Tensor), ctypes.c_int,
        ctypes.POINTER(handle),
    ]
    library.lockstep_work_wait.argtypes = library.lockstep_work_free.argtypes = [handle]
    library.lockstep_group_free.argtypes = [handle]
    return library


def rank():
    library = load()

    def must(status):
        if status != 0:
            sys.exit(library.lockstep_last_error().decode())

    group, work = ctypes.c_uint64(), ctypes.c_uint64()
    must(library.lockstep_init(ctypes.byref(group)))
    number = library.lockstep_rank(group)
    values = array.array("d", [number + i for i in range(1000)])
    must(library.lockstep_all_reduce(group, tensor(values, F64), None, SUM, None))
    counts = array.array("i", [number + 1] * 7)
    must(library.lockstep_all_reduce(group, tensor(counts, I32), None, SUM, ctypes.byref(work)))
    must(library.lockstep_work_wait(work))
    must(library.lockstep_work_free(work))
    assert list(values) == [1 + 2 * i for i in range(1000)], values
    assert list(counts) == [3] * 7, counts
    refused = library.lockstep_all_reduce(group, tensor(values, 77), None, SUM, None)
    assert refused == 1 and b"77 is no element type" in library.lockstep_last_error()
    print(f"rank {number} of {library.lockstep_size(group)} ok", flush=True)
    must(library.lockstep_group_free(group))


class CtypesTest(unittest.TestCase):
    def test_two_ranks_sum_an_array(self):
        done = subprocess.run(
            [os.environ["LOCKSTEP"], "run", "-n", "2", "--", sys.executable, "-B", __file__],
            capture_output=True, text=True, timeout=50,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        for number in range(2):
            self.assertIn(f"rank {number} of 2 ok", done.stdout)

    def test_the_library_shows_its_own_functions_alone(self):
        listed = subprocess.run(
            [os.environ["NM"], "--dynamic", "--defined-only", "--format=posix",
             os.environ["LIBRARY"]],
            capture_output=True, text=True, check=True,
        )
        names = [line.split()[0] for line in listed.stdout.splitlines()]
        self.assertIn("lockstep_all_reduce", names)
        self.assertEqual([name for name in names if not name.startswith("lockstep_")], [])


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank()
    else:
        unittest.main(verbosity=2)
