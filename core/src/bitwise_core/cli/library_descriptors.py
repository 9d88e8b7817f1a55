"""The descriptor of what a library runs, asked for on the command line without a device."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bitwise_core.checker.kernel_files import InputError
from bitwise_core.descriptors import DescriptorError, GEMMDesc
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import ExplainableProfile, Explanation, NotCovered

_EIGHT_BITS = frozenset({"e4m3", "e5m2"})


def described(
    library: str, architecture: str | None, sizes: tuple[int, int, int], dtypes: tuple[str, str], output: str | None,
    transposes: str | None, configuration: Iterable[str], records: Path | None,
) -> Explanation:  # fmt: skip
    """What a library `NAME:VERSION` runs for a product on an architecture.  Raises InputError.

    Operands of 8 bits lie NT and give bf16, where nothing else is said; others lie NN and give their own type.
    """
    profile = _profile(library, architecture)
    narrow = dtypes[0] in _EIGHT_BITS
    letters = transposes or ("NT" if narrow else "NN")
    if len(letters) != 2 or set(letters) - {"N", "T"}:
        raise InputError(f"--transposes: {letters!r} is none of NN, NT, TN and TT")
    m, n, k = sizes
    for each in (*dtypes, *([output] if output else [])):
        if each not in FLOAT_FORMATS:
            raise InputError(f"there is no floating-point type {each!r}; there are {', '.join(FLOAT_FORMATS)}")
    given = _configuration(configuration)
    try:
        problem = GEMMProblem(
            m=m, n=n, k=k, a=dtypes[0], b=dtypes[1], out=output or ("bf16" if narrow else dtypes[0]),
            transpose_a=letters[0] == "T", transpose_b=letters[1] == "T",
        )  # fmt: skip
        found = profile.explained(problem, given, records)
    except (DescriptorError, NotCovered) as error:
        raise InputError(str(error)) from None
    if not isinstance(found.desc, GEMMDesc):
        raise InputError(f"{library} describes this product by a {type(found.desc).__name__}, which is not drawn")
    return found


def _profile(library: str, architecture: str | None) -> ExplainableProfile:
    name, _, version = library.partition(":")
    profiles = [each for each in registry.default().profiles if isinstance(each, ExplainableProfile)]
    known = "; ".join(sorted(f"{each.library}:{each.version} on {each.architecture}" for each in profiles))
    there = f"there are {known}" if known else "no installed plugin knows a library's products"
    if not version or architecture is None:
        raise InputError(f"--library takes a library and its version, and --arch where it runs: {there}")
    for each in profiles:
        if (each.library, each.version, each.architecture) == (name, version, architecture):
            return each
    raise InputError(f"{name} {version} on {architecture} is not measured: {there}")


def _configuration(given: Iterable[str]) -> dict[str, Any] | None:
    """NAME=VALUE pairs, separated by commas or given one by one, or an object of JSON; None where nothing is given."""
    found: dict[str, Any] = {}
    several = list(given)
    for text in several:
        if text.lstrip().startswith("{"):
            try:
                content = json.loads(text)
            except ValueError as error:
                raise InputError(f"--config: this is no JSON ({error})") from None
            found |= content
            continue
        for pair in filter(None, (each.strip() for each in text.split(","))):
            name, separator, value = pair.partition("=")
            if not separator or not value.strip().isdecimal():
                raise InputError(f"--config {pair}: give NAME=NUMBER pairs, as algorithm=66, or an object of JSON")
            found[name.strip()] = int(value)
    return found if several else None
