"""Makes page-light.png and page-dark.png of the page that ``examples/group_page.py`` shows: page_pictures.py docs.

It needs what the tox environment "web" has. It takes two minutes, so that the pictures show a process that died, and a
new generation.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from browsing import MISSING, chromium, opening

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "group_page.py"
PATIENCE_MS = 115_000


def main() -> None:
    parser = argparse.ArgumentParser(description="Take pictures of the page of a group.")
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    executable = chromium()
    if executable is None:
        sys.exit(MISSING)
    command = [sys.executable, str(EXAMPLE), "--json", "--seed", "7", "--seconds", "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo, opening(executable) as open_page:
        assert demo.stdout is not None
        url = json.loads(demo.stdout.readline())["url"]
        size = {"width": 1200, "height": 1240}
        pages = {scheme: open_page(url, color_scheme=scheme, viewport=size) for scheme in ("light", "dark")}
        for shown in pages.values():
            shown.load()
        # Time passes in the demo.
        pages["light"].page.wait_for_timeout(PATIENCE_MS)
        for scheme, shown in pages.items():
            shown.page.screenshot(path=directory / f"page-{scheme}.png")
        demo.terminate()


if __name__ == "__main__":
    main()
