"""The position of a streaming query, which Spark stores in the checkpoint as JSON. Pure.

``{"v":1,"log":"...","t":...,"gen":...}``: everything before *t* (microseconds since the epoch) of the log with that id
was read. ``gen`` is the generation of the last rows before *t*, in milliseconds since the epoch, so that an offset is a
cursor. The end of a batch may also have:

    - ``ttl``: the TTL in seconds of rows that are written then, 0 for none, if it is known. The schema no longer shows
      this TTL once the table is altered.
    - ``assumed``: instead, the TTL that such rows are assumed to have, after a start at a time before the table was
      altered.
    - ``since``: while there are rows that had expired then, which is at most a minute after a query from "earliest"
      planned its first batch: no reader expects them.
    - ``seen``: what was seen of the table, see ``LogMark``.

The initial offset of a query has ``from``, how it was chosen, and may have ``ttl``, ``assumed``, or ``seen``, too, and
``after``, the position of the row after which to start. Spark asks for the initial offset again until the first batch
is done, and keeps none of the answers. The end of the first batch therefore has ``begin``, the initial offset that the
batch was planned with. Two offsets alone determine the rows between them, whatever the options are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import attrs

from ...errors import ConfigError
from ...event import SEEN, EventID, LogMark

__all__ = ["VERSION", "Offset"]

VERSION = 1

_NOT_ONE = "the offset in the checkpoint is not from format('scylla-cdc'); use another checkpoint"

_JSON: dict[str, tuple[str, type]] = {
    "log": ("log", str),
    "t": ("time_us", int),
    "gen": ("generation", int),
    "after": ("after", str),
    "from": ("chosen", str),
    "ttl": ("ttl_s", int),
    "assumed": ("assumed_ttl_s", int),
    "since": ("since_us", int),
    "seen": ("seen", str),
}
"""What the members of the JSON are: a field of an offset, and the type of the value."""


@attrs.frozen
class Offset:
    """A position in a log.

    ``chosen``: of an initial offset, how: "earliest", "latest", or "given"; else empty. ``begin``: of the end of a
    query's first batch, the initial offset where that batch starts. ``ttl_s``: None if it is not known;
    ``assumed_ttl_s``: what is then assumed, None for nothing. ``since_us``: rows after this offset that had expired by
    then were never promised; 0 if all are. ``generation``: of the rows right before it, or of the row ``after``.
    """

    log: str
    time_us: int
    generation: int
    after: bytes = b""
    chosen: str = ""
    begin: Offset | None = None
    ttl_s: int | None = None
    since_us: int = 0
    assumed_ttl_s: int | None = None
    seen: str = ""

    @property
    def promised(self) -> bool:
        """Whether rows after it must not be missed; "earliest" means the rows that exist when they are read."""
        return self.chosen != "earliest"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the offset that Spark passes back.

        Raises:
            ConfigError: *given* is not an offset, or has an unknown version.
        """
        version = given.get("v") if isinstance(given, Mapping) else None
        # In Python, true equals 1.
        if version != VERSION or isinstance(version, bool):
            raise ConfigError(
                f"the checkpoint has an offset of version {version!r}, but this rscylla reads version {VERSION}; use "
                "the rscylla that wrote it, a newer one, or another checkpoint"
            )
        found: dict[str, Any] = {field: given[name] for name, (field, _) in _JSON.items() if name in given}
        # Not isinstance: a bool is an int, too.
        if any(type(found[field]) is not type_ for field, type_ in _JSON.values() if field in found):
            raise ConfigError(_NOT_ONE)
        is_of_time = all(found.get(ttl_s, 0) >= 0 for ttl_s in ("ttl_s", "assumed_ttl_s"))
        if not is_of_time or not SEEN.fullmatch(found.get("seen", "")):
            raise ConfigError(_NOT_ONE)
        try:
            found["after"] = bytes.fromhex(found.get("after", ""))
            if "begin" in given:
                found["begin"] = cls.of({"v": VERSION, "log": given["log"], **given["begin"]})
            return cls(**found)
        except (KeyError, ValueError, TypeError) as e:
            raise ConfigError(_NOT_ONE) from e

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for Spark to store: equal for equal offsets."""
        defaults = attrs.fields_dict(type(self))
        out: dict[str, Any] = {"v": VERSION}
        for name, (field, _) in _JSON.items():
            value = getattr(self, field)
            if value != defaults[field].default:
                out[name] = value.hex() if isinstance(value, bytes) else value
        if self.begin is not None:
            begin = self.begin.as_json()
            out["begin"] = {name: value for name, value in begin.items() if name not in ("v", "log")}
        return out

    def cursor(self) -> EventID:
        """Return the offset as a cursor, from which a service can continue."""
        if self.after:
            return EventID.at(self.generation, self.after)
        mark = LogMark(bytes.fromhex(self.log), is_start=bool(self.chosen), ttl_s=self.ttl_s, seen=self.seen)
        return EventID(self.generation, self.time_us, mark=mark)

    def check_of(self, log: str, table: str) -> None:
        """Raise ``ConfigError`` unless this is a position in the log with the id *log*, which is the log of *table*."""
        if self.log != log:
            raise ConfigError(
                f"the checkpoint belongs to a different CDC log than {table}: to another table, or to a log that was "
                "dropped and created again; start the query with a new checkpoint"
            )
