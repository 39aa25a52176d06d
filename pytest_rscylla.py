"""A pytest plugin for test suites of applications. Pytest finds it automatically where rscylla is installed.

Fixtures: ``embedded_scylla``, a server; ``scylla_session``, a driver session on it; ``await_cursor``, a function that
waits until a consumer has reached a cursor. rscylla is imported only when a test requests one of them, so this module
is not in its package.

The ini option ``embedded_scylla_scope`` sets the scope of a server: ``function`` (the default), ``class``, ``module``,
``package``, or ``session``. ``--embedded-scylla-scope`` overrides it for one run. A marker on the object of that scope
passes arguments to ``EmbeddedScylla``: ``@pytest.mark.embedded_scylla(nodes=3)``. One below that scope is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

if TYPE_CHECKING:
    from cassandra.cluster import Session

    from rscylla.embedded import EmbeddedScylla

__all__ = ["await_cursor", "embedded_scylla", "pytest_addoption", "pytest_configure", "scylla_session"]

_Scope = Literal["function", "class", "module", "package", "session"]

_SCOPES = ("function", "class", "module", "package", "session")
_OPTION = "embedded_scylla_scope"
_MARKER = "embedded_scylla"

# Before anything imports them: pytest rewrites them automatically only in an installed wheel, not in an editable tree.
pytest.register_assert_rewrite("rscylla.testing.contracts")


def pytest_addoption(parser: pytest.Parser) -> None:
    text = f"scope of an embedded Scylla: {', '.join(_SCOPES)}"
    parser.addini(_OPTION, text, default="function")
    group = parser.getgroup("rscylla")
    group.addoption("--embedded-scylla-scope", dest=_OPTION, choices=_SCOPES, default=None, help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{_MARKER}(**arguments): arguments of EmbeddedScylla")
    if _scope("", config) not in _SCOPES:
        raise pytest.UsageError(f"{_OPTION}: {_scope('', config)!r} is not a scope; use one of {', '.join(_SCOPES)}")


def _scope(fixture_name: str, config: pytest.Config) -> _Scope:
    return cast("_Scope", config.getoption(_OPTION) or config.getini(_OPTION))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse markers below the scope: the server is one for several tests, and would not have their arguments."""
    scope = _scope("", config)
    wrong = [item.nodeid for item in items if "embedded_scylla" in item.fixturenames and _is_below(item, scope)]  # type: ignore[attr-defined]
    if wrong:
        raise pytest.UsageError(
            "\n".join(
                f"{name}: its marker {_MARKER} is not that of its server, whose scope is {scope}; put the marker on "
                f"the {scope}, or use --embedded-scylla-scope function"
                for name in wrong
            )
        )


def _is_below(item: pytest.Item, scope: _Scope) -> bool:
    """Whether the closest marker of *item* is on something smaller than the object of *scope* that it is in."""
    of_scope: dict[str, Any] = {
        "function": pytest.Item,
        "class": pytest.Class,
        "module": pytest.Module,
        "package": pytest.Package,
    }
    kind = of_scope.get(scope, pytest.Session)
    # As pytest has it: outside of a class, the scope of a class is the module's, and outside of packages the session's.
    node = item.getparent(kind) or item.getparent(pytest.Module if scope == "class" else pytest.Session)
    shared = None if node is None else node.get_closest_marker(_MARKER)
    return item.get_closest_marker(_MARKER) is not shared


@pytest.fixture(scope=_scope)
def embedded_scylla(request: pytest.FixtureRequest) -> Iterator[EmbeddedScylla]:
    """A running `rscylla.embedded.EmbeddedScylla`, which stops when its scope ends."""
    from rscylla.embedded import EmbeddedScylla  # most runs do not need it

    marker = request.node.get_closest_marker(_MARKER)
    with EmbeddedScylla(**(marker.kwargs if marker is not None else {})) as scylla:
        yield scylla


@pytest.fixture(scope=_scope)
def scylla_session(embedded_scylla: EmbeddedScylla) -> Session:
    """A scylla-driver session on ``embedded_scylla``, which ends with the server."""
    return embedded_scylla.connect()


@pytest.fixture(scope="session")
def await_cursor() -> Callable[..., None]:
    """`rscylla.testing.await_cursor`: wait until a consumer's saved cursor is at an event, or fail."""
    from rscylla.testing import await_cursor

    return await_cursor
