"""``GroupWork``: the part of a service that runs the lanes of a group's slices, which come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import attrs
from prometheus_client import Gauge

from ..._timeuuid import datetime_of
from ..._tokens import Slice
from ...abc import GroupView, fence_name
from ...clock import Clock, SystemClock
from ...errors import ConfigError, LeaseLost, ServiceFailed
from ...reflex import Meters, Spec, checked_specs
from ..health import GroupFacts
from ..lease import JoinedGroup, LeasedStop, LeaseKeeper
from ..worker import Worker
from .group import Group
from .slicekeeper import SliceKeeper

__all__ = ["GroupWork"]

Excused = Callable[[Exception], bool]


@attrs.define(eq=False)
class _Slice:
    """A slice whose lanes run here. ``late_at``: until when its lanes have to end after it was lost, in real time."""

    index: int
    count: int
    keeper: SliceKeeper
    signal: LeasedStop
    workers: tuple[Worker, ...]
    late_at: float | None = None

    @property
    def reads(self) -> Iterator[str]:
        """What its lanes read: their names without that of the slice, and the table. In each slice the same."""
        for spec in (worker.spec for worker in self.workers):
            yield f"{spec.part_of} of {spec.source}" if spec.source else spec.part_of

    @property
    def alive(self) -> bool:
        return any(worker.alive for worker in self.workers)


class GroupWork:
    """Keeps the membership and the lanes of a group. All but ``facts`` and ``workers`` is for the supervisor's thread.

    Args:
        hire: makes the worker of a spec, given what errors are excused.
        call: has the supervisor's thread call a function.
        fixed: the names of the lanes that always run.
        patience_s: how long lanes may go on after their slice was lost.
        retire: called with a worker that is no longer needed.
    """

    def __init__(
        self,
        group: Group,
        clock: Clock,
        meters: Meters,
        *,
        hire: Callable[[Spec, Excused], Worker],
        call: Callable[[Callable[[], None]], None],
        fixed: Iterable[str],
        patience_s: float,
        retire: Callable[[Worker], None],
    ) -> None:
        self._group = group
        self._membership = group.membership
        self._clock = clock
        self._meters = meters
        self._hire = hire
        self._call = call
        self._fixed = frozenset(fixed)
        self._patience_s = patience_s
        self._retire = retire
        self._real = SystemClock()
        self._slices: dict[int, _Slice] = {}
        self._keeper: SliceKeeper | None = None  # of the present membership
        self._joined_at: datetime | None = None
        self._moves: Counter[str] = Counter()
        self._missed = 0
        self._leaving = False
        self._lapsed = False
        self._readers: Mapping[str, frozenset[int]] = {}
        self.workers: tuple[Worker, ...] = ()
        """The workers of all slices that are here now. Any thread may read."""
        self._joined = JoinedGroup(group.membership, clock)
        self._lease_keeper = LeaseKeeper(
            self._joined,
            clock,
            what="membership of group",
            begun=lambda term: call(lambda: self._begun(term)),
            over=lambda: call(self._over),
            failed=lambda error: call(lambda: self._failed(error)),
            missed=self._renewal_missed,
        )

    def start(self) -> None:
        """Join the group, in the background."""
        self._lease_keeper.start()

    # ------------------------------------------------------------ the membership

    def _begun(self, term: LeasedStop) -> None:
        self._joined_at = datetime_of(self._clock.now_us())
        self._lapsed = False
        self._keeper = SliceKeeper(
            self._membership,
            self._clock,
            term,
            come=lambda keeper, count, signals: self._call(lambda: self._come(keeper, count, signals)),
            go=lambda keeper, index, signal: self._call(lambda: self._go(keeper, index, signal)),
            over=lambda keeper, error: self._call(lambda: self._keeper_over(keeper, error)),
            renew=self._lease_keeper.renew_now,
            moved=self._moved,
        )
        self._keeper.start()
        if self._leaving:
            self._keeper.leave()

    def _over(self) -> None:
        """The membership is over: stop all lanes, and join again when they have ended."""
        self._joined_at = None
        self._lapsed = True
        for one in list(self._slices.values()):
            self._stop(one)
        self._join_again()

    def _keeper_over(self, keeper: SliceKeeper, error: Exception | None) -> None:
        if error is not None:
            raise ServiceFailed(f'group "{self._membership.name}" cannot be kept: {error}') from error
        keeper.join(self._patience_s)  # short: the thread sent this as its last action
        if keeper is self._keeper:
            self._keeper = None
            self._join_again()

    def _join_again(self) -> None:
        if self._lapsed and self._keeper is None and not self._slices:
            self._lapsed = False
            self._lease_keeper.resume()

    def _failed(self, error: Exception) -> None:
        raise ServiceFailed(f'group "{self._membership.name}" cannot be joined: {error}') from error

    def _renewal_missed(self) -> None:
        self._missed += 1
        self._meters.group_renewals_failed.labels(self._membership.name).inc()

    def _moved(self, why: str, slices: int) -> None:
        self._moves[why] += slices
        self._meters.group_moves.labels(self._membership.name, why).inc(slices)

    # ------------------------------------------------------------ slices

    def _come(self, keeper: SliceKeeper, count: int, signals: Mapping[int, LeasedStop]) -> None:
        """Start the lanes of slices, all of them at about the same time, so that they are read together."""
        come = []
        for index, signal in signals.items():
            if self._leaving or keeper is not self._keeper or self._lapsed:
                keeper.gone(signal)
            else:
                come.append(_Slice(index, count, keeper, signal, self._hired(index, count, signal)))
        self._slices.update((one.index, one) for one in come)
        self._changed()
        for one in come:
            for worker in one.workers:
                worker.start(one.signal)

    def _hired(self, index: int, count: int, signal: LeasedStop) -> tuple[Worker, ...]:
        def excused(error: Exception) -> bool:
            """A lane that finds its slice lost is about to be stopped."""
            return isinstance(error.__cause__, LeaseLost) and signal.is_set()

        return tuple(self._hire(spec, excused) for spec in self._specs(index, count))

    def _specs(self, index: int, count: int) -> tuple[Spec, ...]:
        """Return the lanes that the user's function has for a slice, checked."""
        try:
            specs = self._group.lanes(index, count)
            if specs:
                checked_specs("Group", specs)
            for spec in specs:
                self._check_name(spec.name, index, count)
                self._check_fenced(spec, index, count)
                _check_keys(spec, index, count)
        except Exception as error:
            where = f'slice {index} of {count} of group "{self._membership.name}"'
            raise ServiceFailed(f"the lanes of {where} cannot be made: {error}") from error
        return specs

    def _check_name(self, name: str, index: int, count: int) -> None:
        if self._membership.fence_of(name).name != self._fence_name(index, count):
            raise ConfigError(
                f'"{name}" is not named after the slice; name consumers with slice_name(name, index, count)'
            )
        if name in self._fixed:
            raise ConfigError(f'another lane of the service is named "{name}"')

    def _check_fenced(self, spec: Spec, index: int, count: int) -> None:
        """Refuse a store that is known not to ask the group: a former holder of the slice could move the cursor."""
        found = fence_name(spec.store, spec.name)
        if found not in (None, self._fence_name(index, count)):
            which = f'has fence "{found}", not that of this group' if found else "does not ask the group who may save"
            raise ConfigError(f'the cursor store of "{spec.name}" {which}; give the membership to it, as lease=')

    def _fence_name(self, index: int, count: int) -> str:
        return self._membership.fence_of(Slice(index, count).name(self._membership.name)).name

    def _go(self, keeper: SliceKeeper, index: int, signal: LeasedStop) -> None:
        one = self._slices.get(index)
        if one is None or one.signal is not signal:
            keeper.gone(signal)
        else:
            self._stop(one)

    def _stop(self, one: _Slice) -> None:
        one.signal.set()
        self._settle(one)

    def ended(self, worker: Worker) -> bool:
        """Return whether *worker*, whose thread has ended, is of a slice here; let the slice go if it was the last."""
        for one in list(self._slices.values()):
            if worker in one.workers:
                self._settle(one)
                return True
        return False

    def _settle(self, one: _Slice) -> None:
        """Let a slice go if its lanes were stopped and have ended. Lanes that ended by themselves keep their slice."""
        if not one.signal.is_set() or one.alive or self._slices.get(one.index) is not one:
            return
        del self._slices[one.index]
        self._changed()
        for worker in one.workers:
            self._retire(worker)
        one.keeper.gone(one.signal)
        self._join_again()

    def _changed(self) -> None:
        by_index = sorted(self._slices.values(), key=lambda one: one.index)
        self.workers = tuple(worker for one in by_index for worker in one.workers)
        readers: dict[str, set[int]] = {}
        for one in by_index:
            for what in one.reads:
                readers.setdefault(what, set()).add(one.index)
        self._readers = {what: frozenset(indexes) for what, indexes in readers.items()}
        if by_index:  # a process without slices would run the same
            stores = (worker.spec.store for worker in self.workers)
            stay = any(getattr(store, "slices_stay", False) for store in stores)
            self._membership.announce(readers, slices_stay=stay)

    def check(self) -> None:
        """Raise ``ServiceFailed`` if lanes went on for too long after their slice was lost. Called now and then."""
        now = self._real.monotonic()
        for one in self._slices.values():
            if not one.signal.is_over():
                one.late_at = None
            elif one.late_at is None:
                one.late_at = now + self._patience_s
            elif now > one.late_at and one.alive:
                names = ", ".join(f'lane "{worker.name}"' for worker in one.workers if worker.alive)
                raise ServiceFailed(f"{names} went on for {self._patience_s:g} s after the slice was lost")

    # ------------------------------------------------------------ the end

    def leave(self) -> None:
        """Stop all lanes, and hand their slices over to other members as they end."""
        self._leaving = True
        if self._keeper is not None:
            self._keeper.leave()
        for one in list(self._slices.values()):
            self._stop(one)

    def give_up(self) -> None:
        """Wait for no lane any more. While one may still act, the membership is not ended; it expires by itself."""
        if self._keeper is not None:
            self._keeper.abandon()

    def has_left(self, seconds: float) -> bool:
        """Wait until this process has left the group, at most *seconds*; return whether it has, as far as it will."""
        keeper = self._keeper
        if keeper is not None and not keeper.join(seconds):
            return False
        self._lease_keeper.stop(release=not self._slices)
        return bool(self._slices) or self._lease_keeper.join(seconds)

    # ------------------------------------------------------------ facts and metrics

    def show(self) -> None:
        """Add the metrics of the group, which are computed when they are read."""
        for gauge, value in self._gauges():
            gauge.labels(self._membership.name).set_function(value)

    def hide(self) -> None:
        """Remove what ``show`` has added."""
        for gauge, _ in self._gauges():
            gauge.remove(self._membership.name)

    def _gauges(self) -> tuple[tuple[Gauge, Callable[[], float]], ...]:
        meters = self._meters
        return (
            (meters.group_members, lambda: float(len(self._view.members) if self._view else 0)),
            (meters.group_slices, lambda: float(self._view.count if self._view else 0)),
            (meters.group_slices_held, lambda: float(len(self._membership.held()))),
            (meters.group_joined, lambda: self._joined_at.timestamp() if self._joined_at else 0.0),
        )

    @property
    def _view(self) -> GroupView | None:
        keeper = self._keeper
        return None if keeper is None else keeper.view

    def facts(self) -> GroupFacts:
        """Return the current state. Sends no queries. Any thread."""
        keeper, membership = self._keeper, self._membership
        view = None if keeper is None else keeper.view
        age_s = None if keeper is None or view is None else max(0.0, self._clock.monotonic() - keeper.viewed_at)
        absent = keeper.lifespans.over(view, timedelta(seconds=age_s)) if keeper and view and age_s else frozenset()
        return GroupFacts(
            name=membership.name,
            owner=membership.owner,
            token=membership.token,
            held=tuple(sorted(membership.held())),
            since=self._joined_at,
            view=view,
            view_age_s=age_s,
            moves=dict(self._moves),
            renewals_failed=self._missed,
            why=self._why_not_joined(),
            readers=self._readers,
            absent=absent,
        )

    def _why_not_joined(self) -> str:
        """Return why this process is no member, "" if it is."""
        if self._joined.held():
            return ""
        trouble = self._joined.trouble
        if alive := [worker.name for worker in self.workers if worker.alive]:
            lanes = ", ".join(alive)
            return f"{trouble or 'its membership has ended'}; it joins again when these lanes have ended: {lanes}"
        return trouble or ("it has left" if self._leaving else "no answer yet")


def _check_keys(spec: Spec, index: int, count: int) -> None:
    """Refuse a stream that is known to read other keys: those of the slice would be read by nobody, or by several."""
    found = getattr(spec.stream, "key_slice", (index, count))
    if tuple(found) != (index, count):
        raise ConfigError(
            f'the stream of "{spec.name}" reads slice {found[0]} of {found[1]}; slice it with the index and the count '
            "that the function gets"
        )
