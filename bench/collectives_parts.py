"""What bench/collectives measures, and what is asked of each figure."""

import dataclasses
import math

KIB, MIB = 1 << 10, 1 << 20
PEERS = ("openmpi", "mpich", "gloo")
NAMES = {"lockstep": "Lockstep", "openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo",
         "limit": "limit"}


@dataclasses.dataclass(frozen=True)
class Target:
    """From `bytes_min` to `bytes_max`: at least `ratio` times the best peer's bandwidth (or its
    latency divided by that), `limit_share` of the limit's, `line_share` of what TCP can carry."""
    what: str
    bytes_min: int
    bytes_max: float = math.inf
    ratio: float = 0
    limit_share: float = 0
    line_share: float = 0
    over_theory: float = 0  # bytes over the line: at most so many times hierarchical theory's

    def words(self):
        asked = []
        if self.ratio:
            asked.append(f"≥ {self.ratio:g} × best peer")
        if self.limit_share:
            asked.append(f"≥ {self.limit_share:.0%} of the limit")
        if self.line_share:
            asked.append(f"≥ {self.line_share:.0%} of the line")
        if self.over_theory:
            asked.append(f"bytes ≤ {self.over_theory:g} × theory")
        return ", ".join(asked)


@dataclasses.dataclass(frozen=True)
class Part:
    """One operation measured over sizes, system beside system."""
    name: str
    title: str
    operation: str
    memory: str
    transport: str
    ranks: int
    systems: tuple
    targets: tuple
    hosts: int = 0  # network namespaces; 0: this host as it is
    bytes_min: int = 0
    bytes_max: float = math.inf

    def sizes(self, sizes):
        return [x for x in sizes if self.bytes_min <= x <= self.bytes_max
                and (self.operation in ("all_reduce", "broadcast") or x % (4 * self.ranks) == 0)]


def one_host(name, title, operation, targets, memory="library", transport="shm", ranks=2,
             systems=("lockstep", *PEERS), bytes_min=0):
    return Part(name, title, operation, memory, transport, ranks, systems, targets,
                bytes_min=bytes_min)


def moving(name, operation, systems):
    return one_host(name, f"{operation}, arena, 2 ranks", operation,
                    (Target(f"{operation}, arena, from 64 KiB", 64 * KIB, ratio=1.5),),
                    systems=systems, bytes_min=4 * KIB)


def network(hosts, ranks, targets):
    name = f"network-{hosts}" if hosts == ranks else f"network-{hosts}x{ranks // hosts}"
    each = f", {ranks // hosts} ranks each" if ranks > hosts else ""
    title = f"{hosts} hosts at 1 Gbit/s{each}"
    return Part(name, f"all_reduce, {title}", "all_reduce", "own", "auto", ranks,
                ("lockstep", "gloo"), targets, hosts=hosts, bytes_min=64 * KIB, bytes_max=16 * MIB)


PARTS = (
    one_host("arena", "all_reduce, arena, 2 ranks", "all_reduce", (
        Target("arena, up to 1 KiB", 0, 1 * KIB, ratio=1),
        Target("arena, 4 KiB to 32 KiB", 4 * KIB, 32 * KIB, ratio=1.5),
        Target("arena, 64 KiB to 8 MiB", 64 * KIB, 8 * MIB, ratio=2),
        Target("arena, from 16 MiB", 16 * MIB, ratio=4, limit_share=0.8),
    ), systems=("lockstep", *PEERS, "limit")),
    one_host("own", "all_reduce, a user's own tensor, 2 ranks", "all_reduce", (
        Target("own tensor, from 64 KiB", 64 * KIB, ratio=1.2),
    ), memory="own"),
    one_host("crowded", "all_reduce, 4 ranks on 2 cores", "all_reduce", (
        Target("4 ranks on 2 cores", 0, ratio=1),
    ), ranks=4),
    moving("all_gather", "all_gather", ("lockstep", *PEERS)),
    moving("broadcast", "broadcast", ("lockstep", *PEERS)),
    # ProcessGroupGloo has none.
    moving("reduce_scatter", "reduce_scatter", ("lockstep", "openmpi", "mpich")),
    one_host("tcp", "all_reduce, TCP on loopback, 2 ranks", "all_reduce", (
        Target("TCP on loopback", 0, ratio=1),
    ), memory="own", transport="tcp"),
    *(network(hosts, hosts, (
        Target(f"{hosts} hosts at 1 Gbit/s, from 4 MiB", 4 * MIB, line_share=0.95),
    )) for hosts in (2, 3, 4)),
    # Headers and acknowledgements are a twentieth of the payload.
    network(2, 4, (Target("2 hosts × 2 ranks, from 4 MiB", 4 * MIB, over_theory=1.06),)),
)

# What is not an operation over sizes.
FIGURES = ("waiting", "calling", "crowd", "plans")
