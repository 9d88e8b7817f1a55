"""Text of files and arguments, as it may be printed: a terminal obeys control characters."""

from __future__ import annotations


def visible(text: str) -> str:
    """Return a text in which every character that cannot be printed, line ends included, is its number."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    return character if character.isprintable() else f"\\x{ord(character):02x}"
