"""The descriptors of what a library runs for products, found without a device: `--library NAME:VERSION`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bitwise_core.descriptors import DescriptorError, GEMMDesc
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.errors import InputError
from bitwise_core.json_text import parse_json
from bitwise_core.known_distributions import advice
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import ExplainableProfile, NotCovered

_EIGHT_BITS = frozenset({"e4m3", "e5m2"})


def explain_product(
    library: str, architecture: str | None, sizes: tuple[int, int, int], dtypes: tuple[str, str], output: str | None,
    transposes: str | None, configuration: Iterable[str], records: Path | None,
) -> tuple[GEMMDesc, tuple[str, ...]]:  # fmt: skip
    """Return the descriptor of what a library `NAME:VERSION` runs for a product on an architecture, and notes on it.

    `sizes` are m, n and k.  The layouts (`transposes`) and the output's type are by default NT and bf16 for 8-bit
    operands, NN and the operands' type for others.  Raises InputError.
    """
    profile = explainable_profile(library, architecture)
    narrow = dtypes[0] in _EIGHT_BITS
    letters = transposes or ("NT" if narrow else "NN")
    if len(letters) != 2 or set(letters) - {"N", "T"}:
        raise InputError(f"--transposes: {letters!r} is not a pair of layouts: give NN, NT, TN or TT")
    m, n, k = sizes
    for each in (*dtypes, *([output] if output else [])):
        if each not in FLOAT_FORMATS:
            raise InputError(f"there is no floating-point type {each!r}; choose one of {', '.join(FLOAT_FORMATS)}")
    settings = configuration_of(configuration)
    try:
        problem = GEMMProblem(
            m=m, n=n, k=k, a=dtypes[0], b=dtypes[1], out=output or ("bf16" if narrow else dtypes[0]),
            transpose_a=letters[0] == "T", transpose_b=letters[1] == "T",
        )  # fmt: skip
        found = profile.explain(problem, settings, records)
    except (DescriptorError, NotCovered) as error:
        raise InputError(str(error)) from None
    if not isinstance(found.desc, GEMMDesc):
        raise InputError(
            f"{library} computes this product as a {type(found.desc).__name__}; only a GEMMDesc can be explained here"
        )
    return found.desc, found.notes


def explainable_profile(library: str, architecture: str | None) -> ExplainableProfile:
    """Return the profile of a library `NAME:VERSION` on an architecture, by default the only one that has it.

    Profiles of one library, version and architecture return the same descriptors: the first one is taken, and those
    behind it are not loaded.  Raises InputError.
    """
    name, _, version = library.partition(":")
    profiles: list[ExplainableProfile] = []
    for each in registry.default().profiles:
        if isinstance(each, ExplainableProfile):
            profiles.append(each)
            if (each.library, each.version, each.architecture) == (name, version, architecture):
                return each
    of_version = [each for each in profiles if (each.library, each.version) == (name, version)]
    chosen = {each.architecture: each for each in of_version if architecture in (None, each.architecture)}
    if len(chosen) == 1:
        return next(iter(chosen.values()))
    if chosen:
        names = ", ".join(sorted(chosen))
        raise InputError(f"--library: {library} is described on several architectures: choose one of {names} by --arch")
    known = "; ".join(sorted(f"{each.library}:{each.version} on {each.architecture}" for each in profiles))
    available = f"available: {known}" if known else "no installed plugin describes a library"
    missing = advice("libraries", name) or ("" if known else advice("libraries"))
    available += f"; {missing}" if missing else ""
    if not version:
        raise InputError(f"--library takes NAME:VERSION; {available}")
    where = "" if architecture is None else f" on {architecture}"
    raise InputError(f"--library: {name} {version}{where} is not described; {available}")


def configuration_of(options: Iterable[str]) -> dict[str, Any] | None:
    """Return the configuration in --config options: NAME=NUMBER pairs separated by commas, or JSON objects.

    None where there is no option.  Raises InputError.
    """
    found: dict[str, Any] = {}
    texts = list(options)
    for text in texts:
        if text.lstrip().startswith("{"):
            try:
                content = parse_json(text)
            except ValueError as error:
                raise InputError(f"--config: this is not JSON ({error})") from None
            found |= content
            continue
        for pair in filter(None, (each.strip() for each in text.split(","))):
            name, separator, value = pair.partition("=")
            if not separator or not value.strip().isdecimal():
                raise InputError(f"--config {pair}: give NAME=NUMBER pairs, such as algorithm=66, or a JSON object")
            found[name.strip()] = int(value)
    return found if texts else None
