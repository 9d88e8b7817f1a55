"""Naming a compiled kernel by its PTX text, whatever folder or interpreter compiled it."""

from __future__ import annotations

import hashlib
import re

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEBUG_SECTION = re.compile(r"\.section\s+\.debug_\w+\s*\{.*?\}", re.DOTALL)
_LOCATION = re.compile(r"^\s*\.(file|loc)\s[^\n]*$", re.MULTILINE)
_DEBUG_LABEL = re.compile(r"^\s*\$L__tmp\d+:\s*$", re.MULTILINE)


def normalised_ptx(ptx: str) -> str:
    """`ptx` without comments, `.file` and `.loc` lines, debug sections, debug labels and blank space at line ends."""
    text = _DEBUG_SECTION.sub("", _COMMENT.sub("", ptx))
    text = _DEBUG_LABEL.sub("", _LOCATION.sub("", text))
    lines = (" ".join(line.split()) for line in text.replace(", debug", "").splitlines())
    return "\n".join(line for line in lines if line)


def normalised_digest(ptx: str) -> str:
    """The SHA-256 of the normalised text, 64 hexadecimal digits: two equal digests are the same instructions."""
    return hashlib.sha256(normalised_ptx(ptx).encode()).hexdigest()
