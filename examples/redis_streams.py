"""A publisher of your own that waits: records as entries of streams of Redis. It uses public names only.

A thread sends what ``publish`` took, and settles it when the server has replied; see ``rscylla.abc.Publisher``. It
passes ``rscylla.testing.contracts.PublisherContract``. As a program it publishes the changes of a table to a server:

    python examples/redis_streams.py --embedded --redis redis://localhost
"""

from __future__ import annotations

import argparse
import logging
import re
import threading
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import attrs
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import Backoff
from rscylla.abc import Message, PublishDone
from rscylla.errors import ConfigError, PublishFailed, PublishRejected, RscyllaError
from rscylla.publish import publishing

log = logging.getLogger(__name__)

TOGETHER: Final = 256
TOGETHER_BYTES: Final = 1 << 20
"""How many records are sent in one transaction, at most, unless one call has more; the server does nothing else."""

WAITING: Final = 50_000
"""How many records wait in the publisher, at most. Consumers bound what is on its way; this bounds all of them."""

BACKOFF: Final = Backoff(initial=timedelta(milliseconds=50), maximum=timedelta(seconds=5))
RUN_ID: Final = re.compile(rb"run_id:(\w+)")


@attrs.define(eq=False)
class _Parcel:
    """The records of one call."""

    messages: Sequence[Message]
    done: PublishDone
    size: int


class RedisStreams:
    """Publishes to Redis; a ``Publisher``. Thread-safe. Records of a topic are entries of the stream of that name.

    An entry has the fields ``key`` and ``value``, those of them that are not null, then ``header:NAME`` for each header
    or ``null:NAME`` for one without a value; an entry without anything has the field ``null``. Partitions have no
    meaning.

    A record is acknowledged when the server replied to its XADD. What that is worth is a setting of the server: only
    with ``appendonly yes`` and ``appendfsync always`` is it on disk by then. Otherwise a crash of the server loses what
    it acknowledged last, a second with ``everysec``. Replicas are not waited for, so a failover may lose as much.

    Entries are added in transactions (MULTI), one after the other, so records of a key keep their order. A connection
    that fails leaves it open whether its last transaction was carried out: that is sent again as a whole, after the
    server has closed the old connection. While the server is down, loads, is read-only, or has no memory left, records
    wait, and ``trouble`` says why. Any other refusal fails all records that wait: later ones must not overtake.

    The user needs XADD, MULTI, EXEC, INFO, CLIENT ID and CLIENT KILL. For Redis and what speaks as it does; not for
    Redis Cluster.

    Args:
        url: Of the server, as ``redis.Redis.from_url`` takes it: ``redis://HOST:PORT/DB``, ``rediss://``, ``unix://``.
        maxlen: About how many entries a stream keeps; older ones are dropped, read or not. None: all.
        max_record_bytes: Larger keys, values and headers are refused, as the server does (``proto-max-bulk-len``).
        timeout: How long a reply is waited for before the connection is given up.
        options: As for ``redis.Redis.from_url``, such as ``username`` and ``ssl_ca_certs``.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        maxlen: int | None = None,
        max_record_bytes: int = 512 << 20,
        timeout: timedelta = timedelta(seconds=10),
        **options: Any,
    ) -> None:
        if maxlen is not None and maxlen < 1:
            raise ConfigError("RedisStreams: maxlen must be 1 or more")
        given = {
            "socket_timeout": timeout.total_seconds(),
            "socket_connect_timeout": timeout.total_seconds(),
            **options,
            "retry": Retry(NoBackoff(), 0),
            "redis_connect_func": self._connected,
            "decode_responses": False,
        }
        try:
            self._client: Any = redis.Redis.from_url(url, **given)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"RedisStreams: {error}") from error
        found = redis.exceptions
        self._error = found.RedisError
        self._refused = (found.AuthenticationError, found.AuthorizationError)
        self._passing = (
            *(found.ConnectionError, found.TimeoutError, found.ReadOnlyError, found.OutOfMemoryError),
            *(found.MasterDownError, found.TryAgainError),
        )
        self._trim = () if maxlen is None else ("MAXLEN", "~", str(maxlen))
        self._most = max_record_bytes
        self._session: tuple[bytes, int] | None = None  # of the server, and of the connection to it
        self._changed = threading.Condition()
        self._waiting: deque[_Parcel] = deque()
        self._count = 0  # of records that wait
        self._taken = self._settled = 0  # how often the thread took parcels, and settled them
        self._abandoned = 0
        self._trouble = ""
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="rscylla-redis", daemon=True)
        self._thread.start()

    def publish(self, messages: Sequence[Message], done: PublishDone) -> None:
        """Take *messages*; see ``Publisher``. Waits while 50,000 records wait.

        Raises:
            PublishRejected: a record is too large.
        """
        sizes = [self._size(message) for message in messages]
        at = next((index for index, size in enumerate(sizes) if size is None), None)
        taken = messages if at is None else messages[:at]
        with self._changed:
            abandoned = self._abandoned
            if threading.current_thread() is not self._thread:  # which makes room
                self._changed.wait_for(lambda: self._count < WAITING or self._closed or self._abandoned != abandoned)
            if self._closed:
                raise ConfigError("this RedisStreams is closed; create another one")
            if self._abandoned != abandoned:
                raise PublishFailed("the records were abandoned")
            if taken:
                self._waiting.append(_Parcel([*taken], done, sum(size or 0 for size in sizes)))
                self._count += len(taken)
                self._changed.notify_all()
        if at is not None:
            topic, most = messages[at].topic, self._most
            raise PublishRejected(
                f"a record for stream {topic} can never be sent: a part of it is over {most} bytes", index=at
            )
        if not messages:
            done(None)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all records are settled; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and self._settled == self._taken, timeout_s)

    def abandon(self) -> None:
        """Drop what waits, and wait for the reply to what was sent, for as long as *timeout* lets it take."""
        with self._changed:
            self._abandoned += 1
            dropped, taken = self._drop(), self._taken
            self._changed.notify_all()
        _settle(dropped, PublishFailed("the records were abandoned"))
        if threading.current_thread() is not self._thread:
            with self._changed:
                self._changed.wait_for(lambda: self._settled >= taken)

    def trouble(self) -> str:
        """Return why records wait."""
        return self._trouble

    def close(self) -> None:
        """Stop the thread, drop what is not settled, and close the connection. Safe to repeat."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        with self._changed:
            dropped = self._drop()
        _settle(dropped, PublishFailed("the publisher was closed"))
        self._client.close()
        self._client.connection_pool.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ records

    def _size(self, message: Message) -> int | None:
        """Return the bytes of a record; None if a part of it is too large."""
        parts = [len(message.key or b""), len(message.value or b"")]
        parts += [len(value or b"") for _, value in message.headers]
        return sum(parts) if max(parts) <= self._most else None

    def _command(self, message: Message) -> list[Any]:
        fields: list[Any] = []
        for name, value in (("key", message.key), ("value", message.value)):
            if value is not None:
                fields += (name, value)
        for name, value in message.headers:
            fields += (f"null:{name}", b"") if value is None else (f"header:{name}", value)
        return ["XADD", message.topic, *self._trim, "*", *(fields or ("null", b""))]

    # ------------------------------------------------------------ of the thread

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                taken, abandoned = self._take(), self._abandoned
                self._taken += 1
            error = self._send([message for parcel in taken for message in parcel.messages], abandoned)
            if error is not None:
                with self._changed:  # they must not overtake those that failed
                    taken += self._drop()
            _settle(taken, error)
            with self._changed:
                self._settled += 1
                self._changed.notify_all()

    def _take(self) -> list[_Parcel]:
        """Return what is sent at once. Called with the lock held."""
        taken: list[_Parcel] = []
        count = size = 0
        while self._waiting:
            parcel = self._waiting[0]
            count, size = count + len(parcel.messages), size + parcel.size
            if taken and (count > TOGETHER or size > TOGETHER_BYTES):
                break
            taken.append(self._waiting.popleft())
        self._count -= sum(len(parcel.messages) for parcel in taken)
        return taken

    def _drop(self) -> list[_Parcel]:
        """Return what waits, which does not any more. Called with the lock held."""
        dropped = [*self._waiting]
        self._waiting.clear()
        self._count = 0
        return dropped

    def _send(self, messages: Sequence[Message], abandoned: int) -> RscyllaError | None:
        """Add the entries, as often as it takes; return what failed."""
        failures = 0
        while True:
            try:
                with self._client.pipeline(transaction=True) as pipeline:
                    for message in messages:
                        pipeline.execute_command(*self._command(message))
                    pipeline.execute()
            except self._error as error:
                why = _reason(error)
                if isinstance(error, self._refused) or not self._may_pass(error, why):
                    return PublishFailed(f"Redis refused records: {why}")
                failures += 1
            except Exception as error:  # noqa: BLE001 - the thread must go on, whatever the client raises
                return PublishFailed(f"the client of Redis failed with {type(error).__name__}")
            else:
                if self._trouble:
                    log.info("Redis takes records again")
                self._trouble = ""
                return None
            if not self._trouble:
                log.warning("Redis does not take records: %s", why)
            self._trouble = f"Redis does not take records: {why}"
            with self._changed:
                if self._changed.wait_for(
                    lambda: self._closed or self._abandoned != abandoned, BACKOFF.seconds(failures)
                ):
                    return PublishFailed("the records were abandoned")

    def _may_pass(self, error: Exception, why: str) -> bool:
        return isinstance(error, self._passing) or why.startswith(("MISCONF", "NOREPLICAS", "LOADING", "OOM"))

    def _connected(self, connection: Any) -> None:
        """End the connection before this one: what the server has not read of it must not come after what follows."""
        connection.on_connect()

        def ask(*command: Any) -> Any:
            connection.send_command(*command)
            return connection.read_response()

        found = RUN_ID.search(bytes(ask("INFO", "server")))
        server = found[1] if found else b""
        session = server, int(ask("CLIENT", "ID"))
        if self._session is not None and self._session[0] == server:  # ids begin anew with the server
            ask("CLIENT", "KILL", "ID", self._session[1])
        self._session = session


def _settle(parcels: Sequence[_Parcel], error: RscyllaError | None) -> None:
    for parcel in parcels:
        parcel.done(error)


def _reason(error: Exception) -> str:
    """Return what the server said, without the command, which has values of rows."""
    return str(error).rpartition("caused error: ")[2] or type(error).__name__


def entries(event: rscylla.Event) -> list[Message]:
    """Return what is published of an event: its key and metadata, on the stream ``orders``."""
    return [] if event.change is None else [Message("orders", event.foreign_id.encode(), event.metadata)]


def main() -> None:
    from rscylla.embedded import EmbeddedScylla

    parser = argparse.ArgumentParser(description="Publish the changes of a table to a stream of Redis.")
    parser.add_argument("--embedded", action="store_true", required=True, help="on a Scylla of its own")
    parser.add_argument("--redis", default="redis://localhost", help="the Redis server")
    url = parser.parse_args().redis
    with EmbeddedScylla() as scylla, RedisStreams(url) as streams:
        session = scylla.connect()
        session.execute(
            "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, state text) WITH cdc = {'enabled': true}")
        session.execute("INSERT INTO shop.orders (id, state) VALUES (1, 'new')")
        stream = rscylla.NewStream(session, "shop", "orders")
        lag, until = rscylla.StreamLag(milliseconds=100), rscylla.StreamUntil(datetime.now(UTC))
        consumer = publishing("redis", entries, streams)
        rscylla.run_forever(rscylla.Spec(stream, MemoryCursorStore(), consumer, lag, until))
    with redis.Redis.from_url(url) as client:
        print(client.xrevrange("orders", count=1))


if __name__ == "__main__":
    main()
