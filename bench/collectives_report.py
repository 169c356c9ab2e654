"""What the figures of bench/collectives come to: rows, verdicts, tables."""

import statistics

from collectives_network import BYTES_PER_S, TCP_SHARE
from collectives_parts import NAMES, PEERS


def size_text(size):
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale and size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size} B"


def three_digits(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def time_text(row):
    """Median (p10 to p90), in the unit that suits the median."""
    scale, unit = (1000, "ms") if row["median_us"] >= 1000 else (1, "µs")
    median, p10, p90 = (three_digits(row[x] / scale) for x in ("median_us", "p10_us", "p90_us"))
    return f"{median} ({p10} to {p90}) {unit}"


def rate_text(gb_per_s):
    if gb_per_s < 0.01:
        return f"{gb_per_s * 1000:.2g} MB/s"
    return f"{gb_per_s:.1f} GB/s" if gb_per_s >= 10 else f"{gb_per_s:.2g} GB/s"


class Samples:
    """Times of all batches of a part, by system, version and size."""

    def __init__(self, part):
        self.part = part
        self.us = {}
        self.sent_bytes = {}
        self.missing = {}  # why a system has no figures

    def add(self, system, ranks):
        """One block: a list of rows per rank. A batch lasts as long as its slowest rank."""
        for rows in zip(*ranks):
            key = system, rows[0]["version"], rows[0]["bytes"]
            batches = zip(*(row["us"] for row in rows))
            self.us.setdefault(key, []).extend(max(batch) for batch in batches)
            # Ranks of one host read the same counter.
            sent = max(row.get("sent_bytes", 0) for row in rows)
            self.sent_bytes.setdefault(key, []).append(sent)

    def rows(self):
        rows = [self.row(key) for key in self.us]
        best_limit = {}  # its versions are ways to store
        for row in rows:
            if row["system"] == "limit":
                best = best_limit.setdefault(row["bytes"], row)
                if row["median_us"] < best["median_us"]:
                    best_limit[row["bytes"]] = row
        return [x for x in rows if x["system"] != "limit" or x is best_limit[x["bytes"]]]

    def row(self, key):
        system, version, size = key
        us = sorted(self.us[key])
        median = statistics.median(us)
        row = {
            "part": self.part.name, "system": system, "version": version,
            "operation": self.part.operation, "memory": self.part.memory,
            "transport": "tcp" if self.part.hosts else self.part.transport,
            "ranks": self.part.ranks, "hosts": self.part.hosts or 1, "bytes": size,
            "median_us": median, "p10_us": us[len(us) // 10], "p90_us": us[-1 - len(us) // 10],
            "gb_per_s": size / median / 1000, "samples": len(us),
        }
        if self.part.hosts:
            row.update(self.over_the_line(size, median, statistics.median(self.sent_bytes[key])))
        return row

    def over_the_line(self, size, median_us, sent_bytes):
        """Each host's line must carry 2 (H - 1) / H of the bytes both ways; nothing can do with
        less, and ranks of one host need no line between them."""
        hosts = self.part.hosts
        theory_bytes = 2 * (hosts - 1) / hosts * size
        return {"line_share": theory_bytes / (median_us / 1e6) / (BYTES_PER_S * TCP_SHARE),
                "sent_bytes": sent_bytes, "theory_bytes": theory_bytes,
                "over_theory": sent_bytes / theory_bytes}


class Comparison:
    """The rows of one part at one size, and what they say about its target."""

    def __init__(self, part, size, rows):
        self.part = part
        self.size = size
        self.by_system = {row["system"]: row for row in rows if row["bytes"] == size}
        ours = self.by_system.get("lockstep")
        peers = [x for name, x in self.by_system.items() if name in PEERS]
        best = min(peers, key=lambda row: row["median_us"]) if peers else None
        limit = self.by_system.get("limit")
        self.best_peer = best and best["system"]
        self.ratio = best["median_us"] / ours["median_us"] if ours and best else None
        self.limit_share = limit["median_us"] / ours["median_us"] if ours and limit else None
        self.target = next((x for x in part.targets if x.bytes_min <= size <= x.bytes_max), None)
        self.ours = ours

    def margins(self):
        """How far each thing asked for is reached: 1 is just enough. None: cannot be said."""
        target = self.target
        if target is None or self.ours is None:
            return [None]
        margins = []
        if target.ratio:
            margins.append(self.ratio and self.ratio / target.ratio)
        if target.limit_share:
            margins.append(self.limit_share and self.limit_share / target.limit_share)
        if target.line_share:
            margins.append(self.ours["line_share"] / target.line_share)
        if target.over_theory:
            margins.append(target.over_theory / self.ours["over_theory"])
        return margins

    def verdict(self):
        margins = self.margins()
        if self.target is None:
            return ""
        if None in margins:
            return "not measured"
        return "met" if min(margins) >= 1 else "missed"

    def finding(self):
        found = []
        if self.ratio:
            found.append(f"{self.ratio:.2f} × {NAMES[self.best_peer]}")
        if self.limit_share and self.target and self.target.limit_share:
            found.append(f"{self.limit_share:.0%} of the limit")
        if self.part.hosts and self.ours:
            found.append(f"{self.ours['line_share']:.1%} of the line")
            found.append(f"bytes {self.ours['over_theory']:.2f} × theory")
        return ", ".join(found)


def comparisons(part, rows):
    return [Comparison(part, size, rows) for size in sorted({row["bytes"] for row in rows})]


def verdicts(part, rows):
    """One for each target: its worst size decides."""
    results = []
    for target in part.targets:
        within = [x for x in comparisons(part, rows) if x.target is target]
        if not within:
            continue
        worst = min(within, key=lambda x: min((m for m in x.margins() if m is not None), default=0))
        judged = {x.verdict() for x in within}
        verdict = next(x for x in ("missed", "not measured", "met") if x in judged)
        results.append({"what": target.what, "target": target.words(),
                        "found": f"at {size_text(worst.size)}: {worst.finding()}",
                        "verdict": verdict})
    return results


def part_table(part, rows):
    """Header and lines of cells: a line per size, a column per system."""
    systems = [x for x in part.systems if any(row["system"] == x for row in rows)]
    header = ["size", *(f"{NAMES[x]}" for x in systems), "Lockstep against the best", "target"]
    lines = []
    for compared in comparisons(part, rows):
        cells = [size_text(compared.size)]
        for system in systems:
            row = compared.by_system.get(system)
            cells.append("" if row is None else
                         f"{time_text(row)}, {rate_text(row['gb_per_s'])}")
        asked = compared.target.words() if compared.target else ""
        cells += [compared.finding(), f"{asked}: {compared.verdict()}" if asked else ""]
        lines.append(cells)
    return header, lines
