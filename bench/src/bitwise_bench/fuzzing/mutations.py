"""Random changes of a file's bytes, and of the values of JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

TOKENS = (
    b"0", b"-1", b"1", b"2147483647", b"2147483648", b"4294967296", b"-9223372036854775809", b"18446744073709551616",
    b"9" * 70, b"1e400", b"-0.0", b"nan", b"NaN", b"inf", b"Infinity", b"null", b"true", b'""', b"{}", b"[]", b"{",
    b"}", b"[", b"]", b"(", b")", b"<", b">", b",", b";", b":", b'"', b"'", b"\\", b"\\u0000", b"\\ud800", b"\x00",
    b"\x1b[31m",
    b"\xff\xfe", b"\xc3", b"\n", b"\r", b"\t", b"//", b"/*", b"*/", b"%", b"%r1", b"self", b"__class__", b"../", b"#",
    b"0x7fffffff", b"0fFF800000", b"0d7FF0000000000001", b"4194304", b"16777217",
)  # fmt: skip
"""What readers may take for something else."""

NUMBERS = (
    0, 1, -1, 2, 3, 7, 255, 2**24, 2**31 - 1, 2**31, 2**32, 2**40, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e38,
    1e308,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    *NUMBERS,
    "",
    "0",
    "nan",
    "inf",
    "\x1b[31m",
    "\ud800",
    "self",
    "a" * 300,
    [],
    {},
    [[]],
)


def mutated(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """Return data with one to eight random changes; `others` are files to take parts from."""
    content = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        content = _changed(content, others, source)
    return bytes(content[: 1 << 20])


def _changed(content: bytearray, others: Sequence[bytes], source: random.Random) -> bytearray:
    size = len(content)
    start = source.randrange(size + 1)
    end = min(size, start + source.choice((1, 1, 2, 4, 8, 16, 64, 256)))
    match source.randrange(10):
        case 0 if size:
            content[start % size] ^= 1 << source.randrange(8)
        case 1:
            del content[start:end]
        case 2:
            content[start:start] = content[start:end] * source.choice((1, 2, 50))
        case 3:
            content[start:end] = source.choice(TOKENS)
        case 4 | 5:
            content[start:start] = source.choice(TOKENS)
        case 6:
            return _line_changed(content, source)
        case 7:
            other = source.choice(others)
            there = source.randrange(len(other) + 1)
            content[start:end] = other[there : there + source.choice((1, 8, 64, 512))]
        case 8:
            del content[start:]
        case _:
            return _number_changed(content, source)
    return content


def _line_changed(content: bytearray, source: random.Random) -> bytearray:
    """Remove, repeat or exchange lines."""
    lines = content.split(b"\n")
    one, other = source.randrange(len(lines)), source.randrange(len(lines))
    match source.randrange(3):
        case 0:
            del lines[one]
        case 1:
            lines.insert(other, lines[one])
        case _:
            lines[one], lines[other] = lines[other], lines[one]
    return bytearray(b"\n".join(lines))


def _number_changed(content: bytearray, source: random.Random) -> bytearray:
    """Replace one of the digits and what digits follow it."""
    digits = [place for place, each in enumerate(content) if 48 <= each < 58]
    if not digits:
        return content
    start = end = source.choice(digits)
    while end < len(content) and 48 <= content[end] < 58:
        end += 1
    content[start:end] = str(source.choice(NUMBERS)).encode()
    return content


def changed_json(data: bytes, source: random.Random) -> bytes:
    """Return JSON with one to three of its values replaced, removed or repeated; any other data as it is."""
    try:
        found = json.loads(data)
    except ValueError:
        return data
    for _ in range(source.choice((1, 1, 2, 3))):
        places = list(_places(found))
        if not places:
            break
        holder, key = source.choice(places)
        match source.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.insert(key, deepcopy(holder[key]))
            case 2 if isinstance(holder, dict):
                holder[source.choice(("", "self", "kind", str(key) + "x"))] = deepcopy(holder[key])
            case 3:
                other, place = source.choice(places)
                if isinstance(other, list) and isinstance(place, int) and place < len(other):
                    holder[key] = json.loads(json.dumps(other[place]))
            case _:
                holder[key] = deepcopy(source.choice(VALUES))
    return json.dumps(found).encode()


def _places(value: Any) -> Any:
    """Yield every list and object of a value with each of its keys."""
    keys = range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])
