"""The single figures of bench/collectives: waiting, calling, a crowd on one host, making plans."""

import statistics
import time

from collectives_parts import NAMES, PARTS, PEERS
from processes import Failed

WAIT_S, WAIT_QUICK_S = 5, 2
WAIT_SHARE_MAX = 0.05
CALL_US_MAX = 1
CROWD, CROWD_QUICK = 512, 64
CROWD_S_MAX = 30
CROWD_MIB_MAX = 20
PLAN_US_MAX = {64: 1_000, 4096: 50_000}


def figure(what, target, found, met, **values):
    """A row like the verdicts of the parts; `met` None: a peer, which nothing is asked of."""
    verdict = "" if met is None else "met" if met else "missed"
    return {"what": what, "target": target, "found": found, "verdict": verdict, **values}


def waiting(systems, quick):
    """CPU time of a rank that waits for the other one in an all-reduce, as a share of a core."""
    arena = next(part for part in PARTS if part.name == "arena")
    tcp = next(part for part in PARTS if part.name == "tcp")
    wait_s = WAIT_QUICK_S if quick else WAIT_S
    rows = []
    for system, part in (("lockstep", arena), ("lockstep", tcp), *((x, arena) for x in PEERS)):
        if system in systems.left_out:
            continue
        waited = systems.block(system, part, ["--wait-s", str(wait_s)])[1][0]
        share = waited["cpu_s"] / waited["waited_s"]
        ours = system == "lockstep"
        name = NAMES[system] + (f" ({part.name})" if ours else "")
        rows.append(figure(
            f"waiting {wait_s} s, {name}", f"< {WAIT_SHARE_MAX:.0%} of a core" if ours else "",
            f"{share:.1%} of a core", share < WAIT_SHARE_MAX if ours else None,
            system=system, cpu_share=share, waited_s=waited["waited_s"]))
    return rows


def calling(systems, _):
    """From the call to its return; the least of both ranks' medians would hide a slow one."""
    ranks = systems.engine("calling", 2)

    def worst(key):
        return max(row[key] for row in ranks)

    submit_us, blocking_us = worst("submit_us"), worst("blocking_us")
    return [
        figure("calling an operation", f"< {CALL_US_MAX} µs",
               f"{submit_us:.2f} µs until submit returns (a whole blocking all_reduce of 1 KiB: "
               f"{blocking_us:.2f} µs)", submit_us < CALL_US_MAX,
               submit_us=submit_us, blocking_us=blocking_us),
        *(figure(f"allocations of a call, {kind}", "none", f"{worst(kind + '_allocations'):.3g}",
                 # The clock's and the kernel's own work is not in it: one in a thousand is none.
                 worst(f"{kind}_allocations") < 0.001,
                 allocations=worst(f"{kind}_allocations")) for kind in ("blocking", "async")),
    ]


def crowd(systems, quick):
    ranks = CROWD_QUICK if quick else CROWD
    began = time.monotonic()
    rows = systems.engine("crowd", ranks)
    seconds = max(row["done_at_s"] for row in rows) - began
    pss = [row["pss_kib"] / 1024 for row in rows]
    rss = [row["rss_kib"] / 1024 for row in rows]
    return [
        figure(f"{ranks} processes: start, rendezvous, barrier, all_reduce of 1 KiB",
               f"< {CROWD_S_MAX} s", f"{seconds:.1f} s", seconds < CROWD_S_MAX,
               processes=ranks, seconds=seconds),
        figure(f"{ranks} processes: memory of each (PSS)", f"< {CROWD_MIB_MAX} MiB",
               f"{max(pss):.1f} MiB at most, median {statistics.median(pss):.1f} "
               f"(RSS, which counts shared pages in full: {max(rss):.1f} at most)",
               max(pss) < CROWD_MIB_MAX, processes=ranks, pss_mib_max=max(pss),
               rss_mib_max=max(rss)),
    ]


def plans(systems, _):
    made = systems.engine("plans", 1)[0]["plans"]
    rows = []
    for ranks, bound_us in PLAN_US_MAX.items():
        slowest = max((x for x in made if x["ranks"] == ranks), key=lambda x: x["make_us"])
        rows.append(figure(
            f"making a plan, {ranks} ranks", f"< {bound_us // 1000} ms",
            f"{slowest['make_us'] / 1000:.3g} ms ({slowest['operation']}, {slowest['algorithm']}, "
            "the slowest)", slowest["make_us"] < bound_us, plans=[x for x in made
                                                                 if x["ranks"] == ranks]))
    return rows


KINDS = {"waiting": waiting, "calling": calling, "crowd": crowd, "plans": plans}


def measure_figure(systems, name, quick):
    try:
        return KINDS[name](systems, quick)
    except Failed as problem:
        return [figure(name, "", f"failed: {problem}", False)]
