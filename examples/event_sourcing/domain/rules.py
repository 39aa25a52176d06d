"""``RuleBroken``: a command that the business refuses."""

from __future__ import annotations

__all__ = ["RuleBroken"]


class RuleBroken(Exception):
    """A command broke a rule of its aggregate; no event was written. Sending it again helps only after a change.

    ``code`` names the rule for programs, such as ``not_confirmed``; the text is for people and holds no personal data.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[type[RuleBroken], tuple[str, str]]:
        return type(self), (self.code, str(self))
