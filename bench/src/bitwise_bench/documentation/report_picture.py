"""The picture of a report in README.md: python -m bitwise_bench.documentation.report_picture.

It needs Triton, which compiles the kernels, and Chromium, which draws the page; `--browser` names its program.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bitwise_bench import demo
from bitwise_bench.documentation.page_links import ROOT

PICTURE = ROOT / "docs" / "pictures" / "report.png"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the picture.  The exit status is that of the demonstration or of the browser."""
    parser = argparse.ArgumentParser(prog="python -m bitwise_bench.documentation.report_picture")
    parser.add_argument("--browser", default="chromium", help="the program of Chromium")
    parser.add_argument("--size", default="1100,1330", help="the size of the picture in pixels")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        if status := demo.main(["--html", str(page), "softmax_rows"]):
            return status
        command = [
            options.browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--window-size={options.size}", f"--screenshot={PICTURE}", page.as_uri(),
        ]  # fmt: skip
        return subprocess.run(command, check=False, timeout=120, capture_output=True).returncode


if __name__ == "__main__":
    sys.exit(main())
