"""Kernels in clusters of blocks: their simulation against NumPy, and Triton programs divided among several blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="compiles Triton kernels")

from assembly_only import assembly_only
from bitwise_bench.clusters.programs import CLUSTERS, THREADS, Program, ptx_programs, triton_programs
from bitwise_bench.gpu.driver import assemble
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_sm90.architecture import SM90

PTX = {each.name: each for each in ptx_programs()}
KERNELS = ("affine", "row_sum", "column_sum", "softmax", "product", "copied_product")
TRITON = [f"{kernel} in clusters of {blocks}" for kernel in KERNELS for blocks in CLUSTERS]
WRONG = "copied_product in clusters of 4"
"""Triton 3.6.0 loads rows of the left operand by the lowest bit of the rank, and stores to rows by the next bit."""


@cache
def compiled() -> dict[str, Program]:
    """Return the programs of Triton, by name; they are compiled when a test asks for one."""
    with assembly_only(lines=True):
        return {each.name: each for each in triton_programs()}


def test_the_programs_of_triton() -> None:
    assert list(compiled()) == TRITON


def after(program: Program, contents: Mapping[str, Any]) -> dict[str, Any]:
    prepared = prepare_launch(SM90.parse(program.text, program.launch.file), SM90, program.launch)
    return dict(simulate(prepared, contents).after)


@pytest.mark.parametrize("name", PTX)
def test_the_assembler_takes_the_kernel(name: str) -> None:
    assert assemble(PTX[name].text, fp_fusion=False)


def neighbours(name: str, by: int) -> list[int]:
    """Return for each block the block `by` ranks on in its cluster."""
    launch = PTX[name].launch
    assert launch.cluster is not None
    (x, y, z), (cx, cy, cz) = launch.grid, launch.cluster
    found = []
    for block in range(x * y * z):
        at = block % x, block // x % y, block // (x * y)
        rank = (at[0] % cx + cx * (at[1] % cy + cy * (at[2] % cz)) + by) % (cx * cy * cz)
        moved = at[0] // cx * cx + rank % cx, at[1] // cy * cy + rank // cx % cy, at[2] // cz * cz + rank // (cx * cy)
        found.append(moved[0] + x * (moved[1] + y * moved[2]))
    return found


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("read the next block", 1),
        ("read the next block of three axes", 1),
        ("write the next block", -1),
        ("seven rounds", 7),
        ("handed over at an mbarrier", -1),
    ],
)
def test_words_move_between_the_blocks_of_a_cluster(name: str, by: int) -> None:
    program = PTX[name]
    found = after(program, program.contents)["out"].view(np.uint32).reshape(-1, THREADS)
    given = program.contents["in"].view(np.uint32).reshape(-1, THREADS)
    assert np.array_equal(found, given[neighbours(name, by)])


def expected(name: str, arrays: Mapping[str, Any]) -> Any:
    """Return the exact result of a Triton kernel on small whole numbers."""
    kernel = name.split()[0]
    if kernel == "affine":
        return np.where(np.arange(2048) < 2000, 2 * arrays["source"] + 1, 0)
    if kernel == "row_sum":
        return arrays["source"].reshape(64, 128).sum(axis=1)
    if kernel == "column_sum":
        return arrays["source"].reshape(128, 128).sum(axis=0)
    return (arrays["left"].reshape(256, 128) @ arrays["right"].reshape(128, 128)).reshape(-1)


def whole_numbers(program: Program) -> dict[str, Any]:
    """Return an array of small whole numbers for each buffer; the output holds zeros."""
    generator = np.random.default_rng(1)
    kinds = {each.buffer: np.float16 if each.dtype == "fp16" else np.float32 for each in program.launch.args}
    return {
        name: (generator.integers(-4, 5, content.view(kinds[name]).size) * (name != "output")).astype(kinds[name])
        for name, content in program.contents.items()
    }


@pytest.mark.parametrize("name", [name for name in TRITON if not name.startswith("softmax")])
def test_a_triton_program_on_whole_numbers_is_exact(name: str) -> None:
    arrays = whole_numbers(compiled()[name])
    found = after(compiled()[name], {key: each.view(np.uint8) for key, each in arrays.items()})["output"]
    wide = {key: each.astype(np.float64) for key, each in arrays.items()}
    exact = np.array_equal(found.view(arrays["output"].dtype), expected(name, wide))
    assert exact == (name != WRONG)


@pytest.mark.parametrize("blocks", [2, 4])
@pytest.mark.parametrize("kernel", ["affine", "row_sum", "softmax", "product", "copied_product"])
def test_a_triton_program_divided_among_blocks_equals_that_of_one_block(kernel: str, blocks: int) -> None:
    """Columns are summed in another order where a cluster has several blocks."""
    names = [f"{kernel} in clusters of {each}" for each in (1, blocks)]
    sources = [
        Source(name, compiled()[name].text, replace_file(compiled()[name], f"{index}.ptx").launch)
        for index, name in enumerate(names)
    ]
    found = compare(sources[0], sources[1], SM90, Options(audit_contraction=False)).verdict.outcome.value
    assert (found == "equal") == (names[1] != WRONG)


def replace_file(program: Program, file: str) -> Program:
    return replace(program, launch=program.launch.model_copy(update={"file": file}))


@pytest.mark.parametrize("name", [name for name in TRITON if not name.endswith("clusters of 1")])
def test_a_triton_program_read_without_its_ranks_is_another(name: str) -> None:
    """The bytes change where the rank is 0 in every block, which is how a cluster of one block reads it."""
    program = compiled()[name]
    blind = replace(program, text=program.text.replace("%cluster_ctarank", "0"))
    assert blind.text != program.text
    assert after(blind, program.contents)["output"].tobytes() != after(program, program.contents)["output"].tobytes()
