"""Reads along a log, one window after another.

reader         one window a step: rows of all streams, in order; the watermark
follow         asks the walk for the next step of a log that is still written
drive          takes the steps of a walk for all of them: what is too much to read at once is read as narrower windows
scan           concurrent queries of a window, page by page, with retries; ``Limits`` of their rows and bytes
settings       how a stream reads: the keyword arguments of ``NewStream``
slices         which streams and rows a slice of a table has
shared, feed   slices that are open in one process, read together; merge_policy: when. Pure
span, count    a closed span of time, and how far a number of rows reaches, for distributed jobs
"""

from .count import RowCounter
from .follow import Follower
from .reader import Reader, Step
from .scan import Limits
from .settings import StreamSettings
from .shared import SharedReaders
from .span import Span, SpanReader

__all__ = [
    "Follower",
    "Limits",
    "Reader",
    "RowCounter",
    "SharedReaders",
    "Span",
    "SpanReader",
    "Step",
    "StreamSettings",
]
