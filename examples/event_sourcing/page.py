"""``/``: one page that shows the shop and commands it. One answer holds all of it: it loads nothing else.

The Content-Security-Policy names the page's own style and script by their hashes, lets the script ask this service
alone, and forbids it to make HTML or code from text. Whatever a name or an error holds, the browser runs nothing of it.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from starlette.responses import HTMLResponse

from .guards import NOTHING

__all__ = ["page"]

WEB = Path(__file__).parent / "web"


@cache
def page() -> HTMLResponse:
    """Return the page."""
    html, style, script = ((WEB / f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    # In this order: the script holds no placeholder of the style.
    html = html.replace("/* page.css */", style).replace("/* page.js */", script)
    policy = (
        f"{NOTHING}; style-src {_hash(style)}; script-src {_hash(script)}; connect-src 'self'; img-src data:; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
