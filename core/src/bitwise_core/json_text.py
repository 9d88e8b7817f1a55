"""JSON of users: what a reader could take for something else is an error.

Python's `json` takes the last of two equal keys, reads numbers beyond fp64 as infinities, and accepts NaN and halves of
UTF-16 pairs.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

_MAXIMUM_DIGITS = 60
"""No field of any file takes an integer of more digits."""


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises ValueError, with the end of a sentence, for text that is not JSON, a key that an object has twice, a number
    that is infinite, no number or beyond fp64, an integer of more than 60 digits, text that UTF-8 cannot hold, and
    values that are nested too deeply.
    """
    try:
        found = json.loads(
            text.removeprefix("\ufeff"),  # editors of Windows write a byte order mark
            object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant,
        )  # fmt: skip
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("values are nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a text contains half of a UTF-16 pair") from None
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for index, key in enumerate(keys) if key in keys[:index])
        raise ValueError(f"an object has the key {repeated!r} twice: remove one")
    return found


def _integer(text: str) -> int:
    if len(text) > _MAXIMUM_DIGITS:
        raise ValueError(f"an integer has {len(text)} digits; at most {_MAXIMUM_DIGITS} are read")
    return int(text)


def _number(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"the number {text[:_MAXIMUM_DIGITS]} is beyond fp64")
    return found


def _constant(text: str) -> NoReturn:
    raise ValueError(f'{text} is no number of JSON; where a field takes it, write a text, such as "inf" or "nan"')
