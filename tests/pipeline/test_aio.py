"""asyncio over CDC logs: a consumer that is cancelled and started again sees every change."""

from __future__ import annotations

import asyncio

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla import aio

LAG = rscylla.StreamLag(milliseconds=50)


def table(session: rscylla.Session, keyspace: str, rows: int) -> rscylla.Stream:
    session.execute(f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    for i in range(rows):
        session.execute(f"INSERT INTO {keyspace}.t (id, v) VALUES (%s, 0)", (i,))
    return rscylla.NewStream(session, keyspace, "t")


async def bounded(work: asyncio.Task[None]) -> None:
    async with asyncio.timeout(60):
        await work


def test_every_change_reaches_a_consumer_that_is_cancelled_and_started_again(
    session: rscylla.Session, keyspace: str
) -> None:
    stream, store = table(session, keyspace, 40), ScyllaCursorStore(session, keyspace, create=True)
    got: list[int] = []

    async def run_until(count: int) -> None:
        enough = asyncio.Event()

        async def consume(event: rscylla.Event, fate: rscylla.Fate) -> None:
            await asyncio.sleep(0)
            got.append(event.key["id"])
            if len(got) >= count:
                enough.set()

        task = asyncio.create_task(aio.run_forever(rscylla.Spec(stream, store, aio.Consumer("aio", consume), LAG)))
        async with asyncio.timeout(60):
            await enough.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    for count in (10, 25, 40):
        asyncio.run(run_until(count))
    assert sorted(set(got)) == list(range(40))
    assert len(got) <= 40 + 2  # the event that each of two cancellations left


def test_async_for_follows_a_table_from_the_cursor_of_its_name(session: rscylla.Session, keyspace: str) -> None:
    stream, store = table(session, keyspace, 20), ScyllaCursorStore(session, keyspace, create=True)

    async def some(count: int) -> list[int]:
        found: list[int] = []
        async with asyncio.timeout(60), aio.events(stream, LAG, store=store, name="feed") as feed:
            async for event in feed:
                found.append(event.key["id"])
                if len(found) == count:
                    await feed.commit()
                    break
        return found

    got = asyncio.run(some(8)) + asyncio.run(some(12))
    assert sorted(got) == list(range(20))
