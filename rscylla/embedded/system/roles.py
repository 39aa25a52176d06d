"""LIST ROLES and LIST USERS. Roles are the users of the server; all of them may do everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..cql import ast
from ..errors import InvalidRequest
from ..result import ColumnSpec, RowsResult
from ..storage.packed import join_row
from ..types import TEXT, MapType
from ..types.natives import BOOLEAN

__all__ = ["list_roles", "list_users", "role_names"]

_DEFAULT: Final = ("cassandra",)  # the superuser that Scylla makes where nobody has made another

_ROLES: Final = (
    *(ColumnSpec("system", "roles", name, kind) for name, kind in (("role", TEXT), ("super", BOOLEAN))),
    ColumnSpec("system", "roles", "login", BOOLEAN),
    ColumnSpec("system", "roles", "options", MapType(TEXT, TEXT, frozen=True)),
)
_USERS: Final = (ColumnSpec("system", "users", "name", TEXT), ColumnSpec("system", "users", "super", BOOLEAN))


def role_names(users: Mapping[str, str] | None) -> Sequence[str]:
    """Return the roles of a server that lets *users* in, sorted."""
    return sorted(users or _DEFAULT)


def list_roles(statement: ast.ListRoles, users: Mapping[str, str] | None) -> RowsResult:
    """Return the rows of LIST ROLES. Raises InvalidRequest for a role that is not there."""
    names = role_names(users)
    if statement.of is not None:
        if statement.of not in names:
            raise InvalidRequest(f"{statement.of} doesn't exist")
        names = [statement.of]
    return _rows(_ROLES, [(name, True, True, {}) for name in names])


def list_users(users: Mapping[str, str] | None) -> RowsResult:
    """Return the rows of LIST USERS."""
    return _rows(_USERS, [(name, True) for name in role_names(users)])


def _rows(columns: tuple[ColumnSpec, ...], rows: Sequence[tuple[Any, ...]]) -> RowsResult:
    encoded = [[spec.type.encode(cell) for spec, cell in zip(columns, row, strict=True)] for row in rows]
    return RowsResult(columns, [join_row(cells) for cells in encoded])
