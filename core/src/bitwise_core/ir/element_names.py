"""Places in buffers as readers name them: by elements, as in `X[3]`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NO_WIDTHS: Mapping[str, int] = MappingProxyType({})


def element_name(buffer: str, offset: int, size: int, width: int | None = None) -> str:
    """Return the name of `size` bytes at a byte offset of a buffer whose elements have `width` bytes.

    `X[3]` is one element, `X[4:8]` are four.  The default width is `size`.
    """
    width = width or size
    if offset % width == 0 and size % width == 0:
        first, count = offset // width, size // width
        return f"{buffer}[{first}]" if count == 1 else f"{buffer}[{first}:{first + count}]"
    first, low = divmod(offset, width)
    places = f"byte {low}" if size == 1 else f"bytes {low} to {low + size - 1}"
    return f"{places} of {buffer}[{first}]"
