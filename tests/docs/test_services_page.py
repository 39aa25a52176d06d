"""docs/services.md names each logger of the library."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_names_the_loggers_of_the_code() -> None:
    files = [path for package in ("rscylla", "cursorstore") for path in (ROOT / package).rglob("*.py")]
    loggers = {name for path in files for name in re.findall(r'getLogger\("([\w.]+)"\)', path.read_text())}
    section = (ROOT / "docs" / "services.md").read_text().split("## Logs\n")[1].split("\n## ")[0]
    sentence = section.split("Its loggers are ")[1].split(". ")[0]
    assert re.findall(r"`([\w.]+)`", sentence) == sorted(loggers)
