"""Reads along a log: scans, readers, shared readers, and spans."""

from .count import RowCounter
from .follow import Follower
from .reader import Reader, Step
from .scan import Limits
from .settings import StreamSettings
from .shared import SharedReaders
from .span import Span, SpanReader, SpanShare, share_of

__all__ = [
    "Follower",
    "Limits",
    "Reader",
    "RowCounter",
    "SharedReaders",
    "Span",
    "SpanReader",
    "SpanShare",
    "Step",
    "StreamSettings",
    "share_of",
]
