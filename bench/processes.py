"""Starting the programs of a benchmark and reading what they write."""

import json
import os
import signal
import subprocess
import tempfile
import time

DROPPED = ("LOCKSTEP_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "MPIR_", "UCX_")
# A block that takes longer hangs.
BLOCK_LIMIT_S = 300


class Failed(Exception):
    """A system could not do what it was asked for; the message says what."""


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED)}
    return {**kept, "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in variables.items()}}


def cores():
    return sorted(os.sched_getaffinity(0))


def read_rows(path):
    try:
        with open(path) as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:
        raise Failed(f"no figures in {path}") from None


def pin(core):
    allowed = cores()
    return lambda: os.sched_setaffinity(0, {allowed[core % len(allowed)]})


def run_all(commands, meanwhile=lambda: None):
    """Runs (command, environment, core or None) side by side until all have ended or one has
    failed, which is told. `meanwhile` is called again and again as long as they run."""
    with tempfile.TemporaryFile("w+") as said:
        # Not sessions of their own: the kernel shares out cores by session (autogroup), and a job
        # of one launcher would get less of a busy machine than one of a command per rank.
        processes = [subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=said,
                                      stderr=said, process_group=0,
                                      preexec_fn=None if core is None else pin(core))
                     for command, variables, core in commands]
        try:
            problem = first_problem(processes, meanwhile)
        finally:
            for process in processes:
                end(process)
        if problem:
            said.seek(0)
            raise Failed(f"{' '.join(commands[0][0])} {problem}:\n{said.read()[-3000:]}")


def first_problem(processes, meanwhile):
    began = time.monotonic()
    while (elapsed_s := time.monotonic() - began) < BLOCK_LIMIT_S:
        statuses = [process.poll() for process in processes]
        if any(statuses):
            return f"ended with {next(status for status in statuses if status)}"
        if None not in statuses:
            return None
        meanwhile()
        # Seldom where there is time: looking takes a core away from who is measured.
        time.sleep(min(0.1, max(0.005, elapsed_s / 20)))
    return f"did not end within {BLOCK_LIMIT_S} s"


def end(process):
    """Lets a launcher end its ranks, then makes sure of its whole process group."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
