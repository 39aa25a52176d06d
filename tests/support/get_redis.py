"""Installs Debian's Redis server if it is missing and this is root on a system with apt; else says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess

MISSING = "no redis-server on the path: apt-get install redis-server"


def main() -> None:
    if shutil.which("redis-server") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        # RUNLEVEL: the package must not start a server of its own.
        quiet = {"env": os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}}
        for command in (["update"], ["install", "-y", "--no-install-recommends", "redis-server"]):
            # An index that cannot be refreshed may still name the package; the tests say if it is not there.
            subprocess.run(["apt-get", "-q", *command], check=False, stdout=subprocess.DEVNULL, **quiet)  # type: ignore[call-overload]
    print(shutil.which("redis-server") or MISSING)


if __name__ == "__main__":
    main()
