"""The table of what loops.py measured.

usage: table.py < LINES    each line: {"client": .., "joins": true or false, ..} with what loops.py prints

A cell is the median of the rounds; a mean is that of the loops' medians, so that each loop, long or short, counts once.
"""

import json
import statistics
import sys


def table(lines):
    """Lines of Markdown, one for each client that was measured with and without joining."""
    sizes = sorted({line["rows"] for line in lines if "rows" in line}, reverse=True)
    heads = [f"{rows} rows, joined / apart s" for rows in sizes]
    told = ["client", "requests that joined", "mean of loops, joined s", "apart s", "apart / joined", *heads]
    yield row(told)
    yield row(["---"] + ["---:"] * (len(told) - 1))
    for client in dict.fromkeys(line["client"] for line in lines):
        own = [line for line in lines if line["client"] == client]
        seconds = {joins: [median(own, joins, rows) for rows in sizes] for joins in (True, False)}
        if None in seconds[True] + seconds[False]:
            continue
        means = {joins: statistics.mean(each) for joins, each in seconds.items()}
        joined = [line["joined"] for line in own if line["joins"] and "joined" in line]
        cells = [f"{together:.2f} / {apart:.2f}" for together, apart in zip(seconds[True], seconds[False])]
        yield row([
            client, f"{statistics.median(joined):.0f} of {sum(sizes)}", f"{means[True]:.2f}", f"{means[False]:.2f}",
            f"{means[False] / means[True]:.2f}", *cells,
        ])


def median(lines, joins, rows):
    """Seconds of a loop, over the rounds; none, where it was not measured."""
    seconds = [line["seconds"] for line in lines if line["joins"] == joins and line.get("rows") == rows]
    return statistics.median(seconds) if seconds else None


def row(cells):
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(table([json.loads(line) for line in sys.stdin])))
