"""The target that a kernel's text states, kept between runs: to parse a text takes longer than to recall it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from bitwise_core.caching.key_digest import key_digest
from bitwise_core.checker.sources import Source
from bitwise_core.errors import InputError
from bitwise_core.plugins.references import Deferred

if TYPE_CHECKING:
    from bitwise_core.assembly.module import Module
    from bitwise_core.checker.readings import ReadingCache

FOLDER = "targets"
"""The folder of stated targets in the cache directory."""

Parser: TypeAlias = "Callable[[str, str], Module]"


def stated_target(source: Source, parse: Parser, cache: ReadingCache | None) -> str:
    """The target that the text of a kernel states to a parser.  Raises InputError where it cannot be parsed.

    It is recalled where this code has parsed the same text before, and kept where the text can be parsed.
    """
    key = _key(source, parse, cache)
    kept = None if cache is None else cache.read(cache.beside(FOLDER), key)
    if kept is not None:
        return kept.decode()
    target = _parsed(source, parse).target
    if cache is not None:
        cache.write(cache.beside(FOLDER), key, target.encode)
    return target


def _parsed(source: Source, parse: Parser) -> Module:
    from bitwise_core.assembly.module import AssemblyError

    try:
        return parse(source.text, source.name)
    except AssemblyError as error:
        raise InputError(str(error)) from None
    except RecursionError:
        raise InputError(f"{source.name}: is nested too deeply") from None


def _key(source: Source, parse: Parser, cache: ReadingCache | None) -> str | None:
    """The digest of everything that decides what a text states; None for a parser that is no reference."""
    if cache is None or not isinstance(parse, Deferred):
        return None
    return key_digest("stated target", parse.target, source.text, cache.environment)
