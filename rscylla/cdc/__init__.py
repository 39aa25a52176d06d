"""The source: reads CDC logs. From what users hold, down; data flows upward from ``log``::

    stream, client   ``NewStream`` and the open stream, which reads ahead in a thread
    lookup           the current row of an event
    window           a whole window for a consumer, as events or as columns
    planned          windows planned one after another, with the cursor of a service
    arrow_windows    ``windows_as_arrow``
    arrow/           rows, changes, and events as Arrow
    read/            one window after another: queries, limits, slices, spans
    rows/            the bytes of pages as rows, changes, and events; their order is made here
    log/             what a log is, and where to read next

The way of an event is ``read.scan`` → ``read.reader`` → ``rows.rows`` → ``rows.events`` → ``client``.
"""

from .arrow_windows import ArrowWindows, windows_as_arrow
from .client import Client
from .planned import PlannedWindow, WindowLoop, WindowOptions
from .stream import GetCursor, NewStream, Stream

__all__ = [
    "ArrowWindows",
    "Client",
    "GetCursor",
    "NewStream",
    "PlannedWindow",
    "Stream",
    "WindowLoop",
    "WindowOptions",
    "windows_as_arrow",
]
