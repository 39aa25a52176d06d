"""The command line, ``rscylla``. Its packages (typer, rich) come with the extra ``cli``; nothing else imports them."""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

from .shared.standard import output_error, prepare, say, unwritable

__all__ = ["main"]

_EXTRAS = ("click", "lark", "rich", "sortedcontainers", "typer")


def main() -> NoReturn:
    """Run the command that ``sys.argv`` holds and exit with its code; see ``docs/cli.md``."""
    prepare()
    try:
        from .app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRAS:
            raise
        sys.exit(f'error: the command line needs the package {error.name}; pip install "rscylla[cli]"')
    from .shared.failures import catch_strays

    catch_strays()
    code = run()
    logging.shutdown()
    if (failure := unwritable()) is not None and code == 0 and not isinstance(failure, BrokenPipeError):
        say(f"error: {output_error(failure)}")
        code = 1
    # Everything is closed by now. Skips the driver's exit handler, which sometimes waits five seconds for a thread of
    # its event loop that missed the signal to stop. Source: cassandra/io/libevreactor.py, _cleanup.
    os._exit(code)
