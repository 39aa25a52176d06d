"""``rscylla deadletter`` on an embedded server: list, show, replay, discard."""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable
from datetime import timedelta

import attrs
import pytest
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import MemoryCursorStore, ScyllaDeadLetters
from rscylla.cli.deadletter import _json_of, _lacking

from .conftest import Ran, Run, Shop

_numbers = itertools.count()


@pytest.fixture
def letters(shop: Shop) -> ScyllaDeadLetters:
    """Letters of the consumer billing about the orders 1 and 3, which it could not handle."""
    letters = ScyllaDeadLetters(shop.session, shop.keyspace, create=True)
    shop.insert(1, 2, 3)

    def refuse(event: rscylla.Event, fate: rscylla.Fate) -> None:
        if event.key["id"] != 2:
            raise ValueError(f"no price for order {event.key['id']}")

    consumer = rscylla.Consumer("billing", refuse, registry=CollectorRegistry())
    quick = rscylla.Backoff(initial=timedelta(microseconds=1), maximum=timedelta(microseconds=1))
    spec = rscylla.Spec(
        rscylla.NewStream(shop.session, shop.keyspace, "orders"),
        MemoryCursorStore(),
        rscylla.dead_letter(consumer, letters, retries=1, backoff=quick),
        rscylla.StreamLag(seconds=0),
        rscylla.StreamToHead(),
    )
    with pytest.raises(rscylla.HeadReached):
        rscylla.run(spec)
    return letters


@pytest.fixture
def deadletter(run: Run, shop: Shop, letters: ScyllaDeadLetters) -> Run:
    def command(action: str, *arguments: str) -> Ran:
        return run("deadletter", action, *arguments, "--store", shop.keyspace, "--host", shop.host)

    return command


def module_with(handle: Callable[..., None]) -> str:
    """Return the name under which a module that has *handle* can be imported."""
    name = f"handlers_of_test_{next(_numbers)}"
    module = types.ModuleType(name)
    module.handle = handle  # type: ignore[attr-defined]
    module.consumer = rscylla.Consumer("billing", handle, registry=CollectorRegistry())  # type: ignore[attr-defined]
    sys.modules[name] = module
    return name


def ids(letters: ScyllaDeadLetters) -> list[str]:
    return [letter.event.id for letter in letters.list_letters("billing")]


def test_list_shows_what_failed_without_values(deadletter: Run, letters: ScyllaDeadLetters) -> None:
    ran = deadletter("list", "--json")
    assert [(o["consumer"], o["key"], o["attempts"], o["error"], o["status"]) for o in ran.objects] == [
        ("billing", '{"id":1}', 2, "ValueError", "dead"),
        ("billing", '{"id":3}', 2, "ValueError", "dead"),
    ]
    assert [o["event_id"] for o in ran.objects] == ids(letters)
    lines = deadletter("list", "billing").out
    assert lines[0].split()[:4] == ["consumer", "event", "failed", "attempts"]
    assert len(lines) == 3
    assert "no price" not in "".join([*lines, *ran.out])
    assert deadletter("list", "nobody", "--json").out == []


def test_list_counts(deadletter: Run) -> None:
    assert deadletter("list", "--count", "--json").objects == [{"consumer": "billing", "dead": 2}]
    assert deadletter("list", "--count").out[1].split() == ["billing", "2"]


def test_show_prints_the_whole_letter(deadletter: Run, letters: ScyllaDeadLetters) -> None:
    event_id = ids(letters)[0]
    whole = deadletter("show", "billing", event_id, "--json").objects[0]
    assert '"after":{"status":"new"' in whole["metadata"]
    assert "no price for order 1" in whole["traceback"]
    text = "\n".join(deadletter("show", "billing", event_id).out)
    assert "ValueError: no price for order 1" in text
    assert event_id in text


def test_show_of_a_missing_letter_fails(deadletter: Run) -> None:
    ran = deadletter("show", "billing", "nothing")
    assert (ran.code, "has no dead letter of this event" in ran.error) == (5, True)


def test_replay_hands_the_kept_events_over_in_order_and_marks_them(deadletter: Run, letters: ScyllaDeadLetters) -> None:
    got: list[tuple[object, object]] = []

    def handle(event: rscylla.Event, fate: rscylla.Fate) -> None:
        fate.tempt()
        assert event.change is not None
        assert event.change.after is not None
        got.append((event.key["id"], event.change.after["status"]))

    ran = deadletter("replay", "billing", "--all", "--to", f"{module_with(handle)}:handle", "--reason", "fixed in 1.2")
    assert (ran.code, ran.err) == (0, ["2 replayed, 0 failed"])
    assert got == [(1, "new"), (3, "new")]
    assert ids(letters) == []
    audits = [letter.audit[0][1] for letter in letters.list_letters(status="replayed")]
    assert audits == ["replayed: fixed in 1.2"] * 2
    assert len(deadletter("list", "--status", "replayed", "--json").objects) == 2
    assert len(deadletter("list", "--status", "all", "--json").objects) == 2


def test_replay_from_the_log_gives_the_change_as_it_was(
    deadletter: Run, letters: ScyllaDeadLetters, shop: Shop
) -> None:
    got: list[rscylla.Event] = []
    name = module_with(lambda event, fate: got.append(event))
    first, last = ids(letters)
    ran = deadletter("replay", "billing", last, "--to", f"{name}:handle", "--of", shop.orders, "--json")
    assert ran.objects == [{"event_id": last, "status": "replayed", "error": None}]
    assert [(event.id, type(event).__name__) for event in got] == [(last, "ChangeEvent")]
    assert ids(letters) == [first]


def test_replay_from_a_log_that_has_it_no_more_says_so(deadletter: Run, letters: ScyllaDeadLetters, shop: Shop) -> None:
    shop.cql(f"CREATE TABLE {shop.keyspace}.other (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    name, dead = module_with(lambda event, fate: None), ids(letters)
    ran = deadletter("replay", "billing", "--all", "--to", f"{name}:handle", "--of", f"{shop.keyspace}.other")
    assert (ran.code, ran.err[-1]) == (1, "0 replayed, 2 failed")
    why = f"the log of {shop.keyspace}.other no longer has the event; omit --of to replay the stored event"
    assert ran.out == [f"dead  {event_id}  {why}" for event_id in dead], "one that is gone keeps no other back"
    assert [(letter.attempts, letter.error) for letter in letters.list_letters()] == [(2, "ValueError")] * 2


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("ALTER TABLE {0} DROP status", "(after.status): the table was altered, or rows expired; omit --of"),
        ("ALTER TABLE {0} RENAME id TO number", "no longer has the event; omit --of"),
    ],
)
def test_replay_from_a_log_that_has_less_than_the_letter_says_so(
    deadletter: Run, letters: ScyllaDeadLetters, shop: Shop, statement: str, why: str
) -> None:
    got: list[rscylla.Event] = []
    name, dead = module_with(lambda event, fate: got.append(event)), ids(letters)
    shop.cql(statement.format(shop.orders))
    ran = deadletter("replay", "billing", "--all", "--to", f"{name}:handle", "--of", shop.orders)
    assert (ran.code, ran.err[-1], got) == (1, "0 replayed, 2 failed", [])
    assert all(why in line for line in ran.out)
    assert "new" not in "".join(ran.out)
    assert [letter.attempts for letter in letters.list_letters()] == [2, 2]
    assert ids(letters) == dead
    assert deadletter("replay", "billing", "--all", "--to", f"{name}:handle").code == 0
    assert all(b'"status":"new"' in event.metadata for event in got)


def test_replay_from_a_log_that_has_more_than_the_letter_is_a_replay(
    deadletter: Run, letters: ScyllaDeadLetters, shop: Shop
) -> None:
    shop.cql(f"ALTER TABLE {shop.orders} ADD extra int")
    name = module_with(lambda event, fate: None)
    assert deadletter("replay", "billing", "--all", "--to", f"{name}:handle", "--of", shop.orders).code == 0
    assert ids(letters) == []


@pytest.mark.parametrize(
    ("before", "now", "lacking"),
    [
        (b"", b"{}", None),
        (b'{"a":1.0,"b":NaN,"c":[1]}', b'{"c":[1],"b":NaN,"a":1.0,"d":2}', None),
        (b'{"a":{"b":{"c":1}}}', b'{"a":{"b":{"d":1}}}', "a.b.c"),
        (b'{"a":{"b":null}}', b'{"a":{}}', None),
        (b'{"a":{"b":1}}', b'{"a":null}', "a"),
        (b'{"changed":["v","w"]}', b'{"changed":["v"]}', "changed"),
        (b"no JSON", b"no JSON", None),
        (b"no JSON", b"{}", ""),
    ],
)
def test_what_an_event_lacks_is_named(before: bytes, now: bytes, lacking: str | None) -> None:
    one, other = (rscylla.SimpleEvent("e", metadata=metadata) for metadata in (before, now))
    assert _lacking(_json_of(one), _json_of(other)) == lacking


@pytest.mark.parametrize("wrap", [rscylla.dead_letter, rscylla.reflex.best_effort])
def test_replay_to_a_consumer_that_finishes_events_later_does_not_mark_failures(
    deadletter: Run, letters: ScyllaDeadLetters, wrap: Callable[..., rscylla.abc.Consumer]
) -> None:
    def handle(event: rscylla.Event, fate: rscylla.Fate) -> None:
        raise LookupError("still no price")

    name, dead = module_with(handle), ids(letters)
    module = sys.modules[name]
    wrapped = wrap(module.consumer, *([letters] if wrap is rscylla.dead_letter else []), retries=0)  # type: ignore[attr-defined]
    module.service = rscylla.concurrent(wrapped)  # type: ignore[attr-defined]
    ran = deadletter("replay", "billing", "--all", "--to", f"{name}:service")
    assert (ran.code, ran.err[-1]) == (1, "0 replayed, 2 failed")
    assert ids(letters) == dead


def test_replay_that_fails_stays_dead_with_the_new_error(deadletter: Run, letters: ScyllaDeadLetters) -> None:
    first, last = ids(letters)

    def handle(event: rscylla.Event, fate: rscylla.Fate) -> None:
        if event.key["id"] == 1:
            raise LookupError("still no price")

    ran = deadletter("replay", "billing", first, last, "--to", f"{module_with(handle)}:consumer")
    assert (ran.code, ran.err[-1]) == (1, "1 replayed, 1 failed")
    assert ran.out == [f"dead  {first}  LookupError", f"replayed  {last}"]
    [letter] = letters.list_letters("billing")
    assert (letter.event.id, letter.attempts, letter.error) == (first, 3, "LookupError")
    assert "still no price" in letter.traceback


def test_replay_of_all_leaves_the_later_letters_of_a_key_whose_first_one_fails_again(
    deadletter: Run, letters: ScyllaDeadLetters
) -> None:
    first, last = letters.list_letters("billing")
    others = [attrs.evolve(first.event, id=f"{n}", timestamp=last.event.timestamp) for n in (4711, 4712)]
    letters.put(attrs.evolve(first, event=others[0]))  # of the same row
    letters.put(attrs.evolve(first, event=attrs.evolve(others[1], foreign_id='{"id":9}'), park="p"))
    letters.put(attrs.evolve(first, park="p"))
    got = []

    def handle(event: rscylla.Event, run: rscylla.Run) -> None:
        got.append(event.id)
        if event.id == first.event.id:
            raise LookupError

    ran = deadletter("replay", "billing", "--all", "--to", f"{module_with(handle)}:handle", "--json")
    assert (ran.code, ran.err[-1], got) == (1, "1 replayed, 3 failed", [first.event.id, last.event.id])
    assert {o["event_id"]: o["error"] for o in ran.objects if o["status"] == "dead"} == {
        first.event.id: "LookupError",
        **dict.fromkeys(("4711", "4712"), "an earlier letter of its key is dead, or is replayed elsewhere"),
    }
    assert {letter.event.id: letter.attempts for letter in letters.list_letters("billing")} == {
        first.event.id: 3,
        "4711": 2,
        "4712": 2,
    }


def test_replay_of_one_letter_does_not_pass_an_earlier_one_of_its_parked_key(
    deadletter: Run, letters: ScyllaDeadLetters
) -> None:
    for letter in letters.list_letters("billing"):
        letters.put(attrs.evolve(letter, park="p"))
    first, last = ids(letters)
    name = module_with(lambda event, run: None)
    ran = deadletter("replay", "billing", last, "--to", f"{name}:handle")
    assert (ran.code, ran.err[-1], ids(letters)) == (1, "0 replayed, 1 failed", [first, last])
    assert deadletter("replay", "billing", last, first, "--to", f"{name}:handle").code == 0
    assert ids(letters) == []


def test_replay_does_not_handle_what_was_resolved_before(deadletter: Run, letters: ScyllaDeadLetters) -> None:
    first, last = letters.list_letters("billing")
    letters.resolve_letter(first, "discarded", reason="known")
    got = []
    name = module_with(lambda event, run: got.append(event.id))
    ran = deadletter("replay", "billing", first.event.id, last.event.id, "--to", f"{name}:handle", "--json")
    assert (ran.code, got) == (0, [last.event.id])
    assert [o["status"] for o in ran.objects] == ["replayed", "discarded"]


def test_a_letter_that_is_being_replayed_is_neither_replayed_nor_discarded(
    deadletter: Run, letters: ScyllaDeadLetters
) -> None:
    first, _ = letters.list_letters("billing")
    letters.claim_letter(first, "another operator")
    name = module_with(lambda event, run: None)
    ran = deadletter("replay", "billing", "--all", "--to", f"{name}:handle")
    assert (ran.code, ran.err[-1]) == (1, "1 replayed, 1 failed")
    ran = deadletter("discard", "billing", first.event.id, "--reason", "test data")
    assert ran.code != 0
    assert "is being replayed or resolved since" in ran.error
    assert ids(letters) == [first.event.id]


def test_the_traceback_of_a_replay_is_bounded_too(deadletter: Run, letters: ScyllaDeadLetters) -> None:
    def handle(event: rscylla.Event, fate: rscylla.Fate) -> None:
        raise LookupError("x" * 100_000)

    assert deadletter("replay", "billing", "--all", "--to", f"{module_with(handle)}:handle").code == 1
    assert [len(letter.traceback) for letter in letters.list_letters()] == [16_000] * 2


@pytest.mark.parametrize("to", ["nothing", "nothing:", "no_such_module_at_all:handle", "json:handle", "json:__name__"])
def test_replay_to_nothing_is_refused(deadletter: Run, letters: ScyllaDeadLetters, to: str) -> None:
    ran = deadletter("replay", "billing", "--all", "--to", to)
    assert (ran.code, f"--to {to}" in ran.error) == (2, True)
    assert len(ids(letters)) == 2


def test_discard_needs_a_reason_and_keeps_it(deadletter: Run, letters: ScyllaDeadLetters) -> None:
    first, last = ids(letters)
    assert deadletter("discard", "billing", first).code == 2
    assert deadletter("discard", "billing", first, "--reason", " ").code == 2
    assert deadletter("discard", "billing", first, "--reason", "test data").out == [f"discarded  {first}"]
    assert ids(letters) == [last]
    assert "discarded: test data" in "\n".join(deadletter("show", "billing", first).out)
    assert deadletter("discard", "billing", "--all", "--reason", "x", "--json").objects == [
        {"event_id": last, "status": "discarded"}
    ]
    assert deadletter("list", "--json").out == []


def test_which_letters_must_be_said(deadletter: Run, letters: ScyllaDeadLetters) -> None:
    for arguments in ((), (ids(letters)[0], "--all")):
        ran = deadletter("discard", "billing", *arguments, "--reason", "x")
        assert (ran.code, "give event ids, or --all" in ran.error) == (2, True)
    assert deadletter("list", "--status", "alive").code == 2


def test_missing_table(run: Run, shop: Shop) -> None:
    ran = run("deadletter", "list", "--store", shop.keyspace, "--host", shop.host)
    assert (ran.code, "no dead letter table" in ran.error) == (4, True)
