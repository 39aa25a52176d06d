"""A reader whose own clock is wrong or is set, on a cluster whose clocks are right and whose streams change."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest

import rscylla
from rscylla.embedded import EmbeddedScylla
from rscylla.testing import ManualClock

LAG = rscylla.StreamLag(seconds=30)
NETWORK = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
SECONDS = 150


class OwnClock:
    """The reader's clock: that of the cluster, and *ahead_s*."""

    def __init__(self, of_cluster: ManualClock, ahead_s: float) -> None:
        self._of_cluster = of_cluster
        self.ahead_s = ahead_s

    def now_us(self) -> int:
        return self._of_cluster.now_us() + round(self.ahead_s * 1e6)

    def monotonic(self) -> float:
        return self._of_cluster.monotonic()

    def wait(self, stop: rscylla.Stop, seconds: float) -> bool:
        return self._of_cluster.wait(stop, seconds)


@pytest.mark.parametrize("tablets", [False, True], ids=["vnodes", "tablets"])
@pytest.mark.parametrize(("ahead_s", "set_to_s"), [(7200, 7200), (7200, 0), (0, 7200), (0, -60), (-60, 0), (90_000, 0)])
def test_nothing_is_lost_or_out_of_order(tablets: bool, ahead_s: float, set_to_s: float) -> None:
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, vnodes=2, shards=2) as scylla:
        session = scylla.connect()
        session.execute(
            f"CREATE KEYSPACE ks WITH replication = {NETWORK} AND tablets = {{'enabled': {str(tablets).lower()}}}"
        )
        session.execute("CREATE TABLE ks.t (pk int, n int, PRIMARY KEY (pk, n)) WITH cdc = {'enabled': true}")
        own = OwnClock(clock, ahead_s)
        second = 0

        def go_on(_: float) -> None:
            """One wait of the reader: about a second, in which a row is written; new streams come now and then."""
            nonlocal second
            if second == SECONDS:
                return
            session.execute(f"INSERT INTO ks.t (pk, n) VALUES ({second % 5}, {second})")
            if second % 40 == 10 and tablets:
                scylla.split_tablets("ks", "t", timedelta(seconds=20))
            elif second % 40 == 10:
                scylla.new_generation(timedelta(seconds=20))
            if second == SECONDS // 2:
                own.ahead_s = set_to_s
            second += 1

        clock.on_wait = go_on
        stream = rscylla.NewStream(session, "ks", "t", clock=own, prefetch=0)
        numbers: list[int] = []
        generations = set()
        with closing(stream("", LAG)) as client:
            while len(numbers) < SECONDS:
                got = client.recv()
                if isinstance(got, rscylla.Event):
                    assert got.timestamp_us < clock.now_us() - 29_000_000, "no window is closed early"
                    numbers.append(got.key["n"])
                    generations.add(rscylla.EventID.parse(got.id).generation)
                else:
                    assert clock.monotonic() < 2 * SECONDS + 200, "it waits for what it has lost"
    assert numbers == list(range(SECONDS))
    assert len(generations) == 4
