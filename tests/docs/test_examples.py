"""The examples run as their README says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from render_cells import rendered

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / arguments[0]), *arguments[1:]],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_the_service_bills_every_paid_order_and_stops() -> None:
    log = example("billing_service.py", "--embedded", "--orders", "10").stderr
    assert all(f'billing order {{"id":{order}}}' in log for order in range(10))
    assert "10 orders billed, the cursor is saved" in log


def test_the_service_of_two_lanes_waits_out_the_outage_and_puts_the_bad_order_aside() -> None:
    done = example("service", "--embedded")
    shown = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert shown.pop("ready:") == "ok"
    dead = float(shown['reflex_consumer_dead_lettered_events_count{consumer_name="billing"}'])
    assert dead >= 1, "and more, if fate struck before the cursor moved"
    assert shown['reflex_consumer_dead_lettered_events_count{consumer_name="shipping"}'] == "0.0"
    assert float(shown['rscylla_circuit_breaker_changes_total{breaker="warehouse",to="open"}']) > 0
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    # Now and then the driver says at the end of the process that a thread of its event loop did not.
    messages = [line["message"] for line in lines if not line["logger"].startswith("cassandra")]
    assert {f'parcel {{"id":{number}}} is on its way' for number in range(20)} <= set(messages)
    assert {f'order {{"id":{number}}} is billed' for number in range(20) if number != 13} <= set(messages)
    assert messages[-1] == "stopped with exit code 0"
    billed = [line for line in lines if "is billed" in line["message"]]
    assert {(line["consumer"], line["source"]) for line in billed} == {("billing", "shop.orders")}
    assert all(line["event_id"] for line in billed)


@pytest.mark.slow
def test_members_of_a_group_share_the_slices_and_hand_them_over() -> None:
    lines = example("group_member.py", "--embedded").stdout.splitlines()
    assert lines == [
        "first alone: 64 slices",
        "two members: 32 and 32 slices",
        "second has stopped: 64 slices",
        "100 orders billed",
    ]


def test_the_store_in_a_file_continues_where_it_was(tmp_path: Path) -> None:
    done = example("sqlite_store.py", "--embedded", "--db", str(tmp_path / "cursors.db"))
    assert done.stdout.splitlines() == ['run 1: {"id":1}', 'run 2: {"id":2}']


def test_the_export_writes_one_json_line_a_change() -> None:
    lines = example("export_changes.py", "--embedded").stdout.splitlines()
    changes = [json.loads(line) for line in lines]
    assert sorted(c["key"]["id"] for c in changes) == list(range(10))
    assert {c["operation"] for c in changes} == {"INSERT"}


@pytest.mark.slow
def test_the_fast_lane_and_its_sweep_print_what_they_found() -> None:
    lines = example("fast_and_sweep.py", "--embedded", "--orders", "40").stdout.splitlines()
    found = re.fullmatch(r"(\d+) orders in time, median latency [\d.]+ s; (\d+) late, found by the sweep", lines[-1])
    assert found is not None
    # How many of the held orders are late, or later than the sweep, is a matter of the machine's speed.
    assert int(found[2]) == len(lines) - 1
    assert 1 <= int(found[1]) + int(found[2]) <= 40


@pytest.mark.arrow
def test_the_page_of_orders_in_arrow_is_what_its_script_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("duckdb", "matplotlib", "polars", "pyarrow"):
        pytest.importorskip(library, reason="an extra that is not installed here")
    monkeypatch.chdir(tmp_path)
    assert rendered(EXAMPLES / "orders_analysis.py") == (EXAMPLES.parent / "docs" / "orders-analysis.md").read_text()
    pictures = sorted(path.name for path in tmp_path.glob("*.png"))
    assert pictures == ["orders-analysis-dark.png", "orders-analysis-light.png"]


def test_each_example_is_named_in_their_readme() -> None:
    text = (EXAMPLES / "README.md").read_text()
    examples = [p.name for p in (*EXAMPLES.glob("*.py"), *(main.parent for main in EXAMPLES.glob("*/__main__.py")))]
    assert [name for name in examples if f"`{name}`" not in text] == []
