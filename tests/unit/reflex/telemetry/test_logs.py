"""Log records say which lane they come from, and can be JSON lines."""

from __future__ import annotations

import json
import logging
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from rscylla._timeuuid import datetime_of
from rscylla.errors import HeadReached
from rscylla.event import SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import Consumer, Spec, run
from rscylla.reflex.telemetry.logs import JsonFormatter, LaneFilter, log_context
from rscylla.testing import FakeCursorStore, FakeStream

EVENTS = [SimpleEvent(f"e{number}", timestamp=datetime_of(0)) for number in range(1, 3)]


class Kept(logging.Handler):
    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def logger() -> logging.Logger:
    """A logger of the application, not one of ours."""
    found = logging.Logger("shop.billing")
    found.propagate = False
    return found


class Stream(FakeStream):
    source = "shop.orders"


def consume(fn: Any) -> None:
    consumer = Consumer("billing", fn, registry=CollectorRegistry())
    with pytest.raises(HeadReached):
        run(Spec(Stream(EVENTS), FakeCursorStore(), consumer, StreamToHead()))


def test_records_of_a_lane_carry_consumer_event_and_source(logger: logging.Logger) -> None:
    handler = Kept(logging.Formatter("%(consumer)s|%(event_id)s|%(source)s|%(message)s"))
    handler.addFilter(LaneFilter())
    logger.addHandler(handler)
    logger.warning("before")
    consume(lambda event, fate: logger.warning("billed"))
    logger.warning("after")
    assert handler.lines == [
        "|||before",
        "billing|e1|shop.orders|billed",
        "billing|e2|shop.orders|billed",
        "|||after",
    ]


def test_a_record_as_json(logger: logging.Logger) -> None:
    handler = Kept(JsonFormatter())
    logger.addHandler(handler)

    def fn(event: Any, fate: Any) -> None:
        logger.warning("order %s is ünpaid", 7, extra={"amount": 3, "when": datetime_of(0)})

    consume(fn)
    line = json.loads(handler.lines[0])
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "WARNING",
        "logger": "shop.billing",
        "message": "order 7 is ünpaid",
        "consumer": "billing",
        "event_id": "e1",
        "source": "shop.orders",
        "amount": 3,
        "when": "1970-01-01 00:00:00+00:00",
    }
    assert "\n" not in handler.lines[0]


def test_outside_of_lanes_there_is_nothing_about_them(logger: logging.Logger) -> None:
    handler = Kept(JsonFormatter())
    logger.addHandler(handler)
    logger.error("plain")
    assert set(json.loads(handler.lines[0])) == {"time", "level", "logger", "message"}


@pytest.mark.parametrize("tracebacks", [True, False])
def test_errors_say_what_they_are_and_tracebacks_may_be_left_out(logger: logging.Logger, tracebacks: bool) -> None:
    handler = Kept(JsonFormatter(tracebacks=tracebacks))
    logger.addHandler(handler)
    try:
        raise ValueError("card 4111")
    except ValueError:
        logger.exception("cannot bill")
    line = json.loads(handler.lines[0])
    assert line["error"] == "ValueError"
    assert ("card 4111" in handler.lines[0]) is tracebacks


def test_what_json_cannot_hold_becomes_text_and_the_record_stays(logger: logging.Logger) -> None:
    handler = Kept(JsonFormatter())
    logger.addHandler(handler)
    ring: list[Any] = []
    ring.append(ring)
    logger.warning("billed", extra={"sums": {(1, "EUR"): 2}, "ring": ring})
    line = json.loads(handler.lines[0])
    assert (line["message"], line["sums"], line["ring"]) == ("billed", "{(1, 'EUR'): 2}", "[[...]]")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("inf"), "inf"),
        ([1, float("nan")], "[1, nan]"),
        ({"a": -float("inf")}, "{'a': -inf}"),
        ("half \ud83d", "half \ud83d"),
        ({"\udc80": 1}, {"\udc80": 1}),
        (type("Broken", (), {"__str__": lambda _: 1 / 0})(), "<Broken>"),
    ],
)
def test_each_line_is_json_of_the_standard_and_can_be_written(
    logger: logging.Logger, tmp_path: Path, value: Any, shown: Any
) -> None:
    handler = logging.FileHandler(tmp_path / "log", encoding="utf-8")
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.warning("ünpaid %s", "\udcff", extra={"value": value, "amount": 3})
    handler.close()

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    [text] = (tmp_path / "log").read_text("utf-8").splitlines()
    line = json.loads(text, parse_constant=refuse)
    assert (line["message"], line["value"], line["amount"]) == ("ünpaid \udcff", shown, 3)
    assert "ü" in text


class Broken:
    """Every way to show or to look at it fails."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__

    def __bool__(self) -> bool:
        raise RuntimeError


class BrokenDict(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(
    ("message", "args", "told"),
    [
        ("order %d of %s", (7,), {"message": "order %d of %s", "args": ["7"], "unformatted": "TypeError"}),
        ("order %d", ("x",), {"message": "order %d", "args": ["x"], "unformatted": "TypeError"}),
        ("order %(no)s", ({"id": 7},), {"message": "order %(no)s", "args": ["7"], "unformatted": "KeyError"}),
        ("100%", (1,), {"message": "100%", "args": ["1"], "unformatted": "ValueError"}),
        ("order %s", (Broken(),), {"message": "order %s", "args": ["<Broken>"], "unformatted": "RuntimeError"}),
        (Broken(), (), {"message": "<Broken>", "args": [], "unformatted": "RuntimeError"}),
    ],
    ids=["few", "other", "name", "percent", "argument", "message"],
)
def test_a_message_that_cannot_be_made_is_a_line_that_says_so(
    logger: logging.Logger, message: Any, args: tuple[Any, ...], told: dict[str, Any]
) -> None:
    handler = Kept(JsonFormatter())
    logger.addHandler(handler)
    logger.warning(message, *args)
    line = json.loads(handler.lines[0])
    assert {name: line[name] for name in told} == told
    assert line["level"] == "WARNING"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Broken(), "<Broken>"),
        ({"a": [Broken()]}, {"a": ["<Broken>"]}),
        ({(1, 2): Broken()}, "<dict>"),
        (BrokenDict(a=1), "{'a': 1}"),
    ],
    ids=["object", "inside", "under a key that JSON lacks", "container"],
)
@pytest.mark.parametrize("name", ["value", "consumer", "event_id"])
def test_a_value_that_cannot_be_shown_does_not_lose_the_record(
    logger: logging.Logger, name: str, value: Any, shown: Any
) -> None:
    handler = Kept(JsonFormatter())
    logger.addHandler(handler)
    logger.warning("billed", extra={name: value})
    line = json.loads(handler.lines[0])
    assert (line["message"], line[name]) == ("billed", shown)


def test_an_event_without_an_id_and_an_error_without_a_text_are_logged(logger: logging.Logger) -> None:
    class Unnamed:
        @property
        def id(self) -> str:
            raise ValueError("bytes that are no id")

    handler = Kept(JsonFormatter())
    handler.addFilter(LaneFilter())
    logger.addHandler(handler)

    class Lane:
        consumer, source, event = "billing", "shop.orders", Unnamed()

    with log_context(cast("Any", Lane())):
        try:
            raise type("Untold", (Exception,), {"__str__": lambda _: 1 / 0})
        except Exception:
            logger.exception("cannot bill")
    line = json.loads(handler.lines[0])
    assert (line["consumer"], line["event_id"], line["error"]) == ("billing", "<Unnamed>", "Untold")
    assert "Untold" in line["traceback"]


def test_a_time_that_no_calendar_has_and_the_stack_stay_in_the_line(logger: logging.Logger) -> None:
    handler = Kept(JsonFormatter())
    record = logging.makeLogRecord({"created": float("inf"), "msg": "billed"})
    assert json.loads(handler.format(record))["time"] == "<float>"
    logger.addHandler(handler)
    logger.warning("here", stack_info=True)
    assert "test_logs.py" in json.loads(handler.lines[0])["stack"]


def test_a_line_has_nothing_that_a_terminal_obeys(logger: logging.Logger) -> None:
    handler = Kept(JsonFormatter())
    logger.addHandler(handler)
    bad = "\x1b[2J\x9b1A\x7f\u202e\u2028\rover\nline"
    logger.warning("it is %s", bad, extra={"more": bad})
    (line,) = handler.lines
    assert line.isprintable()
    assert json.loads(line)["message"] == f"it is {bad}"
    assert json.loads(line)["more"] == bad


def test_a_record_keeps_what_it_was_given(logger: logging.Logger) -> None:
    handler = Kept(JsonFormatter())
    logger.addHandler(handler)
    consume(lambda event, fate: logger.warning("copied", extra={"consumer": "other", "event_id": "x"}))
    line = json.loads(handler.lines[0])
    assert (line["consumer"], line["event_id"], line["source"]) == ("other", "x", "shop.orders")


def test_a_filter_keeps_the_lane_for_handlers_in_other_threads(logger: logging.Logger) -> None:
    queue: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = QueueHandler(queue)
    handler.addFilter(LaneFilter())
    logger.addHandler(handler)
    consume(lambda event, fate: logger.warning("billed"))
    record = queue.get()
    assert json.loads(JsonFormatter().format(record))["event_id"] == "e1"


def test_the_library_s_own_records_carry_it_too(caplog: pytest.LogCaptureFixture) -> None:
    handler = Kept(JsonFormatter())
    ours = logging.getLogger("rscylla.reflex")
    ours.addHandler(handler)
    try:
        consume(lambda event, fate: ours.warning("from inside"))
    finally:
        ours.removeHandler(handler)
    assert json.loads(handler.lines[0])["consumer"] == "billing"
