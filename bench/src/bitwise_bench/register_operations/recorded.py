"""The file of recorded results: one result of each accepted form for each case, with the environment."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitwise_bench.register_operations.forms import Form
from bitwise_bench.register_operations.operands import CASES, SEED, WIDTHS, Words


@dataclass(frozen=True, slots=True)
class Recorded:
    """Results by the names of forms, and the message of ptxas for each form that it rejects."""

    environment: Mapping[str, str]
    results: Mapping[str, tuple[Words, ...]]
    rejected: Mapping[str, str]


def save(
    path: Path, environment: Mapping[str, str], results: Mapping[Form, tuple[Words, ...]], rejected: Mapping[Form, str]
) -> None:
    """Write a record as compressed JSON; equal results are stored once, and messages in order of their first use."""
    texts: dict[str, int] = {}
    messages: dict[str, int] = {}
    content = {
        "environment": dict(environment),
        "seed": SEED,
        "cases": CASES,
        "forms": {
            form.name: [
                texts.setdefault(_encoded(word, kind), len(texts))
                for word, kind in zip(words, form.results, strict=True)
            ]
            for form, words in results.items()
        },
        "rejected": {form.name: messages.setdefault(message, len(messages)) for form, message in rejected.items()},
    }
    content["results"] = list(texts)
    content["messages"] = list(messages)
    text = json.dumps(content, indent=0, separators=(",", ":")) + "\n"
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def load(path: Path, forms: tuple[Form, ...]) -> Recorded:
    """Return a record of these forms.  Raises ValueError for a record of other operands or forms."""
    content = json.loads(lzma.decompress(path.read_bytes()))
    if (content["seed"], content["cases"]) != (SEED, CASES):
        raise ValueError(
            f"{path.name} was recorded for the operands of {content['seed']!r}, not of {SEED!r}; record again"
        )
    by_name = {form.name: form for form in forms}
    known = {*content["forms"], *content["rejected"]}
    if known != by_name.keys():
        first = sorted(known ^ by_name.keys())[0]
        raise ValueError(f"{path.name} was recorded for other forms ({first} is in one of the two); record again")
    texts = content["results"]
    return Recorded(
        content["environment"],
        {
            name: tuple(_decoded(texts[index], kind) for index, kind in zip(places, by_name[name].results, strict=True))
            for name, places in content["forms"].items()
        },
        {name: content["messages"][index] for name, index in content["rejected"].items()},
    )


def _encoded(words: Words, kind: str) -> str:
    """Return the patterns as hexadecimal digits, each of the width of its kind; predicates as bits."""
    if kind == "pred":
        return np.packbits(words.astype(np.uint8)).tobytes().hex()
    return words.astype(f">u{WIDTHS[kind] // 8}").tobytes().hex()


def _decoded(text: str, kind: str) -> Words:
    data = np.frombuffer(bytes.fromhex(text), dtype=np.uint8)
    found = np.unpackbits(data) if kind == "pred" else data.view(f">u{WIDTHS[kind] // 8}")
    if len(found) != CASES:
        raise ValueError(f"a recorded result has {len(found)} cases instead of {CASES}; record again")
    return found.astype(np.uint64)
