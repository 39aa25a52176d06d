"""Damaged pages: the compiled decoder raises MalformedData or reads what its twin reads, and stays within the page.

Under AddressSanitizer, as CONTRIBUTING.md describes, a read beyond the page ends the run.
"""

from __future__ import annotations

import contextlib
import os
import random
from typing import Any

import pytest
from fakelog import body_of, log_time, stream_id
from logcells import LAYOUT, T, cells, ints, person

from rscylla import _decoder
from rscylla.cdc.rows.events import EventContext, changes_of
from rscylla.driver.pages import Page, split_rows
from rscylla.errors import MalformedData

compiled: Any = _decoder.compiled("cdc.rows")
if compiled is None:
    pytest.skip("the compiled decoder does not run", allow_module_level=True)

SEEDS = int(os.environ.get("RSCYLLA_CELL_SEEDS", "150"))
SIZES = (0, 1, 3, 4, 15, 16, 17, 127, 128, 255)


def damaged(dice: random.Random) -> bytes:
    """Return a page of some rows, cut short, with other bytes, or with a part of it doubled."""
    rows = [
        cells(
            {
                "cdc$stream_id": stream_id(dice.randrange(3)),
                "cdc$time": log_time(T + dice.randrange(2), 7),
                "cdc$batch_seq_no": n,
                "op": dice.choice([0, 1, 2, 3, 4, 5, 7, 9, -3]),
                "ck": dice.choice([None, 1, 2]),
                "v": dice.choice([None, 5]),
                "w": dice.choice([None, b"", b"text"]),
                "tags": dice.choice([None, ints(1, 2)]),
                "u": dice.choice([None, person("x", 1)]),
                "cdc$end_of_batch": dice.choice([None, b"\x01"]),
            },
            LAYOUT.columns,
        )
        for n in range(dice.randrange(1, 6))
    ]
    body = bytearray(body_of(rows))
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(body))
        match dice.randrange(4):
            case 0:
                body[at] = dice.choice(SIZES)
            case 1:
                del body[at:]
                body += b"\x00"
            case 2:
                body[at:at] = body[at : at + dice.randrange(9)]
            case _:
                body[at : at + 4] = dice.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"])
    return bytes(body)


@pytest.mark.parametrize("part", range(4))
def test_a_damaged_page_is_refused_or_read_as_the_twin_reads_it(part: int) -> None:
    refused = 0
    for seed in range(part, SEEDS, 4):
        body = damaged(random.Random(seed))
        try:
            expected = split_rows(body, 0, len(LAYOUT.columns))
        except ValueError:
            expected = None
        rows: Any = compiled.LogRows()
        try:
            rows.add(Page(LAYOUT.columns, body, 0, None), LAYOUT)
        except MalformedData:
            refused += 1
            continue
        assert expected is not None, f"seed {seed}: the twin refuses the page"
        assert rows.cells == expected, f"seed {seed}"
        rows.sort()
        for index in range(len(LAYOUT.columns)):
            assert len(list(rows.column(index))) == len(expected)
        assert len(rows.changes().delta) <= len(expected)
        for event in changes_of(rows, EventContext(0)):
            for read in (lambda e: e.id, lambda e: e.key, lambda e: e.change.before, lambda e: e.change.after):
                with contextlib.suppress(MalformedData):  # a value that has other bytes than its type
                    read(event)
    assert refused
