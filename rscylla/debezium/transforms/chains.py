"""Chains of transforms as a connector's properties configure them, and Connect's own transforms and predicates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, Self

import attrs

from ...errors import ConfigError
from ..record import Record, RowTopic
from ..settings import flag, options_of, words
from .regex import java_pattern
from .transforms import OPTIONS, ExtractChangedRecordState, ExtractNewRecordState, FlattenColumns, Transform

__all__ = ["RegexRouter", "transforms_of", "unknown_options"]


@attrs.define(eq=False)
class RegexRouter:
    """
    Connect's transform of this name: where *regex* matches the topic of a record as a whole, its first match in the
    topic, which may be shorter, is replaced.

    Args:
        regex, replacement: as Java has them; ``$1`` and ``${name}`` stand for groups.

    Raises:
        ConfigError: the first is no regular expression, or has what is not known here of Java's, or has no group that
            the second one names.
    """

    regex: str
    replacement: str
    _pattern: re.Pattern[str] = attrs.field(init=False)
    _template: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pattern = pattern = java_pattern(self.regex, "regex")
        self._template = _GROUP.sub(lambda found: _template(found, pattern.groups), self.replacement)
        try:
            re.compile(f"(?:{pattern.pattern})|").sub(self._template, "")
        except (re.error, IndexError) as e:
            raise ConfigError(f"replacement is {self.replacement!r}, which {self.regex!r} has no group for") from e

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Return the transform that *options* configure, by the names that follow ``transforms.NAME.``."""
        if missing := [name for name in ("regex", "replacement") if name not in options]:
            raise ConfigError(f"RegexRouter needs {missing[0]}")
        return cls(options["regex"], options["replacement"])

    def __call__(self, record: Record) -> Record:
        if self._pattern.fullmatch(record.topic) is None:
            return record
        topic = self._pattern.sub(self._template, record.topic, count=1)
        return record._replace(topic=RowTopic(topic) if isinstance(record.topic, RowTopic) else topic, shared=None)


_GROUP: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}|(\\$|\$)", re.DOTALL)


def _template(found: re.Match[str], groups: int) -> str:
    """Return a part of a replacement of Java as Python has it."""
    plain, number, name, _ = found.groups()
    if number is not None:
        digits = next((number[:n] for n in range(len(number), 1, -1) if int(number[:n]) <= groups), number[:1])
        return f"\\g<{digits}>{number[len(digits) :]}"
    if name is not None:
        return f"\\g<{name}>"
    if plain is None:
        raise ConfigError("replacement has a $ or \\ that stands for nothing; write \\$ for a dollar sign")
    return "\\\\" if plain == "\\" else plain


def _nothing(_: Record) -> None:
    """``Filter``: drops the records that its predicate holds for."""


# ---------------------------------------------------------------- chains

_CONNECT: Final = "org.apache.kafka.connect.transforms."
_DEBEZIUM: Final = "io.debezium.transforms."
_PACKAGE: Final = "com.scylladb.cdc.debezium.connector.transforms."
_PREDICATES: Final = "org.apache.kafka.connect.transforms.predicates."


def transforms_of(properties: Mapping[str, str]) -> Transform:
    """Return the chain of transforms that *properties* of a connector configure; without any, records stay as they are.

    The chain is for one thread at a time, as its transforms are.

    Raises:
        ConfigError: a transform or predicate has a type that is not known here, or an option that is not possible.
    """
    steps = [_step(properties, name) for name in words(properties.get("transforms", ""))]

    def apply(record: Record) -> Record | None:
        found: Record | None = record.with_shared()
        for step in steps:
            if found is None:
                return None
            found = step(found)
        return found

    return apply


def unknown_options(properties: Mapping[str, str]) -> list[str]:
    """Return the names of properties that follow a transform or predicate, and are no options of it."""
    found = []
    for name in words(properties.get("transforms", "")):
        options = options_of(properties, f"transforms.{name}.")
        kind = _KINDS.get(options.get("type", "").strip())
        if kind is not None:
            found += [f"transforms.{name}.{each}" for each in sorted(options.keys() - kind.options - _OF_ALL)]
    return found


class _Kind(NamedTuple):
    make: Callable[[Mapping[str, str]], Transform]
    options: frozenset[str]


_KINDS: Final[dict[str, _Kind]] = {
    f"{_PACKAGE}ScyllaExtractNewRecordState": _Kind(ExtractNewRecordState.of, OPTIONS | {"cdc.output.format"}),
    f"{_PACKAGE}ScyllaFlattenColumns": _Kind(lambda _: FlattenColumns(), frozenset()),
    f"{_DEBEZIUM}ExtractNewRecordState": _Kind(partial(ExtractNewRecordState.of, open_cells=False), OPTIONS),
    f"{_DEBEZIUM}ExtractChangedRecordState": _Kind(
        ExtractChangedRecordState.of, frozenset(("header.changed.name", "header.unchanged.name"))
    ),
    f"{_CONNECT}Filter": _Kind(lambda _: _nothing, frozenset()),
    f"{_CONNECT}RegexRouter": _Kind(RegexRouter.of, frozenset(("regex", "replacement"))),
}
_OF_ALL: Final = frozenset(("type", "predicate", "negate"))


def _step(properties: Mapping[str, str], name: str) -> Transform:
    options = options_of(properties, f"transforms.{name}.")
    kind = options.pop("type", "").strip()
    predicate = options.pop("predicate", "").strip()
    negate = flag(options.pop("negate", "false").strip(), f"transforms.{name}.negate")
    known = _KINDS.get(kind)
    if known is None:
        raise ConfigError(f"transforms.{name}.type is {kind or 'missing'}; known are {', '.join(_KINDS)}")
    try:
        transform = known.make(options)
    except ConfigError as e:
        is_option = str(e).split(" ", 1)[0] in known.options
        raise ConfigError(f"transforms.{name}{'.' if is_option else ' '}{e}") from e
    if not predicate:
        return transform
    applies = _predicate(properties, predicate)
    return lambda record: transform(record) if applies(record) is not negate else record


def _predicate(properties: Mapping[str, str], name: str) -> Callable[[Record], bool]:
    options = options_of(properties, f"predicates.{name}.")
    kind = options.get("type", "").strip().removeprefix(_PREDICATES)
    if kind == "RecordIsTombstone":
        return lambda record: record.value is None
    if kind == "HasHeaderKey" and (key := options.get("name")):
        return lambda record: any(header.key == key for header in record.headers)
    if kind == "TopicNameMatches" and (text := options.get("pattern")):
        matches = java_pattern(text, f"predicates.{name}.pattern").fullmatch
        return lambda record: matches(record.topic) is not None
    raise ConfigError(
        f"predicates.{name} needs a type of {_PREDICATES}RecordIsTombstone, HasHeaderKey with a name, or "
        "TopicNameMatches with a pattern"
    )
