"""The tree of errors: pickling, what is resumable, what is expected."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from rscylla import errors
from rscylla.errors import (
    ConfigError,
    ConnectionFailed,
    CursorConflict,
    CursorExpired,
    CursorRegression,
    DeserializationError,
    EventTypeError,
    FateError,
    FilterError,
    HeadReached,
    InvalidCursor,
    LeaseLost,
    MissingLag,
    NoStreams,
    PublishFailed,
    QueryTimeout,
    RscyllaError,
    RunError,
    SchemaChanged,
    SparkFailed,
    Stopped,
    UnreadableEvent,
    VersionConflict,
    VersionGap,
    is_expected,
    is_resumable,
)

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

SPECIAL: dict[type[RscyllaError], RscyllaError] = {
    MissingLag: MissingLag("shop.orders"),
    CursorExpired: CursorExpired("too old", gap_from=NOON, gap_to=NOON),
    CursorRegression: CursorRegression("lower", consumer="billing", stored="b", given="a"),
    HeadReached: HeadReached(cursor="c"),
    Stopped: Stopped(),
    UnreadableEvent: UnreadableEvent("no such type", type="OrderPaid", schema=3),
    VersionConflict: VersionConflict("behind", expected=3, actual=4),
    VersionGap: VersionGap("missing", expected=3, actual=5),
    RunError: RunError("failed", stage="recv", consumer="billing", event_id="e", event_fid="f", resumable=True),
}


def tree(top: type[RscyllaError]) -> list[type[RscyllaError]]:
    return [top, *(one for child in top.__subclasses__() if child.__module__ == errors.__name__ for one in tree(child))]


CLASSES = sorted(set(tree(RscyllaError)), key=lambda one: one.__name__)


def example(cls: type[RscyllaError]) -> RscyllaError:
    return SPECIAL.get(cls) or cls("what happened; what to do")


def test_the_module_hands_out_the_whole_tree_sorted() -> None:
    public = [cls.__name__ for cls in CLASSES] + ["is_expected", "is_resumable"]
    assert sorted(errors.__all__) == sorted(public)
    assert errors.__all__ == sorted(errors.__all__)


def test_the_docstring_names_every_class() -> None:
    assert errors.__doc__ is not None
    missing = [cls.__name__ for cls in CLASSES if cls.__name__ not in errors.__doc__]
    assert missing == []


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_can_be_pickled_with_all_it_knows(cls: type[RscyllaError], protocol: int) -> None:
    error = example(cls)
    error.add_note("a note")
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is cls
    assert (str(again), again.args, again.__dict__) == (str(error), error.args, error.__dict__)
    assert again.resumable == error.resumable
    assert again.__notes__ == error.__notes__


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_can_be_copied(cls: type[RscyllaError]) -> None:
    error = example(cls)
    for again in (copy.copy(error), copy.deepcopy(error)):
        assert (type(again), again.__dict__) == (cls, error.__dict__)


RESUMABLE = {
    ConnectionFailed,
    CursorConflict,
    DeserializationError,
    EventTypeError,
    FateError,
    FilterError,
    LeaseLost,
    NoStreams,
    PublishFailed,
    QueryTimeout,
    SchemaChanged,
    SparkFailed,
    Stopped,
    VersionConflict,
}


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls is not RunError])
def test_what_is_resumable_is_written_down(cls: type[RscyllaError]) -> None:
    assert is_resumable(example(cls)) == (cls in RESUMABLE)


@pytest.mark.parametrize("resumable", [True, False])
def test_a_run_error_says_itself_whether_it_is_resumable(resumable: bool) -> None:
    error = RunError("failed", stage="recv", consumer="billing", resumable=resumable)
    assert is_resumable(error) == resumable
    assert (error.event_id, error.event_fid) == ("", "")


def test_errors_of_applications_are_resumable_and_interrupts_are_not() -> None:
    assert is_resumable(ValueError())
    assert is_resumable(TimeoutError())
    assert not is_resumable(KeyboardInterrupt())
    assert not is_resumable(SystemExit())


def caused(cause: BaseException | None) -> RunError:
    error = RunError("failed", stage="consume", consumer="billing", resumable=True)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [Stopped(), caused(Stopped()), caused(caused(Stopped()))])
def test_only_a_stop_is_expected(error: BaseException) -> None:
    assert is_expected(error)


@pytest.mark.parametrize(
    "error",
    [HeadReached(), TimeoutError(), QueryTimeout("slow"), KeyboardInterrupt(), caused(TimeoutError()), caused(None)],
)
def test_time_outs_heads_and_interrupts_are_not_expected(error: BaseException) -> None:
    assert not is_expected(error)


def test_wrong_arguments_are_value_errors_too() -> None:
    for cls in (ConfigError, MissingLag, InvalidCursor):
        assert issubclass(cls, ValueError)


def test_a_missing_lag_says_what_to_do() -> None:
    text = str(MissingLag("shop.orders"))
    assert text.startswith("shop.orders has no StreamLag; pass StreamLag(seconds=30) or more, because ")
    assert "\n" not in text


def test_attributes_say_what_happened() -> None:
    expired: Any = SPECIAL[CursorExpired]
    regression: Any = SPECIAL[CursorRegression]
    assert (expired.gap_from, expired.gap_to) == (NOON, NOON)
    assert (regression.consumer, regression.stored, regression.given) == ("billing", "b", "a")
    assert HeadReached(cursor="c").cursor == "c"
