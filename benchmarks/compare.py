"""Compares what reading one CDC log costs with rscylla, the plain driver, and Scylla's libraries for other languages.

All read the same log on one embedded server, in turns, each in a process of its own. The figures are the client's CPU
time for each row of the log: medians of the rounds, their spread, and the ratio to the driver, round by round.
``--profile NAME`` profiles one of the readers in Python instead.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
from collections.abc import Sequence
from pathlib import Path

from peers.measure import PURE, Contestant, Cost, Disagreement, compare, in_python
from peers.programs import NoProgram, built, class_path, go, java, rust
from peers.readers import KINDS, READERS
from peers.report import AIMS, aims_of, table_of
from peers.shapes import SHAPES, Log, Shape, fill

import rscylla
from rscylla.embedded import EmbeddedScyllaProcess

HERE = Path(__file__).resolve().parent
RECIPES = {"go": go("reader"), "rust": rust("reader", release=True), "java": java()}
WARM_ROWS = 20_000
"""Rows of the log that is read first, which is not counted."""

PURE_READERS = ("events", "run-scylla", "arrow")
DEFAULT = [*READERS, *(f"{name}{PURE}" for name in PURE_READERS), *RECIPES]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="of the log; about so many")
    parser.add_argument("--rounds", type=int, default=3, help="besides one over a short log, which warms up")
    parser.add_argument("--vnodes", type=int, default=16, help="of the one node; as many streams")
    parser.add_argument("--shapes", nargs="+", default=["wide"], choices=list(SHAPES), metavar="SHAPE")
    parser.add_argument("--kinds", nargs="+", default=[*KINDS, "id"], choices=[*KINDS, "id"], metavar="KIND")
    parser.add_argument(
        "--readers", nargs="+", default=DEFAULT, metavar="NAME", help=f"some of {' '.join(DEFAULT)}; default: all"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to keep the figures")
    parser.add_argument("--profile", choices=list(READERS), metavar="NAME")
    parser.add_argument("--aims", action="store_true", help="only the passes that the aims compare")
    args = parser.parse_args(argv)
    contestants = [] if args.profile else list(filter(None, map(contestant, args.readers)))
    kept: dict[str, object] = {}
    for name in args.shapes:
        with EmbeddedScyllaProcess(vnodes=args.vnodes) as server:
            log = filled(server, SHAPES[name], args.rows)
            warm = filled(server, SHAPES[name], min(args.rows, WARM_ROWS), table=f"{name}_warm")
            if args.profile:
                profile(server, args.profile, log, args.kinds[0])
                continue
            try:
                costs = compare(work_of(contestants, args.kinds, aims=args.aims), log, warm, args.rounds, server)
            except Disagreement as error:
                raise SystemExit(str(error)) from error
        tell(name, log, costs, args.rounds)
        kept[name] = {"rows": log.rows, "costs": [cost.as_json() for cost in costs]}
    if args.json:
        args.json.write_text(json.dumps(kept))


def contestant(name: str) -> Contestant | None:
    """Return the reader; None, said on standard output, if this machine cannot build it."""
    if name in RECIPES:
        try:
            program = built(RECIPES[name], HERE / "peers" / name, HERE / "peers" / "build" / name)
        except NoProgram as error:
            print(f"{name} is left out: {error}")
            return None
        command = ("java", "-cp", class_path(program, "reader"), "Reader") if name == "java" else (str(program),)
        return Contestant(name, command, KINDS, of_changes=False)
    reader = READERS.get(name.removesuffix(PURE))
    if reader is None:
        raise SystemExit(f"there is no reader {name!r}; there are {', '.join(DEFAULT)}")
    return in_python(name, reader.kinds, reader.of_changes)


def work_of(contestants: Sequence[Contestant], kinds: Sequence[str], *, aims: bool) -> list[tuple[Contestant, str]]:
    """Return the passes of a round. *aims*: only those that an aim compares."""
    wanted = {side for aim in AIMS for side in (aim.reader, aim.peer)}
    work = [(who, kind) for kind in kinds for who in contestants if kind in who.kinds]
    return [(who, kind) for who, kind in work if not aims or (who.name, kind) in wanted]


def filled(server: EmbeddedScyllaProcess, shape: Shape, rows: int, *, table: str = "") -> Log:
    session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
    try:
        return fill(session, shape, rows, table=table)
    finally:
        session.cluster.shutdown()


def tell(shape: str, log: Log, costs: list[Cost], rounds: int) -> None:
    decoder = "" if rscylla.__decoder__ == "compiled" else f"; {rscylla.__decoder__} decoder"
    title = (
        f"\n{shape}: {log.rows:,} rows of the log, {log.changes:,} changes, {rounds} rounds{decoder}; load {load()} on "
        f"{os.cpu_count()} cores"
    )
    print(table_of(title, costs))
    print(f"\n{aims_of(costs)}", flush=True)


def load() -> str:
    """Return how many processes wanted a core in the last minutes: how much the figures are worth."""
    return f"{os.getloadavg()[1]:.1f}"


def profile(server: EmbeddedScyllaProcess, name: str, log: Log, kind: str) -> None:
    session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
    reader = READERS[name]
    reader.read(session, log.table, kind)
    profiler = cProfile.Profile()
    profiler.runcall(reader.read, session, log.table, kind)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
    session.cluster.shutdown()


if __name__ == "__main__":
    main()
