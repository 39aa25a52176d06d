"""The contract suite of publishers: the required behavior of each ``Publisher``, as a test class to subclass."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence

import pytest

from rscylla.abc import Message, Publisher
from rscylla.errors import ConfigError, PublishRejected

__all__ = ["PublisherContract"]

LONG_S = 60.0
"""Nothing here takes long; what does not come in this time never comes."""


class _Done:
    """Receives the outcomes of calls."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[int, Exception | None]] = []
        self._changed = threading.Condition()

    def of(self, call: int) -> Callable[[Exception | None], None]:
        def done(error: Exception | None) -> None:
            with self._changed:
                self.outcomes.append((call, error))
                self._changed.notify_all()

        return done

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.outcomes) >= count, LONG_S), self.outcomes


class PublisherContract:
    """The contract of ``Publisher``.

    ``read`` returns what the sink has of a topic, in order, with one partition a topic or several. Override
    ``keeps_headers`` where the sink has none, and ``never`` where it refuses some records.
    """

    keeps_headers = True

    def open_publisher(self) -> Publisher:
        """Return a new publisher over the shared sink of the test."""
        raise NotImplementedError("a contract suite needs open_publisher(), which returns the publisher to test")

    def read(self, topic: str) -> Sequence[Message]:
        """Return the records of *topic* in the order of its sink; those of one key in the order in which they came."""
        raise NotImplementedError("a contract suite needs read(topic), which returns what was published")

    def never(self, topic: str) -> Message | None:
        """Return a record that the sink refuses for good; None if there is none."""
        return None

    @pytest.fixture
    def publisher(self) -> Publisher:
        return self.open_publisher()

    @pytest.fixture
    def topic(self) -> str:
        return f"contract-{uuid.uuid4()}"

    def publish(self, publisher: Publisher, *messages: Message) -> None:
        """Publish *messages*, and wait until they are acknowledged."""
        done = _Done()
        publisher.publish(messages, done.of(0))
        assert publisher.flush(LONG_S)
        done.wait(1)
        assert done.outcomes == [(0, None)]

    def test_what_is_acknowledged_can_be_read(self, publisher: Publisher, topic: str) -> None:
        self.publish(publisher, Message(topic, b'{"id":1}', b'{"v":"na\xc3\xafve"}'))
        [found] = self.read(topic)
        assert (found.key, found.value) == (b'{"id":1}', b'{"v":"na\xc3\xafve"}')

    def test_keys_and_values_may_be_missing_and_any_bytes(self, publisher: Publisher, topic: str) -> None:
        given = [(b"k", None), (None, b"v"), (b"k", b"\x00\xff\n"), (b"", b""), (b"k", b'{"a":\n1}')]
        self.publish(publisher, *(Message(topic, key, value) for key, value in given))
        found = [(m.key, m.value) for m in self.read(topic)]
        assert sorted(found, key=repr) == sorted(given, key=repr)

    def test_headers_are_kept_in_order(self, publisher: Publisher, topic: str) -> None:
        if not self.keeps_headers:
            pytest.skip("this sink has no headers")
        headers = (("b", b"1"), ("a", None), ("b", "ï".encode()), ("c", b"\xff"), ("d", b""))
        self.publish(publisher, Message(topic, b"k", b"v", headers))
        [found] = self.read(topic)
        assert found.headers == headers

    def test_each_call_is_done_once(self, publisher: Publisher, topic: str) -> None:
        done = _Done()
        sizes = [1, 7, 300, 2, 1]
        for call, size in enumerate(sizes):
            publisher.publish([Message(topic, b"%d" % n, b"%d" % call) for n in range(size)], done.of(call))
        assert publisher.flush(LONG_S)
        done.wait(len(sizes))
        assert sorted(done.outcomes, key=str) == [(call, None) for call in range(len(sizes))]
        assert len(self.read(topic)) == sum(sizes)

    def test_records_of_one_key_keep_their_order(self, publisher: Publisher, topic: str) -> None:
        done = _Done()
        for call in range(50):
            publisher.publish([Message(topic, b"%d" % key, b"%d" % call) for key in range(5)], done.of(call))
        assert publisher.flush(LONG_S)
        by_key: dict[bytes | None, list[bytes | None]] = {}
        for message in self.read(topic):
            by_key.setdefault(message.key, []).append(message.value)
        assert by_key == {b"%d" % key: [b"%d" % call for call in range(50)] for key in range(5)}

    def test_several_threads_may_publish(self, publisher: Publisher, topic: str) -> None:
        done = _Done()

        def work(lane: int) -> None:
            for n in range(40):
                publisher.publish([Message(topic, b"%d" % lane, b"%d" % n)], done.of(lane))

        threads = [threading.Thread(target=work, args=(lane,)) for lane in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
        assert publisher.flush(LONG_S)
        done.wait(160)
        assert {error for _, error in done.outcomes} == {None}
        found = self.read(topic)
        for lane in range(4):
            assert [m.value for m in found if m.key == b"%d" % lane] == [b"%d" % n for n in range(40)]

    def test_a_refused_record_stops_those_after_it(self, publisher: Publisher, topic: str) -> None:
        refused = self.never(topic)
        if refused is None:
            pytest.skip("this sink refuses nothing")
        first, last, done = Message(topic, b"k", b"1"), Message(topic, b"k", b"3"), _Done()
        with pytest.raises(PublishRejected) as caught:
            publisher.publish([first, refused, last], done.of(0))
        assert caught.value.index == 1
        with pytest.raises(PublishRejected):
            publisher.publish([refused], done.of(1))
        self.publish(publisher, last)
        done.wait(1)
        assert done.outcomes == [(0, None)]
        assert [m.value for m in self.read(topic)] == [b"1", b"3"]

    def test_nothing_is_taken_after_close(self, publisher: Publisher, topic: str) -> None:
        self.publish(publisher, Message(topic, b"k", b"v"))
        publisher.close()
        publisher.close()
        with pytest.raises(ConfigError):
            publisher.publish([Message(topic, b"k", b"v")], lambda error: None)
        assert len(self.read(topic)) == 1

    def test_an_idle_publisher_is_settled_and_abandons_nothing(self, publisher: Publisher, topic: str) -> None:
        assert publisher.flush(LONG_S)
        publisher.abandon()
        self.publish(publisher, Message(topic, b"k", b"v"))
        assert publisher.trouble() == ""
