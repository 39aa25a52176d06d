"""The comparison of readers runs, and its readers agree about what a log has."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import compare
import pytest
from peers.measure import Cost, Pass
from peers.readers import READERS
from peers.report import aims_of
from peers.shapes import SHAPES, fill

import rscylla
from rscylla.embedded import EmbeddedScylla

ROWS = 200


@pytest.fixture(scope="module")
def session() -> Iterator[rscylla.Session]:
    with EmbeddedScylla(vnodes=4) as scylla:
        yield scylla.connect()


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["images", "collections"])
@pytest.mark.arrow
def test_all_readers_find_the_same_in_a_log(session: rscylla.Session, shape: str) -> None:
    log = fill(session, SHAPES[shape], ROWS)
    assert log.rows == ROWS
    found: dict[tuple[str, bool], dict[str, int]] = {}
    for name, reader in READERS.items():
        if name in ("arrow", "windows") and find_spec("pyarrow") is None:
            continue  # the environment "spark" has it
        for kind in reader.kinds:
            tally = reader.read(session, log.table, kind)
            assert tally.rows == (log.changes if reader.of_changes else log.rows), name
            found.setdefault((kind, reader.of_changes), {})[name] = tally.check
    differing = {work: checks for work, checks in found.items() if len(set(checks.values())) != 1}
    assert differing == {}
    assert all(found["cells", of_changes]["driver" if not of_changes else "run"] for of_changes in (False, True))


@pytest.mark.slow
def test_the_comparison_runs_readers_in_turns_and_names_what_each_cost(capsys: pytest.CaptureFixture[str]) -> None:
    readers = ["driver", "events@pure"]
    compare.main(["--rows", str(ROWS), "--rounds", "1", "--kinds", "count", "--readers", *readers])
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.split()]
    assert [name for name in shown if name in readers] == readers


def test_a_ratio_is_that_of_the_rounds_so_that_a_slow_round_is_slow_for_both() -> None:
    def cost(reader: str, *client_us: float) -> Cost:
        return Cost(reader, "count", tuple(Pass(us, 0.1, 0.5) for us in client_us), 80.0)

    driver, run, events = cost("driver", 4.0, 40.0, 4.4), cost("run-scylla", 1.0, 10.0, 1.1), cost("events", 4, 40, 4.4)
    assert run.ratio_to(driver) == pytest.approx(0.25)
    verdicts = {line[:24].strip(): line.split()[-1] for line in aims_of([driver, run, events]).splitlines()[1:]}
    assert verdicts == {"loop that reads nothing": "met", "events": "MISSED"}
