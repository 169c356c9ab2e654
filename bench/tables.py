"""Tables of a benchmark, on screen and on a page of docs/."""


def verdict_table(results):
    return (["what", "target", "found", ""],
            [[x["what"], x["target"], x["found"], x["verdict"]] for x in results])


def as_text(header, lines):
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in [header, *lines])


def as_markdown(header, lines):
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])
