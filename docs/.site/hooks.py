"""The hook of MkDocs: pages whose text is outside of docs/, and links between files of the repository."""

from __future__ import annotations

import os
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

from bitwise_bench.documentation.page_links import OUTSIDE, ROOT, linked_paths, repository_path, rewritten, site_path


@event_priority(100)  # before the plugin that orders the pages
def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside of docs/, and the files of the repository to which pages link."""
    for path, uri in OUTSIDE.items():
        if path != "README.md":
            files.append(File.generated(config, uri, content=(ROOT / path).read_text(encoding="utf-8")))
    linked = set()
    for file in files.documentation_pages():
        linked |= linked_paths(file.content_string, repository_path(file.src_uri))
    for path in sorted(linked):
        place = site_path(path)
        if place is not None and files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, abs_src_path=os.fspath(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page with its links rewritten."""
    return rewritten(markdown, page.file.src_uri)
