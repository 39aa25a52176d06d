"""What those who read a log batch by batch report: streaming queries, and loops over windows."""

from __future__ import annotations

import attrs

__all__ = ["BatchProgress"]


@attrs.frozen(kw_only=True)
class BatchProgress:
    """A batch that is done. Values that are not known are None."""

    query: str
    """Name of the query, or of the cursor of a loop."""
    batch: str
    """Number of the batch, or name of the window."""
    start_us: int | None = None
    """Where the batch began, in microseconds since the epoch."""
    watermark_us: int | None = None
    """Everything before it was read, microseconds since the epoch."""
    head_us: int | None = None
    """Everything before it could be read when the batch was planned, microseconds since the epoch."""
    rows: int | None = None
    seconds: float | None = None
    """How long the batch took."""
    windows_behind: int | None = None
    """Complete windows between the watermark and the head."""
    generation_us: int | None = None
    """Start of the generation of CDC streams at the end of the batch, in microseconds since the epoch."""
    streams: int | None = None
    """Streams of that generation."""
    splits: int | None = None
    """Partitions of the batch, which executors read in parallel."""
    log_ttl_s: int | None = None
    """How long the log keeps changes, in seconds; 0: forever."""

    @property
    def behind_s(self) -> float | None:
        """The head minus the watermark, in seconds."""
        if self.head_us is None or self.watermark_us is None:
            return None
        return max(0, self.head_us - self.watermark_us) / 1e6
