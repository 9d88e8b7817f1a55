"""Pages of a built site that would load something from another host.

    python -m bitwise_bench.documentation.foreign_requests FOLDER

prints each of them and ends with 1, or prints their number and ends with 0.  Links that a reader follows are allowed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

_LOADED = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch", "manifest"}
_FOREIGN = re.compile(r"(?:https?:)?//")
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\s\"')]+)")


class _LoadedParts(HTMLParser):
    """Collects what a page loads from other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        images = [part.split()[0] for part in given.get("srcset", "").split(",") if part.strip()]
        loaded = [given.get("src", ""), *images]
        if tag == "link" and _LOADED & set(given.get("rel", "").split()):
            loaded.append(given.get("href", ""))
        if tag == "object":
            loaded.append(given.get("data", ""))
        self.found += [url for url in loaded if _FOREIGN.match(url)]
        self.found += _IN_STYLE.findall(given.get("style", ""))


def foreign_requests(name: str, text: str) -> list[str]:
    """Return the URLs of other hosts that a page or a style sheet loads."""
    if name.endswith(".css"):
        return _IN_STYLE.findall(text)
    page = _LoadedParts()
    page.feed(text)
    return page.found


def main(arguments: Sequence[str]) -> int:
    """Print what the pages of a folder load from other hosts."""
    folder = Path(arguments[0])
    pages = sorted(path for path in folder.rglob("*") if path.suffix in (".html", ".css"))
    found = [
        f"{path.relative_to(folder)}: {url}"
        for path in pages
        for url in foreign_requests(path.name, path.read_text(encoding="utf-8"))
    ]
    print(*(found or [f"{len(pages)} pages and style sheets load nothing from other hosts"]), sep="\n")
    return int(bool(found) or not pages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
