"""docs/streams.md: its table of limits is that of ``rscylla.Limits``, with its defaults."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

import rscylla

PAGE = Path(__file__).resolve().parents[2] / "docs" / "streams.md"


def shown(value: object) -> str:
    if isinstance(value, rscylla.Backoff):
        return f"{value.initial.total_seconds():g} s to {value.maximum.total_seconds():g} s"
    return str(value)


def test_every_limit_is_documented_with_its_default() -> None:
    section = PAGE.read_text().split("## Limits\n")[1].split("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE)
    limits = rscylla.Limits()
    assert told == [(f.name, shown(getattr(limits, f.name))) for f in attrs.fields(rscylla.Limits)]
