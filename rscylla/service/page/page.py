"""``/``: a page that shows ``/status`` to people. One answer holds all of it: it loads nothing else.

The Content-Security-Policy names the page's own style and script by their hashes, lets the script ask this service
alone, and forbids it to make HTML or code from text. Whatever a name of a consumer or an error holds, the browser runs
nothing of it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from ..http import NOTHING, Answer

__all__ = ["page"]


def page(headers: Mapping[str, str]) -> Answer:
    """Return the page."""
    return _made()


@cache
def _made() -> Answer:
    html, style, script = (
        files(__package__).joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js")
    )
    # In this order: the script holds no placeholder of the style.
    html = html.replace("/* page.css */", style).replace("/* page.js */", script)
    policy = (
        f"{NOTHING}; style-src {_hash(style)}; script-src {_hash(script)}; connect-src 'self'; img-src data:; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return Answer(200, "text/html; charset=utf-8", html.encode(), policy)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
