"""What a CDC log is, and where to read next.

source      metadata, generations, and clocks of one log; resume: where a cursor goes on in it
same        whether it is still the same log
topology    the generations of a log, and their streams: legacy, vnodes, tablets
walk        where to read next, and how wide a window is (``Width``). Pure
query       windows as CQL; routing: keys by which drivers find the owner of a stream. Pure
lifetimes   when rows expire; blanks: spans of time in which CDC was off. Pure
clocks      the clocks of the nodes
table       the description of a base table and of its log
"""

from .blanks import Blank
from .clocks import NodeClocks
from .lifetimes import NEVER_US, Lifetimes, Promise
from .query import (
    LOG_SUFFIX,
    ScanTask,
    StreamGroup,
    by_replicas,
    first_row_cql,
    group_streams,
    scan_cql,
    scan_values,
    stream_row_cql,
    tasks_for,
    times_cql,
)
from .resume import begin, resume
from .same import check_log, is_altered, naming_dropped_log, reread_table
from .source import OnExpired, Source, streams_of
from .table import (
    FIXED_COLUMNS,
    LOG_DROP_AHEAD_US,
    BaseColumn,
    LoggedTable,
    Table,
    deleted_elements_of,
    deleted_of,
    dropped_columns,
    log_columns,
    logged_tables,
    logged_type,
    read_base_table,
    read_table,
    read_types,
    type_named,
)
from .topology import Generation, Model, Range, Topology, generation_at, topology_for
from .walk import (
    PROBE_FROM_US,
    Action,
    End,
    Gap,
    LogWindow,
    Probe,
    Read,
    Skip,
    Switch,
    Wait,
    Walk,
    Width,
    windows_between,
)

__all__ = [
    "FIXED_COLUMNS",
    "LOG_DROP_AHEAD_US",
    "LOG_SUFFIX",
    "NEVER_US",
    "PROBE_FROM_US",
    "Action",
    "BaseColumn",
    "Blank",
    "End",
    "Gap",
    "Generation",
    "Lifetimes",
    "LogWindow",
    "LoggedTable",
    "Model",
    "NodeClocks",
    "OnExpired",
    "Probe",
    "Promise",
    "Range",
    "Read",
    "ScanTask",
    "Skip",
    "Source",
    "StreamGroup",
    "Switch",
    "Table",
    "Topology",
    "Wait",
    "Walk",
    "Width",
    "begin",
    "by_replicas",
    "check_log",
    "deleted_elements_of",
    "deleted_of",
    "dropped_columns",
    "first_row_cql",
    "generation_at",
    "group_streams",
    "is_altered",
    "log_columns",
    "logged_tables",
    "logged_type",
    "naming_dropped_log",
    "read_base_table",
    "read_table",
    "read_types",
    "reread_table",
    "resume",
    "scan_cql",
    "scan_values",
    "stream_row_cql",
    "streams_of",
    "tasks_for",
    "times_cql",
    "topology_for",
    "type_named",
    "windows_between",
]
