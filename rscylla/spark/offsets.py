"""Where a streaming query is: what Spark keeps in the checkpoint, as JSON. Pure.

``{"v":1,"log":"...","t":...}``: everything before *t* (microseconds since the epoch) of the log with that id was read.
The first offset of a query may also have ``after``: the position of the row to start behind, and ``from``, which says
that nobody was promised the rows at *t*. Two offsets alone say which rows lie between them, whatever the options are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..errors import ConfigError

__all__ = ["VERSION", "Offset"]

VERSION = 1


@attrs.frozen
class Offset:
    """A place in a log. ``promised``: rows after it must not be missed."""

    log: str
    time_us: int
    after: bytes = b""
    promised: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Offset:
        """Return the offset that Spark hands back.

        Raises:
            ConfigError: it is none, or of a version that is not known.
        """
        version = given.get("v") if isinstance(given, Mapping) else None
        if version != VERSION or isinstance(version, bool):
            raise ConfigError(
                f"the checkpoint has an offset of version {version!r}, this rscylla reads version {VERSION}; "
                "use the rscylla that wrote it, or a newer one, or another checkpoint"
            )
        log, time_us, after = given.get("log"), given.get("t"), given.get("after", "")
        position: bytes | None
        try:
            position = bytes.fromhex(after)
        except (ValueError, TypeError):
            position = None
        if not isinstance(log, str) or not isinstance(time_us, int) or isinstance(time_us, bool) or position is None:
            raise ConfigError("the checkpoint's offset is not one of format('scylla-cdc'); use another checkpoint")
        return cls(log, time_us, position, promised=given.get("from") != "earliest")

    def as_json(self) -> dict[str, Any]:
        """Return what Spark keeps: the same text for the same offset."""
        out: dict[str, Any] = {"v": VERSION, "log": self.log, "t": self.time_us}
        if self.after:
            out["after"] = self.after.hex()
        if not self.promised:
            out["from"] = "earliest"
        return out

    def check_of(self, log: str, table: str) -> None:
        """Raise ``ConfigError`` unless this is a place in the log with the id *log*, that of *table*."""
        if self.log != log:
            raise ConfigError(
                f"the checkpoint is of another CDC log than that of {table}: of another table, or the log was dropped "
                "and created again since; start the query with a new checkpoint"
            )
