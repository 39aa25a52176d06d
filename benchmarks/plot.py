"""Draws what compare.py keeps with --json: for each shape of table an SVG with the CPU time that each reader takes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from peers.measure import Cost

COLOURS = {"count": "#9ecae1", "key": "#4292c6", "cells": "#08519c", "id": "#a1a1a1"}
LABELS = {"count": "no cell read", "key": "key read", "cells": "every cell read", "id": "event id read"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path)
    parser.add_argument("directory", type=Path, help="where to put readers-SHAPE.svg")
    args = parser.parse_args()
    for shape, found in json.loads(args.figures.read_text()).items():
        costs = [Cost.of_json(fields) for fields in found["costs"]]
        draw(f"{shape}: client CPU, µs per log row", costs, args.directory / f"readers-{shape}.svg")


def draw(title: str, costs: list[Cost], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "rscylla", "font.size": 9})
    from matplotlib import pyplot as plt

    dearest = {reader: max(c.client_us[0] for c in costs if c.reader == reader) for reader in {c.reader for c in costs}}
    readers = sorted(dearest, key=lambda reader: -dearest[reader])
    kinds = [kind for kind in COLOURS if any(c.kind == kind for c in costs)]
    height = 0.8 / len(kinds)
    figure, axes = plt.subplots(figsize=(7, 0.8 + 0.14 * len(readers) * (1 + len(kinds))), layout="constrained")
    for number, kind in enumerate(kinds):
        bars = {c.reader: c.client_us for c in costs if c.kind == kind}
        middles = [middle for middle, _, _ in bars.values()]
        places = [readers.index(reader) + (number - (len(kinds) - 1) / 2) * height for reader in bars]
        spread = [[m - least for m, least, _ in bars.values()], [most - m for m, _, most in bars.values()]]
        axes.barh(places, middles, height, xerr=spread, color=COLOURS[kind], label=LABELS[kind])
    axes.set_yticks(range(len(readers)), readers)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left")
    axes.legend(frameon=False, loc="upper right")  # the cheapest are on top
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
