"""An event sourced bank as processes that a test kills: some send commands, some run projections, broker, and timers.

python eventbank.py send HOST:PORT PLAN DONE
python eventbank.py serve HOST:PORT KAFKA

``send`` carries out the commands of PLAN, lines of JSON, and appends the id of each to DONE after it; what is in DONE
is skipped. ``serve`` is a member of a group. The timers of the bank pay in.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore, ScyllaDeadLetters, ScyllaMembership
from rscylla.eventsourcing import (
    Aggregate,
    AggregateID,
    CommandHandler,
    Envelope,
    EventMessages,
    EventTypes,
    Projector,
    ScyllaBuilds,
    ScyllaEventStore,
    ScyllaSnapshotStore,
    ScyllaTimers,
    Timer,
    firing_id,
    parking_key,
    parking_messages,
    timer_spec,
)
from rscylla.publish import publishing

KEYSPACE = "bank"
LAG = timedelta(milliseconds=200)

TYPES = EventTypes()


@TYPES.register
@attrs.frozen
class PaidIn:
    amount: int


@TYPES.register
@attrs.frozen
class PaidOut:
    amount: int


@attrs.frozen
class Account:
    balance: int = 0


class Overdrawn(Exception):
    """There is not so much money."""


def decide(state: Account, amount: int) -> list[PaidIn | PaidOut]:
    if amount >= 0:
        return [PaidIn(amount)] if amount else []
    if state.balance < -amount:
        raise Overdrawn
    # Two events, so that some appends have several.
    return [PaidOut(-amount - 1), PaidOut(1)] if amount < -1 else [PaidOut(1)]


def evolve(state: Account, event: PaidIn | PaidOut) -> Account:
    return Account(state.balance + (event.amount if isinstance(event, PaidIn) else -event.amount))


ACCOUNTS: Aggregate[Account, int, PaidIn | PaidOut] = Aggregate("account", Account(), decide, evolve, TYPES)


class Balances:
    """A projection: the balance of each account, which is a sum, with its version in the same row."""

    name = "balances"

    def __init__(self, session: Any) -> None:
        self._session = session
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.balances "
            "(build bigint, id text, version bigint, balance bigint, PRIMARY KEY (build, id))"
        )
        self._read = session.prepare(f"SELECT version, balance FROM {KEYSPACE}.balances WHERE build = ? AND id = ?")
        self._write = session.prepare(
            f"INSERT INTO {KEYSPACE}.balances (build, id, version, balance) VALUES (?, ?, ?, ?) USING TIMESTAMP ?"
        )

    def prepare(self, build: int) -> None:
        pass

    def version(self, build: int, aggregate: AggregateID) -> int:
        return self._row(build, aggregate)[0]

    def apply(self, build: int, envelope: Envelope[Any]) -> None:
        balance = evolve(Account(self._row(build, envelope.aggregate)[1]), envelope.event).balance
        self._session.execute(self._write, (build, envelope.aggregate.id, envelope.version, balance, envelope.version))

    def drop(self, build: int) -> None:
        self._session.execute(f"DELETE FROM {KEYSPACE}.balances WHERE build = %s", (build,))

    def rows(self, build: int) -> dict[str, tuple[int, int]]:
        found = self._session.execute(
            f"SELECT id, version, balance FROM {KEYSPACE}.balances WHERE build = %s", (build,)
        )
        return {id_: (version, balance) for id_, version, balance in found}

    def _row(self, build: int, aggregate: AggregateID) -> tuple[int, int]:
        row = self._session.execute(self._read, (build, aggregate.id)).one()
        return (row[0], row[1]) if row else (0, 0)


class Bank:
    """All that a process of the bank needs on a session. *types*: the events that its version knows."""

    def __init__(self, session: Any, types: EventTypes = TYPES) -> None:
        self.session = session
        self.types = types
        self.store = ScyllaEventStore(session, KEYSPACE, create=True)
        snapshots = ScyllaSnapshotStore(session, KEYSPACE, create=True)
        self.handler = CommandHandler(ACCOUNTS, self.store, snapshots=snapshots, snapshot_every=20)
        self.timers = ScyllaTimers(session, KEYSPACE, create=True)
        self.letters = ScyllaDeadLetters(session, KEYSPACE, create=True)
        self.balances = Balances(session)
        self.projector = Projector(
            self.balances,
            self.store,
            types.decode,
            ScyllaBuilds(session, KEYSPACE, create=True),
            look_every=timedelta(milliseconds=200),
            keep_retired=timedelta(seconds=1),
        )

    def fire(self, timer: Timer, run: object = None) -> None:
        """Pay in what a timer says."""
        account, amount = json.loads(timer.data)
        self.handler.handle(account, amount, command_id=str(firing_id(timer)))

    def timer_lane(self, name: str = "timers") -> rscylla.Spec:
        return timer_spec(
            name, self.timers, self.fire, every=timedelta(milliseconds=50), claim=timedelta(seconds=2), workers=2
        )

    def publishing(self, name: str, publisher: Any) -> Any:
        return publishing(
            name, parking_messages(name, EventMessages(decode=self.types.decode), self.letters), publisher
        )

    def projecting(self, name: str) -> Any:
        return rscylla.dead_letter(self.projector.consumer(name), self.letters, park=parking_key)


def send(host: str, plan: Path, done: Path) -> None:
    bank = Bank(rscylla.connect([host]))
    known = set(done.read_text().split()) if done.exists() else set()
    out = os.open(done, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for line in plan.read_text().splitlines():
        command_id, account, amount = json.loads(line)
        if command_id in known:
            continue
        with suppress(Overdrawn):
            bank.handler.handle(account, amount, command_id=command_id)
        os.write(out, f"{command_id}\n".encode())


def serve(host: str, servers: str) -> int:
    from rscylla.kafka import KafkaPublisher

    session = rscylla.connect([host])
    bank = Bank(session)
    membership = ScyllaMembership(session, KEYSPACE, "bank", slices=4, ttl=timedelta(seconds=4), create=True)
    cursors = BufferedCursorStore(ScyllaCursorStore(session, KEYSPACE, create=True, lease=membership))
    publisher = KafkaPublisher({"bootstrap.servers": servers, "log_level": 2})
    stream = rscylla.NewStream(session, KEYSPACE, "rscylla_events", poll=timedelta(milliseconds=50))
    lag = rscylla.StreamLag(milliseconds=LAG // timedelta(milliseconds=1))
    lanes = (
        rscylla.group_lanes("balances", stream, cursors, bank.projecting, lag),
        rscylla.group_lanes("broker", stream, cursors, lambda name: bank.publishing(name, publisher), lag),
    )
    service = rscylla.Service([bank.timer_lane()], group=rscylla.Group(membership, *lanes))
    code = service.run()
    publisher.close()
    return code


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        sys.exit(serve(sys.argv[2], sys.argv[3]))
