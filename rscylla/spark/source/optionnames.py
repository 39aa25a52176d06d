"""The names of the options of the data source, and of its sink: which there are, and what other sources call them.

Names are in camelCase and not case-sensitive. Names of other sources that mean the same are accepted. Any other name
is an error that says what to use instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from ...errors import ConfigError

__all__ = [
    "INSTEAD",
    "NAMES",
    "SAME",
    "as_written",
    "known_as",
    "known_options",
    "nearest",
    "of_sink",
    "of_table",
    "renamed",
]

_OF_SINKS = (
    *("contactPoints", "port", "localDc", "consistency", "keyspace", "table", "username", "password"),
    *("passwordEnv", "credentialsFile", "tlsCa", "tlsCert", "tlsKey", "tlsCheckHostname"),
)
_HOW_TO_READ = (
    *("failOnDataLoss", "failOnSchemaChange", "lag", "maxRowsPerTrigger", "maxWindowsPerTrigger", "pageSize"),
    *("parallelism", "streamsPerPartition", "windowSpan"),
)
"""They say how a log is read, and not which rows and columns, so a sink can ignore them."""

_WHAT_IS_READ = ("columns", "decimalAs", "endingPosition", "keepDollar", "mode", "startingPosition", "varintAs")

_NAMES = sorted((*_OF_SINKS, *_HOW_TO_READ, *_WHAT_IS_READ))
NAMES = {name.lower(): name for name in _NAMES}
"""The names of the options as users write them, by their lower-case names."""

_SAME = {
    "contactPoints": "contact_points host hosts nodes spark.cassandra.connection.host",
    "port": "spark.cassandra.connection.port",
    "username": "user spark.cassandra.auth.username",
    "password": "spark.cassandra.auth.password",
    "localDc": "datacenter dc local_dc spark.cassandra.connection.localDC",
    "consistency": "consistencyLevel consistency_level spark.cassandra.input.consistency.level",
    "startingPosition": "startingOffset startingOffsets startingTime startingTimestamp startTime startTimestamp",
    "endingPosition": "endingOffset endingOffsets endingTime endingTimestamp endTime endTimestamp",
    "pageSize": "fetchSize fetch_size page_size spark.cassandra.input.fetch.sizeInRows",
}
SAME = {name.lower(): known for known, names in _SAME.items() for name in names.split()}
"""Names of other sources that mean the same as an option of this one, by their lower-case names."""

_WRITTEN = NAMES | {name.lower(): name for names in _SAME.values() for name in names.split()}
"""How the names of options are written, by their lower-case names, which may be all that Spark passes."""

_TIMES = "use 'startingPosition' and 'endingPosition', which accept times and cursors"
_START = "use 'startingPosition', such as 2026-11-21T10:00:00Z"
_END = "use 'endingPosition', such as 2026-11-21T10:00:00Z"
_NO_FILTERS = f"filters are never pushed into this source: {_TIMES}, and 'columns'"
INSTEAD = {
    # The same name has a plain number of milliseconds elsewhere, which would be seconds here.
    "confidencewindow": "use 'lag', such as 30s",
    "confidencewindowsize": "use 'lag', such as 30s",
    "streamlag": "use 'lag', such as 30s",
    "windowsize": "use 'windowSpan', such as 10s",
    "querytimewindowsize": "use 'windowSpan', such as 10s",
    "maxfilespertrigger": "use 'maxWindowsPerTrigger'",
    "maxbytespertrigger": "use 'maxRowsPerTrigger'",
    "maxoffsetspertrigger": "use 'maxRowsPerTrigger'",
    "minpartitions": "use 'parallelism'",
    "numpartitions": "use 'parallelism'",
    "partitions": "use 'parallelism'",
    "numsplits": "use 'parallelism'",
    "splits": "use 'parallelism'",
    "batchsize": "use 'pageSize'",
    "database": "use 'keyspace'",
    "schema": "use 'keyspace'",
    "dbtable": "use 'keyspace' and 'table'",
    "query": "use 'keyspace' and 'table', and filter the DataFrame",
    "since": _START,
    "from": _START,
    "start": _START,
    "fromtimestamp": _START,
    "until": _END,
    "to": _END,
    "end": _END,
    "totimestamp": _END,
    "startingversion": _TIMES,
    "endingversion": _TIMES,
    "startingoffsetsbytimestamp": _TIMES,
    "endingoffsetsbytimestamp": _TIMES,
    "readchangefeed": "omit it, because this source reads nothing but changes",
    "pushfilters": _NO_FILTERS,
    "pushdown": _NO_FILTERS,
    "pushdownpredicate": _NO_FILTERS,
    "checkpointlocation": 'it belongs to the query: writeStream.option("checkpointLocation", …)',
    "preimage": "the table logs it or not (WITH cdc = {'enabled': true, 'preimage': true}); read cdc_before",
    "postimage": "the table logs it or not (WITH cdc = {'enabled': true, 'postimage': true}); read cdc_after",
    "ssl": "use 'tlsCa', which turns TLS on",
    "spark.cassandra.connection.ssl.enabled": "use 'tlsCa', which turns TLS on",
}
"""What to do instead, for names of other sources that mean something else or have another unit."""

_INSTEAD_IN_SINKS = {
    **{name: INSTEAD[name] for name in ("database", "schema", "dbtable", "checkpointlocation")},
    **{name: INSTEAD[name] for name in ("ssl", "spark.cassandra.connection.ssl.enabled")},
    "query": "use 'keyspace' and 'table'",
    "batchsize": "omit it, because each row is a statement of its own",
}
_OF_READING = "omit it, because a sink does not read"


def known_as(name: str) -> str:
    """Return the lower-case name of the option *name*, which may be what another source calls it.

    >>> known_as("startingTime"), known_as("LAG"), known_as("zzz")
    ('startingposition', 'lag', 'zzz')
    """
    lower = name.lower()
    return SAME.get(lower, lower).lower()


def renamed(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their lower-case names; see ``known_as``.

    Raises:
        ConfigError: an option is given twice, under two names.
    """
    found: dict[str, str] = {}
    written: dict[str, str] = {}
    for name, value in given.items():
        known = known_as(str(name))
        if known in found and written[known] != str(name).lower():
            raise ConfigError(f"options {written[known]!r} and {str(name).lower()!r} mean the same; give one of them")
        found[known], written[known] = str(value), str(name).lower()
    return found


def as_written(given: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the options as users write them, by the lower-case names of ``known_as``.

    >>> as_written({"startingtime": "latest", "Lag": "30s"})
    {'startingposition': 'startingTime', 'lag': 'Lag'}
    """
    return {known_as(name): name if name != name.lower() else _WRITTEN.get(name, name) for name in map(str, given)}


_OF_TABLE = "option."


def of_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of ``CREATE TABLE ... USING``, or None if *given* is not from such a statement.

    Spark passes them among the properties of the table, each as ``option.NAME``. Names are in lower case.
    """
    lower = {str(k).lower(): str(v) for k, v in given.items()}
    if "provider" not in lower:
        return None
    return {k.removeprefix(_OF_TABLE): v for k, v in lower.items() if k.startswith(_OF_TABLE)}


def known_options(options: dict[str, str]) -> dict[str, str]:
    """Return the options, with ``load("keyspace.table")``, or a table of that form, split into keyspace and table."""
    path = options.pop("path", None)
    if path is not None:
        keyspace, dot, table = path.partition(".")
        if not (keyspace and dot and table) or "." in table or "keyspace" in options or "table" in options:
            raise ConfigError(
                "call load() without an argument, or with 'keyspace.table' instead of the options keyspace and table"
            )
        options |= {"keyspace": keyspace, "table": table}
    keyspace, dot, table = options.get("table", "").partition(".")  # no name in CQL contains a dot
    if dot and "keyspace" in options:
        raise ConfigError(
            f"option table is {options['table']!r}, which names a keyspace, and the option keyspace is "
            f"{options['keyspace']!r}; give the name of the table alone"
        )
    if dot and not (keyspace and table and "." not in table):
        raise ConfigError(f"option table is {options['table']!r}; give the name of a table, or keyspace.table")
    if dot:
        options |= {"keyspace": keyspace, "table": table}
    for name in sorted(options.keys() - NAMES.keys()):
        raise ConfigError(f"format('scylla-cdc') has no option {name!r}; {INSTEAD.get(name) or nearest(name, _NAMES)}")
    return options


def of_sink(given: Mapping[str, str]) -> dict[str, str]:
    """Return *given* without the options that only say how a log is read.

    A dictionary of options can thus be for reading and for writing. An option that chooses what is read is an error,
    because it looks as if it chose what is written, and a sink writes all that it gets.

    Raises:
        ConfigError: an option is unknown, given twice, or chooses what is read.
    """
    options, written = renamed(given), as_written(given)
    ignored = {name.lower() for name in _HOW_TO_READ}
    own = {name.lower() for name in _OF_SINKS} | {"path"}
    for name in sorted(options.keys() - own - ignored):
        if name in NAMES:
            raise ConfigError(
                f"a sink writes all that it gets, so it has no option {written[name]!r}; omit it, and write to no view "
                "that has it"
            )
        hint = _INSTEAD_IN_SINKS.get(name) or (_OF_READING if name in INSTEAD else nearest(name, _OF_SINKS))
        raise ConfigError(f"a sink has no option {name!r}; {hint}")
    return {name: value for name, value in given.items() if known_as(str(name)) in own}


def nearest(name: str, known: Sequence[str], kind: str = "options") -> str:
    """Return a hint that names the most similar of *known*, or all of them. *kind*: what they are."""
    by_lower = {n.lower(): n for n in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[near[0]]!r}?" if near else f"known {kind} are {', '.join(known)}"
