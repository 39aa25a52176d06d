"""Installs Debian's Chromium if it is missing and this is root on a system with apt; else says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess

from browsing import MISSING, chromium


def main() -> None:
    if chromium() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, "stdout": subprocess.DEVNULL}
        for command in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            # An index that cannot be refreshed may still name the package; the tests say if it is not there.
            subprocess.run(["apt-get", "-q", *command], check=False, **quiet)  # type: ignore[call-overload]
    print(chromium() or MISSING)


if __name__ == "__main__":
    main()
