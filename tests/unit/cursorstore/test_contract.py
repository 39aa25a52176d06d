"""The contract suites over the stores, the Scylla store on a database in memory."""

from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar

import pytest
from fake_scylla import ROW_FACTORIES, FakeScylla

from cursorstore import (
    BufferedCursorStore,
    IntCursorCodec,
    MemoryCursorStore,
    ScyllaCursorStore,
)
from rscylla.abc import CursorStore
from rscylla.testing.contracts import CursorAdminContract, EventCursorStoreContract, SharedCursorStoreContract


class TestMemory(EventCursorStoreContract, CursorAdminContract):
    def open_store(self) -> CursorStore:
        return MemoryCursorStore()


class TestMemoryOfInts(CursorAdminContract):
    cursors: ClassVar[tuple[str, ...]] = ("1", "9", "10", "99", "100", "18446744073709551615")
    no_cursor: ClassVar[str] = "1.5"

    def open_store(self) -> CursorStore:
        return MemoryCursorStore(codec=IntCursorCodec())


class TestBufferedMemory(EventCursorStoreContract, CursorAdminContract):
    def open_store(self) -> CursorStore:
        return BufferedCursorStore(MemoryCursorStore(), interval=timedelta(hours=1))


class OnFakeScylla(SharedCursorStoreContract):
    @pytest.fixture(autouse=True)
    def database(self) -> None:
        self.scylla = FakeScylla()

    def scylla_store(self, **options: object) -> CursorStore:
        return ScyllaCursorStore(self.scylla.session(), "shop", create=True, **options)


class TestScylla(OnFakeScylla):
    @pytest.fixture(autouse=True, params=ROW_FACTORIES)
    def factory(self, request: pytest.FixtureRequest) -> None:
        self.row_factory: Callable[..., object] = request.param

    def open_store(self) -> CursorStore:
        return ScyllaCursorStore(self.scylla.session(self.row_factory), "shop", create=True)


class TestScyllaThatChecksAlways(OnFakeScylla):
    def open_store(self) -> CursorStore:
        return self.scylla_store(epoch_check=timedelta(0))


class TestBufferedScylla(OnFakeScylla):
    def open_store(self) -> CursorStore:
        return BufferedCursorStore(self.scylla_store(), interval=timedelta(hours=1))


class TestBufferedScyllaWithoutThread(OnFakeScylla):
    def open_store(self) -> CursorStore:
        return BufferedCursorStore(self.scylla_store(), interval=timedelta(hours=1), background=False)
