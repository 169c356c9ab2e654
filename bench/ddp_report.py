"""What the figures of bench/ddp come to: tables and the page docs/benchmarks-ddp.md."""

from ddp_figures import efficiency_verdicts
from ddp_systems import KIND_NAMES, NAMES
from machine import machine_text
from tables import as_markdown, verdict_table


def all_verdicts(results):
    return [*efficiency_verdicts(results["rows"]), *(x for x in results["figures"] if x["verdict"])]


def efficiency_table(rows):
    header = ["model (samples per rank)", "", "step", "without averaging",
              "efficiency (p10 to p90)", "barrier alone", "over one rank"]
    lines, last = [], None
    for row in rows:
        model = f"{row['model']} ({row['batch_per_rank']}), {row['parameters']:,} parameters"
        lines.append([
            "" if model == last else model, KIND_NAMES[row["kind"]], f"{row['step_ms']:.2f} ms",
            f"{row['unsynchronized_ms']:.2f} ms",
            f"{row['efficiency']:.1%} ({row['p10']:.1%} to {row['p90']:.1%})",
            f"{row['limit']:.1%}", f"{row['speedup_over_one']:.2f} ×"])
        last = model
    return header, lines


def page(results):
    versions = {row["system"]: row["version"] for row in results["rows"]
                if row["kind"] != "ddp"}
    others = [x for x in results["figures"] if not x["verdict"]]
    lines = [
        "# Benchmarks: training", "",
        f"Written by `{results['command']}` in {results['minutes']:.0f} minutes. What is "
        "measured, and how: the head of `bench/ddp` and `bench/ddp_figures.py`.", "",
        f"Machine: {machine_text(results['machine'])}.",
        f"Versions: Lockstep {results['lockstep']}"
        + "".join(f", {name}: {version}" for name, version in sorted(versions.items())) + ".",
        f"Other processes took {results['others_cores']:.2f} cores meanwhile. "
        f"{results['ranks']} ranks, one thread each, pinned; {results['rounds']} rounds, systems "
        "by turns.", "",
        *(f"Left out: {NAMES[name]}: {why}.\n" for name, why in results["left_out"].items()),
        *(f"Failed: {problem.splitlines()[0]}\n" for problem in results["problems"]),
        "## Targets", "", as_markdown(*verdict_table(all_verdicts(results))), "",
    ]
    if results["rows"]:
        lines += [
            "## Efficiency", "",
            "A step is zero_grad (as it comes: gradients are filled with zeros and stay), forward, "
            "backward, averaging and SGD with momentum. *Efficiency* is the time of a step without "
            "averaging, on all ranks at once, divided by that of one with it; *barrier alone* the "
            "same with a barrier after each step in place of averaging; *over one rank* samples/s "
            "of all ranks against one rank that has the machine to itself.", "",
            as_markdown(*efficiency_table(results["rows"])), ""]
    if others:
        lines += ["## Other figures", "",
                  as_markdown(["what", "found"], [[x["what"], x["found"]] for x in others]), ""]
    return "\n".join(lines)
