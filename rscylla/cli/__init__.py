"""The command line, ``rscylla``. Its packages (typer, rich) come with the extra ``cli``; nothing else imports them."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import NoReturn

__all__ = ["main"]

_EXTRAS = ("click", "lark", "rich", "sortedcontainers", "typer")


def main() -> NoReturn:
    """Run the command that ``sys.argv`` holds and exit with its code; see ``docs/cli.md``."""
    try:
        from .app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRAS:
            raise
        sys.exit(f'error: the command line needs the package {error.name}; pip install "rscylla[cli]"')
    code = run()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    # Everything is closed by now. The driver's exit handler is left out: now and then it waits five seconds for a
    # thread of its event loop that missed the call to stop. Source: cassandra/io/libevreactor.py, _cleanup.
    os._exit(code)
