"""A read that ``windows`` planned in the driver: one option of the data source, which has nothing left to plan.

The option is a pickle. Whoever may write SQL may write it, too, so it can only have values of the classes of a plan.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from pyspark.sql.types import StructType

from ...cdc.read import Span, SpanShare
from ...errors import ConfigError
from .reading import SpanRead

__all__ = ["HandedRead"]

_OPTION = "handedread"

_OF_PLANS = ("rscylla.cdc.log.", "rscylla.cdc.read.span", "rscylla.spark.source.", "rscylla.types.")


@attrs.frozen
class HandedRead:
    """How the executors read, and the spans that they read. The schema of ``read`` is JSON."""

    read: SpanRead
    spans: tuple[Span | SpanShare, ...]

    @classmethod
    def of(cls, read: SpanRead, spans: Sequence[Span | SpanShare]) -> HandedRead:
        return cls(attrs.evolve(read, schema=read.schema.json()), tuple(spans))

    def options(self) -> dict[str, str]:
        """Return the options of the data source for this read. The password is one of its own, which Spark hides."""
        connection = self.read.connection
        secret = {} if connection.password is None else {"password": connection.password}
        read = attrs.evolve(self.read, connection=attrs.evolve(connection, password=None))
        return {**secret, _OPTION: base64.b64encode(pickle.dumps(attrs.evolve(self, read=read))).decode()}

    @classmethod
    def given(cls, options: Mapping[str, str]) -> HandedRead | None:
        """Return the read that *options* hand over, or None.

        Raises:
            ConfigError: the option is not what ``windows`` wrote.
        """
        lower = {name.lower(): value for name, value in options.items()}
        if _OPTION not in lower:
            return None
        try:
            found = _Unpickler(io.BytesIO(base64.b64decode(lower[_OPTION]))).load()
        except Exception as e:  # a pickle may raise anything
            raise ConfigError(f"option {_OPTION} is for windows() alone; omit it") from e
        if not isinstance(found, cls):
            raise ConfigError(f"option {_OPTION} is for windows() alone; omit it")
        connection = attrs.evolve(found.read.connection, password=lower.get("password"))
        return attrs.evolve(found, read=attrs.evolve(found.read, connection=connection))

    @property
    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.read.schema))


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.startswith(_OF_PLANS) or module == "uuid" else None
        if isinstance(found, type) and found.__module__ == module:
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a plan")
