"""Whether an object has an optional method that its protocol may use instead of another."""

from __future__ import annotations

__all__ = ["overriding"]


def overriding(owner: object, optional: str, method: str) -> bool:
    """Return whether *owner* has the method *optional*, and does not override *method* below it."""
    if method in getattr(owner, "__dict__", ()):
        return False
    for kind in type(owner).__mro__:
        if optional in vars(kind):
            return True
        if method in vars(kind):
            break
    return False
