"""Text files that may be compressed by xz."""

from __future__ import annotations

import lzma
from pathlib import Path


def read_text(path: Path) -> str:
    """Return the text of a file, decompressed if its name ends in `.xz`."""
    content = path.read_bytes()
    return (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
