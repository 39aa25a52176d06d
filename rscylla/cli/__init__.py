"""The command line, ``rscylla``. Its packages (typer, rich) come with the extra ``cli``; nothing else imports them."""

from __future__ import annotations

import sys

__all__ = ["main"]

_EXTRAS = ("click", "lark", "rich", "sortedcontainers", "typer")


def main() -> None:
    """Run the command that ``sys.argv`` holds and exit with its code; see ``docs/cli.md``."""
    try:
        from .app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRAS:
            raise
        sys.exit(f'error: the command line needs the package {error.name}; pip install "rscylla[cli]"')
    sys.exit(run())
