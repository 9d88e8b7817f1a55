"""A digest of any value that decides a result: equal digests mean equal values, of equal types."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

import numpy as np
from pydantic import BaseModel


class NotAKey(TypeError):
    """A value, such as a path, whose digest would not decide a result."""


def key_digest(*values: object) -> str:
    """Return the SHA-256 of values in hexadecimal.

    Numbers, texts, bytes, sequences, mappings, sets, enumerations, arrays, dataclasses and pydantic models have a
    digest; every field of a record belongs to it, so that a field that is added later does too.  Raises NotAKey for
    any other type.
    """
    digest = hashlib.sha256()
    for part in _parts(values):
        digest.update(part)
    return digest.hexdigest()


def _parts(value: object) -> Iterator[bytes]:
    """Yield bytes that no other value has: each part begins with its type, and with its length where that varies."""
    kind = type(value)
    if value is None or kind is bool or kind is int:
        yield _framed("number", repr(value).encode())
    elif kind is float:
        assert isinstance(value, float)
        yield _framed("float", struct.pack(">d", value))
    elif kind is str:
        yield _framed("text", str(value).encode("utf-8", "surrogatepass"))
    elif isinstance(value, bytes):
        yield _framed("bytes", value)
    elif isinstance(value, Enum):
        yield _framed("enumeration", kind.__qualname__.encode())
        yield from _parts(value.value)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        yield _framed("array", f"{value.dtype.str} {value.shape}".encode())
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, tuple | list):
        yield _framed("sequence", str(len(value)).encode())
        for each in value:
            yield from _parts(each)
    elif isinstance(value, frozenset | set):
        yield _framed("set", b"".join(sorted(key_digest(each).encode() for each in value)))
    elif isinstance(value, Mapping):
        items = sorted(key_digest(name) + key_digest(each) for name, each in value.items())
        yield _framed("mapping", "".join(items).encode())
    elif isinstance(value, BaseModel):
        yield _framed("record", kind.__qualname__.encode())
        yield from _parts({**dict(value), "": value.__pydantic_extra__, " ": value.__pydantic_private__})
    elif is_dataclass(value) and not isinstance(value, type):
        yield _framed("record", kind.__qualname__.encode())
        yield from _parts({each.name: getattr(value, each.name) for each in fields(value)})
    else:
        raise NotAKey(f"a {kind.__name__} has no digest")


def _framed(kind: str, content: bytes) -> bytes:
    return f"{kind} {len(content)}:".encode() + content
