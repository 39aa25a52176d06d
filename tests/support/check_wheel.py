"""Checks the files that the wheel has brought where it is installed: what users need is there, and nothing else."""

from __future__ import annotations

import sys
from importlib.metadata import files

NEEDED = (
    *("rscylla/py.typed", "rscylla/embedded/cql/cql.lark", "pyspark_rscylla.py", "pytest_rscylla.py"),
    *(f"rscylla/service/page/page.{kind}" for kind in ("html", "css", "js")),
)
COMPILED = tuple(f"rscylla/{room}/compiled." for room in ("types", "cdc/rows", "debezium"))
ELSEWHERE = ("tests/", "docs/", "benchmarks/", "examples/")


def faults(names: list[str]) -> list[str]:
    """Return a line for each file that a wheel with the files *names* lacks, or has and should not."""
    lines = [f"{name}: missing" for name in NEEDED if name not in names]
    lines += [f"{start}*: missing" for start in COMPILED if not any(name.startswith(start) for name in names)]
    return lines + [f"{name}: does not belong into a wheel" for name in names if name.startswith(ELSEWHERE)]


if __name__ == "__main__":
    found = faults([file.as_posix() for file in files("rscylla") or ()])
    print(*(found or ["the wheel is complete"]), sep="\n")
    sys.exit(1 if found else 0)
