"""The source: reads CDC logs. Its modules, from the public ones down; data flows upward from ``topology``::

stream, client              ``NewStream`` and the open stream, which reads ahead in a thread
settings                    how a stream reads: the keyword arguments of ``NewStream``
reader, span                the windows of a log one after another; a closed span of time, for Spark
follow                      the walk along a log that is still written
batches                     a log as Arrow record batches, for Spark
records, changes, columns   the rows of a window as records, events, and typed changes
rows                        the bytes of a page as log rows
scan                        concurrent queries of a window, with limits and retries
source                      metadata, generations, and clocks of one log; where a cursor lies in them
lifetimes                   when rows expire
slices                      the streams and rows of one slice of a table
query                       windows as CQL
walk                        where to read next, and how far
topology                    the generations of a log, and their streams
clocks                      the clocks of the nodes
table                       the description of a base table and of its log
driver, pages               the doors to ``cassandra``: sessions and queries, undecoded pages

lookup                      the current row of an event
doctor, checkup             findings about a table's log, and the queries for their facts
"""

from .arrow_windows import ArrowRows, ArrowWindows, windows_as_arrow
from .client import Client
from .planned import PlannedWindow, WindowLoop, WindowPlan
from .stream import GetCursor, NewStream, Stream

__all__ = [
    "ArrowRows",
    "ArrowWindows",
    "Client",
    "GetCursor",
    "NewStream",
    "PlannedWindow",
    "Stream",
    "WindowLoop",
    "WindowPlan",
    "windows_as_arrow",
]
