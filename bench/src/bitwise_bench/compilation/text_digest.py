"""Digests of assembly text that do not depend on where the kernel was compiled."""

from __future__ import annotations

import hashlib
import re

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEBUG_SECTION = re.compile(r"\.section\s+\.debug_\w+\s*\{.*?\}", re.DOTALL)
_LOCATION = re.compile(r"^\s*\.(file|loc)\s[^\n]*$", re.MULTILINE)
_DEBUG_LABEL = re.compile(r"^\s*\$L__tmp\d+:\s*$", re.MULTILINE)

_PTX = re.compile(r"^\s*\.version\s", re.MULTILINE)
_GNU_COMMENT = re.compile(r";[^\n]*|//[^\n]*")
_GNU_DEBUG_SECTION = re.compile(r'^\s*\.section\s+"?\.debug_\w+.*?(?=^\s*\.(?:section|text|data)\b|\Z)', re.M | re.S)
_GNU_DIRECTIVE = re.compile(r"^\s*\.(?:file|loc|ident|cfi_\w+)\b[^\n]*$", re.MULTILINE)
_GNU_DEBUG_LABEL = re.compile(r"^\s*\.L(?:tmp|func_begin|func_end|debug\w*|info\w*)\d*:\s*$", re.MULTILINE)


def normalised_text(text: str) -> str:
    """Return a text without comments, debug sections, debug lines, debug labels and redundant white space.

    A text with `.version` is PTX, which has braces around a section; any other is in the syntax of the GNU assembler.
    """
    if _PTX.search(text):
        text = _DEBUG_SECTION.sub("", _COMMENT.sub("", text))
        text = _DEBUG_LABEL.sub("", _LOCATION.sub("", text)).replace(", debug", "")
    else:
        text = _GNU_DEBUG_SECTION.sub("", _GNU_COMMENT.sub("", text))
        text = _GNU_DEBUG_LABEL.sub("", _GNU_DIRECTIVE.sub("", text))
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def normalised_digest(text: str) -> str:
    """Return the SHA-256 of the normalised text, 64 hexadecimal digits; equal digests mean equal instructions."""
    return hashlib.sha256(normalised_text(text).encode()).hexdigest()
