"""The contract suites while one of three nodes is dead: kill -9 before the first test, back after the last."""

from __future__ import annotations

import pytest
import suites

pytestmark = pytest.mark.usefixtures("one_node_down")


class TestCursors(suites.Cursors):
    pass


class TestCursorsUnderALease(suites.CursorsUnderALease):
    pass


class TestBuffered(suites.Buffered):
    pass


class TestLeases(suites.Leases):
    pass


class TestMemberships(suites.Memberships):
    pass


class TestCursorsOfAGroup(suites.CursorsOfAGroup):
    pass


class TestDeadLetters(suites.Letters):
    pass
