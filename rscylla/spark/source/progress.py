"""What a streaming query shows of itself: how far it is, and how far it is behind. Pure."""

from __future__ import annotations

from typing import Any

from ..._timeuuid import format_time

__all__ = ["progress_of"]


def progress_of(end_us: int, head_us: int, *, lag_us: int, window_us: int) -> dict[str, Any]:
    """Return what ``latestOffset`` shows of a query whose current batch ends at *end_us*.

    ``watermark``: everything before it was read when the batch is done. ``head``: everything before it can be read.
    ``lag_s``: the time on the slowest node minus the watermark. ``behind_s``: the head minus the watermark.
    ``windows_behind``: the windows in between that are complete.

    >>> progress_of(10_000_000, 25_000_000, lag_us=30_000_000, window_us=10_000_000)["windows_behind"]
    1
    """
    behind_us = max(0, head_us - end_us)
    return {
        "watermark": format_time(end_us),
        "head": format_time(head_us),
        "lag_s": (head_us + lag_us - end_us) / 1e6,
        "behind_s": behind_us / 1e6,
        "windows_behind": (end_us + behind_us) // window_us - end_us // window_us,
    }
