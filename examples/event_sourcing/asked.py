"""What comes with a command besides its body: who sends it, its key, and how long the client waits."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from typing import Annotated

import attrs
from fastapi import Depends, Header

from .problems import Problem

__all__ = ["Asked", "AskedBy"]

PATIENCE = timedelta(seconds=5)
"""How long a command waits until queries show it, unless its client says otherwise."""

MOST = timedelta(seconds=30)

IDS = uuid.UUID("7f0c9a0e-5b1c-4a7e-9d53-0d8f5f0e6a11")
"""The namespace of ids that follow from a key, so that a creation that is sent again makes nothing new."""


@attrs.frozen
class Asked:
    """A command's context. ``expected``: the version that the client has seen, None: any."""

    command_id: str
    correlation_id: str
    user: str
    expected: int | None
    wait: timedelta

    def new_id(self) -> str:
        """The id of what the command creates, if the client did not choose one."""
        return str(uuid.uuid5(IDS, self.command_id))


def _asked(
    idempotency_key: Annotated[
        str | None,
        Header(max_length=200, description="Names the command. The same key again carries it out no second time."),
    ] = None,
    if_match: Annotated[
        str | None, Header(description='The version that the client has seen, as the ETag of the query: `"3"`.')
    ] = None,
    prefer: Annotated[
        str | None,
        Header(description="`wait=2`: the seconds until queries show the command, at most; then the answer is 202."),
    ] = None,
    x_correlation_id: Annotated[
        str | None, Header(max_length=200, description="Kept with the events, and with all that follows from them.")
    ] = None,
    x_user: Annotated[
        str,
        Header(
            max_length=200,
            description="The id of who asks, no name: it is stored in the clear. A proxy that logs people in sets it.",
        ),
    ] = "",
) -> Asked:
    command_id = idempotency_key or str(uuid.uuid4())
    return Asked(command_id, x_correlation_id or command_id, x_user, _version(if_match), _wait(prefer))


AskedBy = Annotated[Asked, Depends(_asked)]


def _version(if_match: str | None) -> int | None:
    if if_match is None:
        return None
    found = re.fullmatch(r'"(\d{1,18})"', if_match.strip())
    if found is None:
        raise Problem(422, "invalid", "The request is malformed", 'If-Match is not a version in quotes, such as "3"')
    return int(found[1])


def _wait(prefer: str | None) -> timedelta:
    """Return the wait of a ``Prefer`` header (RFC 7240). Preferences that are not understood are ignored."""
    found = re.search(r"(?:^|[,;\s])wait\s*=\s*(\d{1,6})", prefer or "")
    return PATIENCE if found is None else min(timedelta(seconds=int(found[1])), MOST)
