"""Runs a script in cells, and writes it with its output as a page of Markdown to the current directory.

cd docs && python ../tests/support/render_cells.py ../examples/orders_analysis.py
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any


def rendered(script: Path) -> str:
    """Return the page. What the script writes to files is written below the current directory."""
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(script)}
    parts = []
    for kind, body in re.findall(r"^# %%([^\n]*)\n(.*?)(?=^# %%|\Z)", script.read_text(), re.DOTALL | re.MULTILINE):
        body = body.strip()
        if "markdown" in kind:
            parts.append(re.sub(r"^# ?", "", body, flags=re.MULTILINE))
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(body, script.name, "exec"), names)
        # Not "python": the tests of the docs run each block of that kind by itself.
        parts.append(f"```py\n{body}\n```")
        if printed.getvalue():
            parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    script = Path(sys.argv[1])
    Path(f"{script.stem.replace('_', '-')}.md").write_text(rendered(script))


if __name__ == "__main__":
    main()
