"""What bench/ddp measures, part by part. A part gives rows, or figures with their verdicts."""

import math
import statistics
import sys
import time

from ddp_systems import KIND_NAMES, KINDS, MODELS, NAMES, SMALL

MEMORY_OF_GRADIENTS_MAX = 1.1
MEMORY_MODEL = "resnet18"
HOOKS_SHARE_MAX = 0.01
UNUSED_SHARE_MAX = 0.005
UNUSED_MODEL = "resnet18"
FIRST_STEP_EXTRA_MS_MAX = 50
WITHOUT = ("apart", "barrier", "alone")


class Effort:
    """How much is measured."""

    def __init__(self, quick):
        self.rounds = 1 if quick else 5  # in which systems take turns
        self.blocks = 1 if quick else 4  # of a round
        self.starts = 1 if quick else 5
        self.peer_starts = 1 if quick else 2
        self.steps_share = 0.2 if quick else 1
        self.hook_ranks = 1 if quick else 2
        self.hook_blocks = 2 if quick else 12  # of a round
        self.end_steps = 3 if quick else 40

    def steps(self, model):
        return max(1, round(model.steps * self.steps_share))


def percentiles(values):
    values = sorted(values)
    return {"median": statistics.median(values), "p10": values[len(values) // 10],
            "p90": values[-1 - len(values) // 10]}


def by_turns(systems, present, rounds):
    """Nobody always comes after the same one."""
    for turn in range(rounds):
        shift = turn % len(present)
        yield from present[shift:] + present[:shift]


def check_averages(norms):
    """`norms` of the gradients on each rank, which has samples of its own."""
    for kind, norm in norms[0].items():
        others = [x[kind] for x in norms[1:]]
        if kind and not all(math.isclose(norm, x, rel_tol=1e-6) for x in others):
            sys.exit(f"bench/ddp: {KIND_NAMES.get(kind, kind)}: gradients differ over the ranks")
        if not kind and norm in others:
            sys.exit("bench/ddp: gradients are equal without averaging")


class Blocks:
    """Milliseconds per step of every kind of one system, block by block, mean over the ranks."""

    def __init__(self):
        self.about = None
        self.ms = []
        self.exposed_ms = []

    def add(self, ranks):
        self.about = ranks[0][0]
        check_averages([rows[0]["gradient_norms"] for rows in ranks])
        for rows in zip(*(rows[1:] for rows in ranks)):
            # `alone` is told by one rank.
            kinds = rows[0]["ms"]
            self.ms.append({kind: statistics.mean(row["ms"][kind] for row in rows
                                                  if kind in row["ms"]) for kind in kinds})
            if "exposed_ms" in rows[0]:
                self.exposed_ms += [x for row in rows for x in row["exposed_ms"].values()]

    def median(self, kind):
        return statistics.median(block[kind] for block in self.ms)

    def ratio(self, above, below):
        """Of what was measured side by side."""
        return percentiles([block[above] / block[below] for block in self.ms])


def measure_blocks(systems, model, effort, blocks, kinds, ranks=None):
    """`kinds`: of each system that is measured."""
    found = {system: Blocks() for system in kinds}
    for system in by_turns(systems, list(kinds), effort.rounds):
        found[system].add(systems.run(system, "blocks", model, effort.steps(model), blocks,
                                      ",".join(kinds[system]), ranks=ranks))
    sizes = {(x.about["parameters"], x.about["tensors"]) for x in found.values()}
    if len(sizes) > 1:
        sys.exit(f"bench/ddp: {model.name} is not the same model everywhere: {sizes}")
    return found


def efficiency(systems, model, effort):
    """A row for each way to average gradients."""
    kinds = {x: (*KINDS[x], *WITHOUT) for x in systems.present()}
    found = measure_blocks(systems, model, effort, effort.blocks, kinds)
    return [efficiency_row(systems, model, system, kind, blocks)
            for system, blocks in found.items() for kind in KINDS[system]]


def efficiency_row(systems, model, system, kind, found):
    share = found.ratio("apart", kind)
    row = {
        "system": NAMES[system], "kind": kind, "version": found.about["version"],
        "model": model.name, "parameters": found.about["parameters"],
        "batch_per_rank": model.batch, "ranks": systems.ranks, "blocks": len(found.ms),
        "step_ms": found.median(kind), "unsynchronized_ms": found.median("apart"),
        "efficiency": share["median"], "p10": share["p10"], "p90": share["p90"],
        "barrier_ms": found.median("barrier"), "limit": found.ratio("apart", "barrier")["median"],
        "alone_ms": found.median("alone"),
        "speedup_over_one": found.ratio("alone", kind)["median"] * systems.ranks,
    }
    if found.exposed_ms:
        row["exposed_comm_ms"] = statistics.median(found.exposed_ms)
    return row


def efficiency_verdicts(rows):
    for model in MODELS:
        rows_of_model = [row for row in rows if row["model"] == model.name]
        ours = [row for row in rows_of_model if row["kind"] == "ddp"]
        peers = [row for row in rows_of_model if row["kind"] != "ddp"]
        for row in ours:
            found = f"{row['efficiency']:.1%}"
            if peers:
                best = max(peers, key=lambda peer: peer["efficiency"])
                found += f"; best peer {best['efficiency']:.1%} ({KIND_NAMES[best['kind']]})"
            yield verdict(f"efficiency, {model.name}", f"≥ {model.efficiency_min:.0%}", found,
                          row["efficiency"] >= model.efficiency_min)


def verdict(what, target, found, met, **values):
    """`met` None: nothing is asked."""
    said = "" if met is None else "met" if met else "missed"
    return {"what": what, "target": target if said else "", "found": found, "verdict": said,
            **values}


def ranks_text(ranks):
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


def memory(systems, models, effort):
    """Memory of a rank (the kernel's PSS) after some steps, when the allocator has given back what
    is free: what ranks share counts in equal parts for those who share it. Files are left out, as
    LibTorch's code: in how many parts they count depends on what else runs on the host."""
    for model in models:
        for system in systems.present():
            kind = KINDS[system][0]
            (plain, _), (ranks, about) = (systems.memory(system, model, x) for x in ("apart", kind))
            used, used_plain = ([x["Pss_Anon"] + x["Pss_Shmem"] for x in rows]
                                for rows in (ranks, plain))
            extra_mib = max(used) - statistics.mean(used_plain)
            gradients_mib = about["parameters"] * 4 / 2**20
            share = extra_mib / gradients_mib
            asked = system == "lockstep" and model.name == MEMORY_MODEL
            yield verdict(
                f"extra memory of a rank, {model.name}, {NAMES[system]}",
                f"≤ {MEMORY_OF_GRADIENTS_MAX:g} × its gradients",
                f"{extra_mib:.1f} MiB, {share:.2f} × its gradients ({gradients_mib:.1f} MiB)",
                share <= MEMORY_OF_GRADIENTS_MAX if asked else None,
                system=NAMES[system], kind=kind, model=model.name, extra_mib=extra_mib,
                gradients_mib=gradients_mib, ranks=ranks, apart=plain)


def hooks(systems, _, effort):
    """A step of a thousand small parameters with gradients averaged, against one without. A single
    rank has nothing to move: what is left is hooks and checks."""
    for ranks in (1, systems.ranks)[:effort.hook_ranks]:
        kinds = {x: (KINDS[x][0], "apart") for x in systems.present() if x != "gloo"}
        found = measure_blocks(systems, SMALL, effort, effort.hook_blocks, kinds, ranks)
        for system, blocks in found.items():
            kind = KINDS[system][0]
            cost = blocks.ratio(kind, "apart")
            share = cost["median"] - 1
            asked = system == "lockstep" and ranks == 1
            what = "hooks and checks" if ranks == 1 else "hooks, checks and reduction"
            yield verdict(
                f"{what}, {blocks.about['tensors']:,} small parameters, {ranks_text(ranks)}, "
                f"{NAMES[system]}",
                f"< {HOOKS_SHARE_MAX:.0%} of a step",
                f"{share:.2%} ({cost['p10'] - 1:.2%} to {cost['p90'] - 1:.2%}) of "
                f"{blocks.median('apart'):.2f} ms", share < HOOKS_SHARE_MAX if asked else None,
                system=NAMES[system], ranks=ranks, share=share, step_ms=blocks.median(kind),
                unsynchronized_ms=blocks.median("apart"))


def unused(systems, models, effort):
    """Lockstep looks for unused parameters at the end of every backward pass, PyTorch when it is
    asked to. Every parameter of these models is used."""
    jobs = [(SMALL, 1), *((x, systems.ranks) for x in models if x.name == UNUSED_MODEL)]
    for model, ranks in jobs:
        yield end_of_backward(systems, model, effort, ranks)
        if "pytorch" in systems.left_out:
            continue
        kinds = {"pytorch": ("views", "unused")}
        blocks = measure_blocks(systems, model, effort, effort.blocks, kinds)["pytorch"]
        cost = blocks.ratio("unused", "views")
        yield verdict(
            f"find_unused_parameters, {model.name}, {NAMES['pytorch']}", "",
            f"{cost['median'] - 1:.2%} ({cost['p10'] - 1:.2%} to {cost['p90'] - 1:.2%}) of "
            f"{blocks.median('views'):.2f} ms", None, system=NAMES["pytorch"], model=model.name,
            share=cost["median"] - 1)


def end_of_backward(systems, model, effort, ranks):
    """All that happens between the last gradient and the return of backward(), on the rank that
    comes last and so waits for nobody, with buckets so small that hardly anything is left to
    reduce. That is more than the looking for unused parameters: a bound from above."""
    found = systems.run("lockstep", "end", model, effort.end_steps, "small_buckets,apart",
                        ranks=ranks)
    rows = [rows[0] for rows in found]
    last, plain = (statistics.median(min(ms) for ms in zip(*(x["end_ms"][kind] for x in rows)))
                   for kind in ("small_buckets", "apart"))
    step = statistics.median(ms for x in rows for ms in x["step_ms"]["apart"])
    share = (last - plain) / step
    return verdict(
        f"looking for unused parameters, {model.name}, {ranks_text(ranks)}, {NAMES['lockstep']}",
        f"< {UNUSED_SHARE_MAX:.1%} of a step",
        f"at most {share:.3%}: {(last - plain) * 1000:.0f} µs of {step:.2f} ms",
        share < UNUSED_SHARE_MAX, system=NAMES["lockstep"], model=model.name, ranks=ranks,
        share=share, end_ms=last, plain_end_ms=plain, step_ms=step)


def first(systems, models, effort):
    """How much slower the first step is than later ones, and how much of that is there without
    averaging; and when it was done, counted from the start of the job. The slowest rank counts."""
    for model in models:
        for system in systems.present():
            kind = KINDS[system][0]
            starts = effort.starts if system == "lockstep" else effort.peer_starts
            jobs = {"apart": [], kind: []}
            for _ in range(starts):
                for each, found in jobs.items():
                    found.append(first_of_job(systems, system, model, each))
            slower, done = ({each: statistics.median(job[i] for job in found)
                             for each, found in jobs.items()} for i in range(2))
            extra_ms = slower[kind] - slower["apart"]
            yield verdict(
                f"first step, {model.name}, {NAMES[system]}",
                f"≤ {FIRST_STEP_EXTRA_MS_MAX} ms more than without",
                f"{extra_ms:.0f} ms more: {slower[kind]:.0f} ms slower than later ones, without "
                f"{slower['apart']:.0f}; done {done[kind]:.2f} s after the start, without "
                f"{done['apart']:.2f}",
                extra_ms <= FIRST_STEP_EXTRA_MS_MAX if system == "lockstep" else None,
                system=NAMES[system], kind=kind, model=model.name, extra_ms=extra_ms,
                slower_ms=slower[kind], unsynchronized_slower_ms=slower["apart"],
                done_s=done[kind], unsynchronized_done_s=done["apart"])


def first_of_job(systems, system, model, kind):
    began = time.monotonic()
    rows = [rows[0] for rows in systems.run(system, "first", model, kind)]
    return (max(row["first_ms"] - row["later_ms"] for row in rows),
            max(row["first_step_at_s"] for row in rows) - began)


PARTS = {"memory": memory, "hooks": hooks, "unused": unused, "first": first}
