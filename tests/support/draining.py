"""Reads an open stream to its end."""

from __future__ import annotations

import rscylla
from rscylla.abc import StreamClient


def changes_of(client: StreamClient) -> list[rscylla.ChangeEvent]:
    """Return the changes of *client* up to the head, or to where it ends. The caller closes it."""
    found = []
    try:
        while True:
            got = client.recv()
            if isinstance(got, rscylla.ChangeEvent):
                found.append(got)
    except rscylla.HeadReached:
        return found
