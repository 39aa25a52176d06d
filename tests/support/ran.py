"""Checks that the reports of all environments leave out no test: usage: ran.py REPORTS [--may-skip DIRECTORY ...].

REPORTS holds pytest's JUnit reports. Fails when a test file was collected in none of them, or a test was skipped in
each that has it. Tests under a --may-skip directory may be skipped everywhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET


def left_out(files: Iterable[str], reports: Iterable[Path], may_skip: Sequence[str]) -> list[str]:
    """Return a line for each of the test *files* that no report has, and for each test that all of them skipped."""
    files = list(files)
    # By module, because the file of a test that a class inherits is that of its base class.
    modules = {".".join(Path(file).with_suffix("").parts): file for file in files}
    collected: set[str] = set()
    skipped: dict[tuple[str, str], str] = {}
    ran: set[tuple[str, str]] = set()
    for report in reports:
        for case in ET.parse(report).iter("testcase"):
            classname, name = case.get("classname", ""), case.get("name", "")
            parts = (classname or name).split(".")
            module = next((m for n in range(len(parts), 0, -1) if (m := ".".join(parts[:n])) in modules), "")
            file, classes = modules.get(module, ""), classname.removeprefix(module).strip(".").split(".")
            # A module that skips itself is one case of its own name; it ran if any of its tests did elsewhere.
            test = file, "" if name == module else "::".join(filter(None, [*classes, name]))
            collected.add(file)
            skip = case.find("skipped")
            if skip is None or skip.get("type") == "pytest.xfail":
                ran |= {test, (file, "")}
            else:
                skipped[test] = skip.text or skip.get("message", "")
    lines = [f"{file}: collected in no environment" for file in sorted(set(files) - collected)]
    for test, reason in sorted(skipped.items()):
        if test not in ran and not test[0].startswith(tuple(f"{directory}/" for directory in may_skip)):
            lines.append(f"{'::'.join(filter(None, test))}: skipped in each environment that has it: {reason}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that the reports of all environments leave out no test.")
    parser.add_argument("reports", type=Path)
    parser.add_argument("--may-skip", nargs="*", default=[], metavar="DIRECTORY")
    given = parser.parse_args()
    reports = sorted(given.reports.glob("*.xml"))
    root = Path(__file__).resolve().parents[2]
    files = [str(file.relative_to(root)) for file in (root / "tests").rglob("test_*.py")]
    lines = left_out(files, reports, given.may_skip)
    print(*lines, sep="\n", end="\n" if lines else "")
    print(
        f"{len(files)} test files, {len(lines)} left out, in {', '.join(report.stem for report in reports) or 'none'}"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
