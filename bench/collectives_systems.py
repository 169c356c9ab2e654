"""The systems that bench/collectives measures, and how each of them is started."""

import os
import random
import shutil
import sys
import tempfile

from processes import cores, environment, read_rows, run_all


class Systems:
    """Everything that is started is a command whose ranks write PREFIX.RANK."""

    def __init__(self, build):
        self.build = build
        self.folder = tempfile.mkdtemp(prefix="lockstep-collectives-")
        self.left_out = {}
        for name, command, package in (
            ("openmpi", "mpirun.openmpi", "openmpi-bin, libopenmpi-dev"),
            ("mpich", "mpirun.mpich", "mpich, libmpich-dev"),
            ("gloo", None, "libtorch-dev, libgloo-dev, and a build with LibTorch"),
        ):
            program = self.program(f"collectives_{name}")
            if not os.path.exists(program):
                self.left_out[name] = f"{program} is not built; it needs {package}"
            elif command and not shutil.which(command):
                self.left_out[name] = f"{command} is not installed ({package})"
        for name in ("collectives_lockstep", "collectives_engine", "collectives_limit"):
            if not os.path.exists(self.program(name)):
                sys.exit(f"bench/collectives: {self.program(name)} is not built: "
                         "scripts/build release bench_collectives")

    def program(self, name):
        return os.path.join(self.build, "bench", name)

    def launcher(self, ranks):
        return [os.path.join(self.build, "cli", "lockstep"), "run", "-n", str(ranks),
                "--prefix", "always", "--"]

    def prefix(self):
        return os.path.join(tempfile.mkdtemp(dir=self.folder), "rank")

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    # One block of a part: [(command, environment, core or None)…], all to be run at once.

    def lockstep(self, part, arguments, hosts):
        command = [self.program("collectives_lockstep"), *arguments]
        variables = {"LOCKSTEP_TRANSPORT": part.transport}
        if hosts is None:
            return [(self.launcher(part.ranks) + command, environment(**variables), None)]
        local_size = part.ranks // len(hosts.names)
        variables.update(WORLD_SIZE=part.ranks, MASTER_ADDR=hosts.address(0),
                         MASTER_PORT=random.randrange(20000, 30000), LOCKSTEP_SECRET="bench",
                         LOCAL_WORLD_SIZE=local_size)
        return [(hosts.prefix(rank // local_size) + command,
                 environment(**variables, RANK=rank, LOCAL_RANK=rank % local_size), rank)
                for rank in range(part.ranks)]

    def openmpi(self, part, arguments, hosts):
        assert hosts is None
        # The workers pin themselves, as MPI's ways to do it differ.
        command = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--quiet"]
        if part.ranks > len(cores()):
            command += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
        if part.transport == "tcp":
            command += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
                        "--mca", "btl_tcp_if_include", "lo"]
        command += ["-n", str(part.ranks), self.program("collectives_openmpi"), *arguments]
        return [(command, environment(), None)]

    def mpich(self, part, arguments, hosts):
        assert hosts is None
        variables = {}
        if part.transport == "tcp":
            variables = {"MPIR_CVAR_NOLOCAL": 1, "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
        if part.ranks > len(cores()):
            variables["MPIR_CVAR_POLLS_BEFORE_YIELD"] = 1
        command = ["mpirun.mpich", "-n", str(part.ranks), self.program("collectives_mpich")]
        return [(command + arguments, environment(**variables), None)]

    def gloo(self, part, arguments, hosts):
        store = tempfile.mktemp(dir=self.folder)
        command = [self.program("collectives_gloo"), *arguments]
        interface = "lo" if hosts is None else hosts.interface
        local_size = part.ranks // len(hosts.names) if hosts else part.ranks
        return [((hosts.prefix(rank // local_size) if hosts else []) + command,
                 environment(RANK=rank, WORLD_SIZE=part.ranks, GLOO_STORE=store,
                             GLOO_INTERFACE=interface), rank)
                for rank in range(part.ranks)]

    def limit(self, part, arguments, hosts):
        assert hosts is None and part.operation == "all_reduce"
        return [([self.program("collectives_limit"), *arguments], environment(), None)]

    def block(self, system, part, arguments, hosts=None):
        """What each rank wrote: a list of rows per rank."""
        prefix = self.prefix()
        arguments = ["--out", prefix, "--operation", part.operation, *arguments]
        run_all(getattr(self, system)(part, arguments, hosts))
        return [read_rows(f"{prefix}.{rank}") for rank in range(part.ranks)]

    def engine(self, what, ranks):
        """What collectives_engine says, per rank."""
        prefix = self.prefix()
        command = [self.program("collectives_engine"), what, prefix]
        if what != "plans":
            command = self.launcher(ranks) + command
        run_all([(command, environment(), None)])
        return [read_rows(f"{prefix}.{rank}")[0] for rank in range(ranks)]
