"""Constructors with which the kernel families list their configurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bitwise_bench.corpus.cases import Argument, Array, Case, DrawKind, Scalar


def given(name: str, dtype: str, elements: int, kind: DrawKind = "float", below: int = 0, offset: int = 0) -> Array:
    """Return an input buffer."""
    return Array(name, dtype, elements, "input", kind, below, offset)


def index(name: str, dtype: str, elements: int, below: int) -> Array:
    """Return an input buffer of integers from 0 to `below` - 1."""
    return Array(name, dtype, elements, "input", "index", below)


def result(name: str, dtype: str, elements: int, offset: int = 0) -> Array:
    """Return an output buffer."""
    return Array(name, dtype, elements, "output", "float", 0, offset)


def updated(name: str, dtype: str, elements: int, kind: DrawKind = "float") -> Array:
    """Return a buffer that the kernel reads and writes."""
    return Array(name, dtype, elements, "inout", kind)


def scratch(name: str, dtype: str, elements: int) -> Array:
    """Return a workspace of zeros; its bytes are not compared."""
    return Array(name, dtype, elements, "scratch", "zero")


def numbers(**values: int | float) -> list[Argument]:
    """Return run-time scalars by parameter name."""
    return [Scalar(name, value) for name, value in values.items()]


def ceil_div(total: int, part: int) -> int:
    """Return total / part, rounded up."""
    return -(-total // part)


def power_of_two(count: int) -> int:
    """Return the smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def stored_as(family: str, dtype: str, out: str, rest: str) -> tuple[str, str]:
    """Return the family and the group of configurations that read `dtype` and store `out`.

    Most configurations store fp32, so that a difference in the last bit of a sum is visible in the bytes.  Those that
    round the result to 16 bits form the family `narrow_outputs`.
    """
    if out in ("fp16", "bf16"):
        return "narrow_outputs", f"{family}-{dtype}-{rest}"
    return family, f"{dtype}-{rest}" if out == dtype else f"{dtype}-{out}-{rest}"


def configure(
    family: str,
    group: str,
    function: Any,
    arguments: Sequence[Argument],
    grid: Sequence[int],
    *,
    warps: int = 4,
    stages: int = 3,
    tags: Sequence[str] = (),
    options: dict[str, Any] | None = None,
    **constants: Any,
) -> Case:
    """Return one configuration, named by its function, constants, `tags`, warps, stages and options.

    `tags` distinguishes configurations that differ in nothing else of these, such as by a run-time scalar.
    """
    parts = [function.__name__]
    parts += [f"{name.lower()}={_label(value)}" for name, value in constants.items()]
    parts += [*tags, f"warps={warps}", f"stages={stages}"]
    parts += [f"{name}={_label(value)}" for name, value in (options or {}).items()]
    launch = (*grid, 1, 1)[:3]
    return Case(
        family,
        group,
        ",".join(parts),
        function,
        constants,
        options or {},
        (launch[0], launch[1], launch[2]),
        tuple(arguments),
        warps,
        stages,
        frozenset(tags),
    )


def flat(
    family: str,
    group: str,
    function: Any,
    arguments: Sequence[Argument],
    size: int,
    shapes: tuple[tuple[int, int], ...] = ((128, 1), (256, 4), (1024, 4), (1024, 8)),
    **constants: Any,
) -> list[Case]:
    """Return configurations of a kernel over `size` elements, one for each (block size, warps) of `shapes`.

    Blocks of 256 elements are also compiled without contraction.
    """
    return [
        configure(
            family,
            group,
            function,
            arguments,
            (ceil_div(size, block),),
            warps=warps,
            options={"enable_fp_fusion": fusion},
            BLOCK=block,
            **constants,
        )
        for block, warps in shapes
        for fusion in ((True, False) if block == 256 else (True,))
    ]


def _label(value: Any) -> str:
    return str(getattr(value, "name", value)).lower()
