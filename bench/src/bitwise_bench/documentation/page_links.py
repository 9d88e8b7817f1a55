"""Pages of the site whose text is outside of docs/, and links between files of the repository.

A link is written as it is followed in the repository.  It leads to a page of the
site where the site has that file, and to a copy of the file otherwise.  A link to a folder without a page is text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[4]

OUTSIDE = {
    "README.md": "index.md",
    "SOUNDNESS.md": "concepts/soundness.md",
    "ARCHITECTURE.md": "development/architecture.md",
    "CONTRIBUTING.md": "development/contributing.md",
    "changelog.d/README.md": "development/change-log.md",
    "core/OPERATIONS.md": "reference/operations.md",
    "core/README.md": "packages/core.md",
    "runtime/README.md": "packages/torch.md",
    "compiler/README.md": "packages/triton.md",
    "pytest_plugin/README.md": "packages/pytest.md",
    "conformance/README.md": "packages/conformance.md",
    "plugins/nvidia_ptx/README.md": "packages/nvidia-ptx.md",
    "plugins/nvidia_earlier/README.md": "packages/nvidia-earlier.md",
    "plugins/nvidia_sm90/README.md": "packages/nvidia-sm90.md",
    "plugins/nvidia_sm100/README.md": "packages/nvidia-sm100.md",
    "plugins/nvidia_sm120/README.md": "packages/nvidia-sm120.md",
    "plugins/cublas_profiles/README.md": "packages/cublas-profiles.md",
    "plugins/amd_gfx942/README.md": "packages/amd-gfx942.md",
    "plugins/rocblas_profiles/README.md": "packages/rocblas-profiles.md",
    "bench/README.md": "development/bench.md",
}
"""The page of the site by the file of the repository; README.md has the site's own first page instead."""

_LINK = re.compile(r"(?<=\]\()(?P<target>[^()\s]+)(?=\))")
_FENCE = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)
_WHOLE_LINK = r"\[(?P<text>[^\]]*)\]\({target}\)"


def repository_path(site_uri: str) -> str:
    """Return the path of a page's text in the repository."""
    found = [path for path, uri in OUTSIDE.items() if uri == site_uri and path != "README.md"]
    return found[0] if found else f"docs/{site_uri}"


def site_path(path: str) -> str | None:
    """Return where the site has a file of the repository, None for a folder and for what does not exist."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if (ROOT / path).is_dir():
        return OUTSIDE.get(f"{path}/README.md")
    if not (ROOT / path).is_file():
        return None
    return path.removeprefix("docs/")


def _parts(markdown: str) -> list[tuple[str, bool]]:
    """Divide a text into parts, each with whether it is code."""
    found, end = [], 0
    for fence in _FENCE.finditer(markdown):
        found += [(markdown[end : fence.start()], False), (fence[0], True)]
        end = fence.end()
    return [*found, (markdown[end:], False)]


def linked_paths(markdown: str, path: str) -> set[str]:
    """Return the paths of the repository to which the text of the file `path` links, existing or not."""
    texts = [text for text, is_code in _parts(markdown) if not is_code]
    found = (_resolved(link["target"], path) for text in texts for link in _LINK.finditer(text))
    return {target[0] for target in found if target is not None}


def _resolved(target: str, path: str) -> tuple[str, str] | None:
    """Return the path in the repository and the anchor of a link in the file `path`; None for other links."""
    name, _, anchor = target.partition("#")
    if not name or re.match(r"[a-z]+:", name):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name)), anchor


def rewritten(markdown: str, site_uri: str) -> str:
    """Return the text of a page with its links as the site needs them.  A link to nothing is left to MkDocs."""
    path = repository_path(site_uri)
    return "".join(text if is_code else _relinked(text, path, site_uri) for text, is_code in _parts(markdown))


def _relinked(text: str, path: str, site_uri: str) -> str:
    for target in {found["target"] for found in _LINK.finditer(text)}:
        resolved = _resolved(target, path)
        if resolved is None:
            continue
        place = site_path(resolved[0])
        if place is not None:
            new = posixpath.relpath(place, posixpath.dirname(site_uri) or ".")
            text = text.replace(f"]({target})", f"]({new}{'#' if resolved[1] else ''}{resolved[1]})")
        elif (ROOT / resolved[0]).is_dir():
            text = re.sub(_WHOLE_LINK.format(target=re.escape(target)), r"\g<text>", text)
    return text
