"""The examples run as their README says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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


def test_the_export_writes_one_json_line_a_change() -> None:
    lines = example("export_changes.py", "--embedded").stdout.splitlines()
    changes = [json.loads(line) for line in lines]
    assert sorted(c["key"]["id"] for c in changes) == list(range(10))
    assert {c["operation"] for c in changes} == {"INSERT"}


def test_each_example_is_named_in_their_readme() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert [p.name for p in EXAMPLES.glob("*.py") if f"`{p.name}`" not in text] == []
