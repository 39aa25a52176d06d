"""The contract suite of dead letters: the required behavior of each ``DeadLetters``, as a test class to subclass."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import cast

import attrs
import pytest

from rscylla._letters import DEAD, DISCARDED, REPLAYED, DeadLetter, KeptEvent
from rscylla.abc import DeadLetterAdmin, DeadLetters
from rscylla.errors import ConfigError, LetterClaimed
from rscylla.event import EventID

__all__ = ["DeadLettersContract"]

_AT = datetime(2026, 11, 21, 10, 0, 5, 250_001, tzinfo=UTC)
_FAILED = datetime(2026, 11, 22, 8, 30, 0, 1, tzinfo=UTC)
_STREAM = bytes.fromhex("ced00000000000009663c8dc500005a1")
_US = timedelta(microseconds=1)


def _event(at: datetime = _AT, seq: int = 0) -> KeptEvent:
    ticks = (at - datetime(1970, 1, 1, tzinfo=UTC)) // _US * 10 + 122_192_928_000_000_000
    head = (ticks & 0xFFFFFFFF) << 32 | (ticks >> 32 & 0xFFFF) << 16 | 0x1000 | ticks >> 48
    event_id = EventID.row(1_795_251_600_000, _STREAM, head.to_bytes(8, "big") + b"\x80" * 8, seq)
    return KeptEvent(
        str(event_id),
        2,
        '{"pk":"naïve \\u0000"}',
        at,
        '{"operation":"INSERT","key":{"pk":"naïve"}}'.encode(),
        b"\x00\xff",
        late=True,
    )


class DeadLettersContract:
    """The contract of ``DeadLetters`` and ``DeadLetterAdmin``. Each ``open_letters`` simulates a process."""

    def open_letters(self) -> DeadLetters:
        """Return a new object over the shared data of the test."""
        raise NotImplementedError("a contract suite needs open_letters(), which returns the dead letters to test")

    @pytest.fixture
    def letters(self) -> DeadLetters:
        return self.open_letters()

    @pytest.fixture
    def consumer(self) -> str:
        return f"contract-{uuid.uuid4()}"

    def admin(self) -> DeadLetterAdmin:
        """Return the dead letters as an operator sees them."""
        return cast("DeadLetterAdmin", self.open_letters())

    def letter(self, consumer: str, event: KeptEvent | None = None) -> DeadLetter:
        return DeadLetter(consumer, event or _event(), 4, "app.Wrong", "Traceback ...\nWrong: 7", _FAILED)

    def test_a_letter_is_kept_whole(self, letters: DeadLetters, consumer: str) -> None:
        letter = self.letter(consumer)
        letters.put(letter)
        assert list(self.admin().list_letters(consumer)) == [letter]
        assert self.admin().find_letter(consumer, letter.event.id) == letter

    def test_a_letter_of_another_kind_of_stream_is_found_too(self, letters: DeadLetters, consumer: str) -> None:
        letter = self.letter(consumer, KeptEvent("4711", 0, "", _AT))
        letters.put(letter)
        assert self.admin().find_letter(consumer, "4711") == letter
        self.admin().resolve_letter(letter, DISCARDED, reason="known")
        found = self.admin().find_letter(consumer, "4711")
        assert found is not None
        assert found.status == DISCARDED

    def test_a_letter_that_was_never_put_cannot_be_resolved_into_one(self, letters: DeadLetters, consumer: str) -> None:
        admin = self.admin()
        admin.resolve_letter(self.letter(consumer), DISCARDED, reason="by mistake")
        assert list(admin.list_letters(consumer, status=None)) == []
        assert admin.find_letter(consumer, _event().id) is None
        assert dict(admin.count_letters(consumer)) == {}

    def test_broken_text_in_an_error_and_types_of_any_size_are_kept(self, letters: DeadLetters, consumer: str) -> None:
        event = attrs.evolve(_event(), type=2**40)
        letter = DeadLetter.of(consumer, event, ValueError("half of \ud83d"), attempts=1, failed_at=_FAILED)
        letters.put(letter)
        found = self.admin().find_letter(consumer, event.id)
        assert found == letter
        assert "half of \\ud83d" in found.traceback

    def test_consumers_do_not_share_letters(self, letters: DeadLetters, consumer: str) -> None:
        letters.put(self.letter(consumer))
        admin = self.admin()
        assert list(admin.list_letters(f"{consumer}-2")) == []
        assert admin.find_letter(f"{consumer}-2", _event().id) is None
        assert admin.find_letter(consumer, _event(seq=1).id) is None
        assert admin.find_letter(consumer, "4711") is None

    def test_letters_are_listed_by_consumer_and_time_of_the_event(self, letters: DeadLetters, consumer: str) -> None:
        events = [_event(_AT + timedelta(hours=9) * n) for n in range(4)]
        for name in (f"{consumer}-b", f"{consumer}-a"):
            for event in reversed(events):
                letters.put(self.letter(name, event))
        found = [(one.consumer, one.event.id) for one in self.admin().list_letters() if consumer in one.consumer]
        assert found == [(f"{consumer}-{which}", event.id) for which in "ab" for event in events]

    def test_the_same_event_again_replaces_its_letter(self, letters: DeadLetters, consumer: str) -> None:
        letters.put(self.letter(consumer))
        again = attrs.evolve(self.letter(consumer), attempts=1, error="app.Other", failed_at=_FAILED + _US)
        letters.put(again)
        assert list(self.admin().list_letters(consumer)) == [again]

    def test_tries_are_kept_over_restarts_by_consumer_and_event(self, letters: DeadLetters, consumer: str) -> None:
        assert letters.tries(consumer, _event()) == 0
        letters.set_tries(consumer, _event(), 1)
        letters.set_tries(consumer, _event(), 2)
        later = self.open_letters()
        assert later.tries(consumer, _event()) == 2
        assert later.tries(consumer, _event(seq=1)) == 0
        assert later.tries(f"{consumer}-2", _event()) == 0

    def test_tries_can_be_deleted(self, letters: DeadLetters, consumer: str) -> None:
        letters.set_tries(consumer, _event(), 0)
        letters.set_tries(consumer, _event(), 2)
        letters.set_tries(consumer, _event(), 0)
        assert self.open_letters().tries(consumer, _event()) == 0

    def test_an_event_with_tries_only_is_not_a_letter(self, letters: DeadLetters, consumer: str) -> None:
        letters.set_tries(consumer, _event(), 2)
        admin = self.admin()
        assert list(admin.list_letters(consumer, status=None)) == []
        assert admin.find_letter(consumer, _event().id) is None
        assert dict(admin.count_letters(consumer)) == {}

    def test_tries_of_a_letter_neither_hide_nor_change_it(self, letters: DeadLetters, consumer: str) -> None:
        letters.set_tries(consumer, _event(), 3)
        letters.put(self.letter(consumer))
        letters.set_tries(consumer, _event(), 0)
        assert list(self.admin().list_letters(consumer)) == [self.letter(consumer)]

    @pytest.mark.parametrize("status", [REPLAYED, DISCARDED])
    def test_a_resolved_letter_is_no_longer_dead_and_has_the_reason(
        self, letters: DeadLetters, consumer: str, status: str
    ) -> None:
        letters.put(self.letter(consumer))
        self.admin().resolve_letter(self.letter(consumer), status, reason="fixed in 1.2")
        admin = self.admin()
        assert list(admin.list_letters(consumer)) == []
        [found] = admin.list_letters(consumer, status=status)
        assert attrs.evolve(found, status=DEAD, audit=()) == self.letter(consumer)
        [(when, what)] = found.audit
        assert (when[:4].isdigit(), what) == (True, f"{status}: fixed in 1.2")

    def test_a_letter_that_comes_back_is_dead_again_and_keeps_its_audit(
        self, letters: DeadLetters, consumer: str
    ) -> None:
        letters.put(self.letter(consumer))
        self.admin().resolve_letter(self.letter(consumer), REPLAYED, reason="one")
        letters.put(self.letter(consumer))
        self.admin().resolve_letter(self.letter(consumer), DISCARDED, reason="two")
        found = self.admin().find_letter(consumer, _event().id)
        assert found is not None
        assert (found.status, [what for _, what in found.audit]) == (DISCARDED, ["replayed: one", "discarded: two"])
        letters.put(found)
        [found] = self.admin().list_letters(consumer)
        assert [what for _, what in found.audit] == ["replayed: one", "discarded: two"]

    def test_dead_letters_are_counted_by_consumer(self, letters: DeadLetters, consumer: str) -> None:
        for n in range(3):
            letters.put(self.letter(consumer, _event(seq=n)))
        letters.put(self.letter(f"{consumer}-2"))
        self.admin().resolve_letter(self.letter(consumer), DISCARDED, reason="known")
        counts = self.admin().count_letters()
        assert (counts[consumer], counts[f"{consumer}-2"]) == (2, 1)
        assert dict(self.admin().count_letters(consumer)) == {consumer: 2}
        letters.put(self.letter(consumer, _event(_AT + timedelta(days=2))))
        assert dict(self.admin().count_letters(consumer)) == {consumer: 3}, "over all days"

    def test_a_consumer_that_is_named_like_a_slice_of_another_shares_no_letters_with_it(
        self, letters: DeadLetters, consumer: str
    ) -> None:
        names = [consumer, f"{consumer}[0/2]", f"{consumer}[fast]", f"{consumer}[x]"]
        for name in names:
            letters.put(self.letter(name))
        admin = self.admin()
        for name in names:
            assert [one.consumer for one in admin.list_letters(name)] == [name]
            assert dict(admin.count_letters(name)) == {name: 1}
        admin.resolve_letter(self.letter(consumer), DISCARDED, reason="known")
        assert admin.find_letter(f"{consumer}[0/2]", _event().id) == self.letter(f"{consumer}[0/2]")

    def test_letters_of_one_write_are_listed_as_their_events_came(self, letters: DeadLetters, consumer: str) -> None:
        events = [*(_event(seq=seq) for seq in range(12)), _event(_AT + _US)]
        for event in reversed(events):
            letters.put(self.letter(consumer, event))
        assert [one.event.id for one in self.admin().list_letters(consumer)] == [event.id for event in events]

    def test_the_mark_of_a_parked_key_is_kept(self, letters: DeadLetters, consumer: str) -> None:
        letter = attrs.evolve(self.letter(consumer), park="5d41402abc4b2a76")
        letters.put(letter)
        assert list(self.admin().list_letters(consumer)) == [letter]
        letters.put(self.letter(consumer))
        assert list(self.admin().list_letters(consumer)) == [self.letter(consumer)]

    def test_a_letter_that_is_claimed_is_claimed_and_resolved_by_nobody_else(
        self, letters: DeadLetters, consumer: str
    ) -> None:
        letter, other = self.letter(consumer), self.letter(consumer, _event(seq=1))
        letters.put(letter)
        letters.put(other)
        one, two = self.admin(), self.admin()
        assert one.claim_letter(letter, "one") == letter
        assert one.claim_letter(letter, "one") == letter, "it is renewed"
        for admin in (one, two):
            with pytest.raises(LetterClaimed, match="being replayed or resolved"):
                admin.claim_letter(letter, "two")
            with pytest.raises(LetterClaimed, match="being replayed or resolved"):
                admin.resolve_letter(letter, DISCARDED, reason="known")
        assert two.claim_letter(other, "two") == other
        assert one.find_letter(consumer, letter.event.id) == letter
        one.resolve_letter(letter, REPLAYED, reason="fixed", claim="one")
        one.release_letter(letter, "one")
        found = two.claim_letter(letter, "two")
        assert found is not None
        assert found.status == REPLAYED
        two.resolve_letter(other, DISCARDED, reason="known", claim="two")

    def test_only_its_own_claim_is_released(self, letters: DeadLetters, consumer: str) -> None:
        letter, admin = self.letter(consumer), self.admin()
        letters.put(letter)
        admin.claim_letter(letter, "one")
        admin.release_letter(letter, "two")
        with pytest.raises(LetterClaimed):
            admin.claim_letter(letter, "two")
        admin.release_letter(letter, "one")
        assert admin.claim_letter(letter, "two") == letter

    def test_a_letter_that_is_gone_has_nothing_to_claim(self, letters: DeadLetters, consumer: str) -> None:
        admin = self.admin()
        assert admin.claim_letter(self.letter(consumer), "one") is None
        admin.release_letter(self.letter(consumer), "one")
        assert list(admin.list_letters(consumer, status=None)) == []
        assert dict(admin.count_letters(consumer)) == {}

    def test_a_letter_that_is_put_or_resolved_twice_counts_once(self, letters: DeadLetters, consumer: str) -> None:
        letters.put(self.letter(consumer))
        letters.put(self.letter(consumer))
        assert dict(self.admin().count_letters(consumer)) == {consumer: 1}
        for _ in range(2):
            self.admin().resolve_letter(self.letter(consumer), DISCARDED, reason="known")
            assert dict(self.admin().count_letters(consumer)) == {}
        letters.put(self.letter(consumer))
        assert dict(self.admin().count_letters(consumer)) == {consumer: 1}

    def test_resolving_needs_a_reason_and_a_status_that_resolves(self, letters: DeadLetters, consumer: str) -> None:
        letters.put(self.letter(consumer))
        for status, reason in ((REPLAYED, " "), (DEAD, "a try"), ("gone", "a try")):
            with pytest.raises(ConfigError):
                self.admin().resolve_letter(self.letter(consumer), status, reason=reason)
        assert list(self.admin().list_letters(consumer)) == [self.letter(consumer)]
