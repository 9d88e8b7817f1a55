"""A digest of any value that decides a result: equal digests mean equal values, of equal types."""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeGuard

from pydantic import BaseModel

if TYPE_CHECKING:
    import numpy as np


class NotAKey(TypeError):
    """A value, such as a path, whose digest would not decide a result."""


def key_digest(*values: object) -> str:
    """Return the SHA-256 of values in hexadecimal.

    Numbers, texts, bytes, sequences, mappings, sets, enumerations, arrays, dataclasses and pydantic models have a
    digest; every field of a record belongs to it, so that a field that is added later does too.  Raises NotAKey for
    any other type.
    """
    parts: list[bytes] = []
    _add_parts(values, parts)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _add_parts(value: object, parts: list[bytes]) -> None:
    """Append bytes that no other value has: each part begins with its type, and with its length where that varies."""
    kind = type(value)
    if value is None or kind is bool or kind is int:
        parts.append(_framed("number", repr(value).encode()))
    elif kind is float:
        assert isinstance(value, float)
        parts.append(_framed("float", struct.pack(">d", value)))
    elif kind is str:
        parts.append(_framed("text", str(value).encode("utf-8", "surrogatepass")))
    elif isinstance(value, bytes):
        parts.append(_framed("bytes", value))
    elif isinstance(value, Enum):
        parts.append(_framed("enumeration", kind.__qualname__.encode()))
        _add_parts(value.value, parts)
    elif _is_plain_array(value):
        parts.append(_framed("array", f"{value.dtype.str} {value.shape}".encode()))
        parts.append(value.tobytes())
    elif isinstance(value, tuple | list):
        parts.append(_framed("sequence", str(len(value)).encode()))
        for each in value:
            _add_parts(each, parts)
    elif isinstance(value, frozenset | set):
        parts.append(_framed("set", b"".join(sorted(key_digest(each).encode() for each in value))))
    elif isinstance(value, Mapping):
        _add_items("mapping", value, parts)
    elif isinstance(value, BaseModel):
        _add_record(kind, {**dict(value), "": value.__pydantic_extra__, " ": value.__pydantic_private__}, parts)
    elif is_dataclass(value) and not isinstance(value, type):
        _add_record(kind, {each.name: getattr(value, each.name) for each in fields(value)}, parts)
    else:
        raise NotAKey(f"a {kind.__name__} has no digest")


def _is_plain_array(value: object) -> TypeGuard[np.ndarray[Any, Any]]:
    """Return whether a value is an array of numbers.  There is none in a process that has not imported NumPy."""
    if "numpy" not in sys.modules:
        return False
    import numpy as np

    return isinstance(value, np.ndarray) and not value.dtype.hasobject


def _add_record(kind: type, content: Mapping[str, object], parts: list[bytes]) -> None:
    parts.append(_framed("record", kind.__qualname__.encode()))
    _add_items("fields", content, parts)


def _add_items(kind: str, content: Mapping[Any, object], parts: list[bytes]) -> None:
    """Append the items of a mapping in an order that only its keys decide."""
    parts.append(_framed(kind, str(len(content)).encode()))
    texts = all(type(name) is str for name in content)
    for name in sorted(content) if texts else sorted(content, key=key_digest):
        _add_parts(name, parts)
        _add_parts(content[name], parts)


def _framed(kind: str, content: bytes) -> bytes:
    return b"%b %d:%b" % (kind.encode(), len(content), content)
