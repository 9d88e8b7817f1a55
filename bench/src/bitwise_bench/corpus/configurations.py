"""Short forms that the kernel families share when they list their cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bitwise_bench.corpus.cases import Argument, Array, Case, DrawKind, Scalar


def given(name: str, dtype: str, elements: int, kind: DrawKind = "float", below: int = 0, offset: int = 0) -> Array:
    """An input buffer."""
    return Array(name, dtype, elements, "input", kind, below, offset)


def index(name: str, dtype: str, elements: int, below: int) -> Array:
    """An input buffer of integers from 0 to `below` - 1."""
    return Array(name, dtype, elements, "input", "index", below)


def result(name: str, dtype: str, elements: int, offset: int = 0) -> Array:
    """An output buffer."""
    return Array(name, dtype, elements, "output", "float", 0, offset)


def updated(name: str, dtype: str, elements: int, kind: DrawKind = "float") -> Array:
    """A buffer that the kernel reads and writes."""
    return Array(name, dtype, elements, "inout", kind)


def scratch(name: str, dtype: str, elements: int) -> Array:
    """A buffer of zeros that the kernel may use; its bytes are not compared."""
    return Array(name, dtype, elements, "scratch", "zero")


def numbers(**values: int | float) -> list[Argument]:
    """Run-time scalars by parameter name."""
    return [Scalar(name, value) for name, value in values.items()]


def ceil_div(total: int, part: int) -> int:
    """How many parts cover the total."""
    return -(-total // part)


def power_of_two(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << (count - 1).bit_length()


def stored_as(family: str, dtype: str, out: str, rest: str) -> tuple[str, str]:
    """The family and group of cases that read `dtype` and store `out`.

    Most cases store fp32, so that a sum that differs in its last bit shows in the bytes.  Cases that round the
    result to 16 bits go to the family `narrow_outputs`: a sample of what that rounding hides.
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
    """One case; its name spells the function, the constants, `tags`, warps, stages and options: unique and stable.

    `tags` names what else sets the case apart, such as a run-time scalar that varies within the group.
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
    """Cases of a kernel over `size` elements, `shapes` of a block's elements and warps; one of them also unfused."""
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
