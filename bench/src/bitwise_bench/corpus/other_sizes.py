"""The corpus with sizes drawn by a seed, so that something can be measured on launches that nobody has looked at.

The functions that list configurations have their sizes as constants.  A size is an integer of at least 33 that is no
power of two, or the last integer of a tuple that also names a type.  Tiles and heads are powers of two and keep their
values.  What a drawn size makes impossible, the compiler rejects.
"""

from __future__ import annotations

import random
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any

from bitwise_bench.corpus.cases import Case, CaseError
from bitwise_bench.corpus.catalogue import MODULES
from bitwise_bench.corpus.targets import for_target

SMALLEST, FACTORS, LARGEST_UNIT = 33, (0.6, 0.75, 1.25, 1.5, 1.75, 2.0), 16


def cases(target: str, seed: int) -> tuple[Case, ...]:
    """Return the configurations for an architecture, in their order; equal seeds have equal sizes for every target."""
    drawn = random.Random(seed)
    listed: list[Case] = []
    for name in MODULES:
        module = import_module(f"bitwise_bench.corpus.kernels.{name}")
        makers = _makers(module)
        listed += _with_sizes(module, makers, drawn)
    known = set[str]()
    found = []
    for case in for_target(listed, target):
        if case.id not in known:
            known.add(case.id)
            found.append(case)
    return tuple(found)


def _makers(module: ModuleType) -> list[str]:
    """Return the names of the functions of a module that list configurations, in the order of the module."""
    return [name for name, value in vars(module).items() if isinstance(value, FunctionType) and name.startswith("_")]


def _with_sizes(module: ModuleType, makers: list[str], drawn: random.Random) -> list[Case]:
    scope = dict(vars(module))
    for name in makers:
        maker = vars(module)[name]
        code = _resized_code(maker.__code__, drawn)
        scope[name] = FunctionType(code, scope, name, maker.__defaults__, maker.__closure__)
    list_all = FunctionType(_resized_code(module.cases.__code__, drawn), scope, "cases")
    try:
        return list(list_all())
    except (CaseError, ValueError, AssertionError):
        return []


def _resized_code(code: CodeType, drawn: random.Random) -> CodeType:
    return code.replace(co_consts=tuple(_resized(constant, drawn, is_last=False) for constant in code.co_consts))


def _resized(constant: Any, drawn: random.Random, *, is_last: bool) -> Any:
    """Return a constant with other sizes; `is_last` says that it is the last integer of a tuple with a type."""
    if isinstance(constant, tuple):
        typed = any(isinstance(each, str) for each in constant)
        integers = [index for index, each in enumerate(constant) if type(each) is int]
        last = integers[-1] if typed and integers else None
        return tuple(_resized(each, drawn, is_last=index == last) for index, each in enumerate(constant))
    if type(constant) is not int or constant < SMALLEST or not (is_last or constant & (constant - 1)):
        return constant
    unit = min(constant & -constant, LARGEST_UNIT)
    return max(unit, round(constant * drawn.choice(FACTORS) / unit) * unit)
