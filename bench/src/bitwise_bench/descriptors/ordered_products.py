"""Random products in stated orders on gfx942: compiled, simulated on bit patterns, compared with their descriptors.

    python -m bitwise_bench.descriptors.ordered_products --count 2000 --out records/ordered-products-gfx942.json

No GPU is needed.  The descriptors have the forms that rocBLAS and hipBLASLt compute: slices, waves, permuted and
rotated iterations, and a tail.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_amd_gfx942.matrix_units import ROWS
from bitwise_amd_gfx942.products.plan import compile_kernel, plan_product
from bitwise_bench.environment import analysis_environment
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.descriptors import Cut, GEMMDesc, Instruction, Rotation, Share, Tail
from bitwise_core.descriptors.evaluation import evaluate
from bitwise_core.descriptors.hardware import Hardware
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage

HARDWARE = Hardware({row.name: row for row in ROWS})
KINDS = (
    *((kind, k, 4) for kind in ("fp16", "bf16") for k in (8, 16)), *(("fp32", k, 1) for k in (2, 4)),
    *(("tf32", k, 2) for k in (4, 8)), *((kind, k, 8) for kind in ("e4m3fnuz", "e5m2fnuz") for k in (16, 32)),
)  # fmt: skip
"""The type of A and B, k of the instruction, and how many k of one it takes from a lane."""
LONGEST = 500


@dataclass(frozen=True, slots=True)
class Product:
    """A descriptor and the shape of its operands, (m, k) and (k, n)."""

    desc: GEMMDesc
    m: int
    n: int


def drawn(seed: int) -> Product:
    """Return a random product in a stated order."""
    source = random.Random(seed)
    while True:
        found = _drawn(source)
        if found.desc.k <= LONGEST:
            return found


def _drawn(source: random.Random) -> Product:
    kind, native, each = source.choice(KINDS)
    waves, spread = source.choice((1, 1, 1, 2, 4)), source.choice((1, 1, 2, 2, 4))
    block = native * spread
    depth = waves * block * source.choice((1, 1, 2, 3))
    slices = source.choice((1, 1, 1, 2, 3, 5, 9))
    contiguous = slices > 1 and source.random() < 0.4
    count = source.choice((0, 1, slices, source.randint(1, 4 * slices), source.randint(1, 9)))
    rest = source.choice((0, 0, 1, depth - 1, source.randrange(depth)))
    count += count == rest == 0
    fields: dict[str, Any] = {}
    cuts = []
    if slices > 1:
        start = source.choice(("zero", "first"))
        cuts.append(
            Cut(count=slices, tile=depth, remainder="spread", start=start)
            if contiguous
            else Cut(layout="strided", count=slices, tile=depth, start=start)
        )
    if waves > 1:
        cuts.append(Cut(layout="strided", count=waves, tile=block if count else native))
    permuted = spread > 1 and count > 0
    if permuted:
        fields["iteration_permutation"] = _permutation(depth // waves, native, spread, each)
    shape = [source.choice((source.randint(1, 20), source.randint(20, 40), source.randint(60, 70))) for _ in range(2)]
    if count and source.random() < 0.5:
        axis = source.choice(("rows", "columns"))
        rotation = Rotation(
            axis=axis, tile=source.choice((32, 64, 96)), period=source.choice((2, 4, 8)),
            step=source.choice((1, 1, 2, 4)), halved=source.random() < 0.4,
        )  # fmt: skip
        fields["iteration_rotation"] = rotation
        shape = [source.randint(1, 5), source.randint(1, 3 * rotation.tile)]
        shape = shape[::-1] if axis == "rows" else shape
    if permuted or "iteration_rotation" in fields:
        fields["k_loop_step"] = depth // waves
    if rest and (permuted or waves > 1 or contiguous):
        quotient, more = divmod(count, slices)
        shares = [Share(part=slices - 1 if contiguous and quotient else more)] if slices > 1 else []
        shares += [Share(tile=native)] if waves > 1 else []
        fields["tail"] = Tail(length=rest, shares=tuple(shares))
    desc = GEMMDesc(
        k=count * depth + rest, left_dtype=kind, right_dtype=kind, path="matrix", k_cuts=tuple(cuts),
        output_dtype=source.choice(("fp32", "fp32", "fp32", "fp16", "bf16")), instruction_k=native,
        instruction=Instruction(architecture="gfx942", family="mfma", k=native), **fields,
    )  # fmt: skip
    return Product(desc, *shape)


def _permutation(length: int, native: int, spread: int, each: int) -> tuple[int, ...]:
    block = [
        lanes * each * spread + instruction * each + number
        for instruction in range(spread)
        for lanes in range(native // each)
        for number in range(each)
    ]
    return tuple(begin + place for begin in range(0, length, len(block)) for place in block)


def operands(product: Product, seed: int) -> tuple[Bits, Bits]:
    """Return patterns of both signs whose sums round, with some zeros and subnormal numbers."""
    generator = np.random.default_rng(seed)

    def patterns(dtype: str, shape: tuple[int, int]) -> Bits:
        form = FLOAT_FORMATS[dtype]
        exponent = generator.integers(max(1, form.bias - 4), form.bias + 4, shape, dtype=np.uint64)
        fraction = generator.integers(0, 1 << form.mantissa_bits, shape, dtype=np.uint64)
        value = exponent << np.uint64(form.mantissa_bits) | fraction
        value = np.where(generator.random(shape) < 0.05, fraction & np.uint64(3), value)
        value |= generator.integers(0, 2, shape, dtype=np.uint64) << np.uint64(form.exponent_bits + form.mantissa_bits)
        if form.negative_zero is None:  # the pattern of a NaN
            value = np.where(value == 1 << (form.exponent_bits + form.mantissa_bits), 0, value)
        return (value << np.uint64(form.padding)).astype(storage(form.bits))

    return patterns(product.desc.left_dtype, (product.m, product.desc.k)), patterns(
        product.desc.right_dtype, (product.desc.k, product.n)
    )


def kernel_key(desc: GEMMDesc) -> tuple[Any, ...]:
    """Return what decides the compiled kernel of a descriptor."""
    plan = plan_product(desc)
    return (
        plan.kernel, *plan.constants.items(), *plan.options.items(), desc.left_dtype, desc.right_dtype,
        desc.output_dtype,
    )  # fmt: skip


@dataclass
class Compiled:
    """Kernels of plans, compiled once each."""

    texts: dict[Any, str] = field(default_factory=dict)

    def simulated(self, product: Product, a: Bits, b: Bits) -> bytes:
        """Return the bytes of C that the compiled kernel stores."""
        desc, m, n = product.desc, product.m, product.n
        plan, key = plan_product(desc), kernel_key(desc)
        if key not in self.texts:
            self.texts[key] = compile_kernel(plan, desc).asm["amdgcn"]
        arguments: list[dict[str, object]] = [{"buffer": name} for name in "abc"]
        arguments += [{"i32": each} for each in plan.numbers(m, n, desc)]
        grid = [-(-m // plan.block[0]), -(-n // plan.block[1])]
        launch = Launch.model_validate(
            {"file": "k.amdgcn", "grid": grid, "block": [64 * plan.warps], "args": arguments}
        )
        prepared = prepare(Source("k.amdgcn", self.texts[key], launch), GFX942, Options())
        contents = {name: each.reshape(-1).view(np.uint8) for name, each in (("a", a), ("b", b))}
        size = m * n * FLOAT_FORMATS[desc.output_dtype].bits // 8
        return simulate(prepared, {**contents, "c": np.zeros(size, np.uint8)}).after["c"].tobytes()


def agrees(compiled: Compiled, seed: int) -> bool:
    """Return whether the simulated kernel of a random product stores the bytes of its descriptor."""
    product = drawn(seed)
    a, b = operands(product, seed)
    return compiled.simulated(product, a, b) == evaluate(product.desc, a, b, hardware=HARDWARE).tobytes()


_COMPILED = Compiled()
"""The kernels that this process compiled."""
_CHUNK = 125
"""The number of products after which the record is complete up to a seed."""


def _of_one_kernel(seeds: Sequence[int]) -> list[tuple[int, bool]]:
    """Return for each of some seeds with one kernel whether the simulated kernel agrees."""
    return [(seed, agrees(_COMPILED, seed)) for seed in seeds]


def measure(
    first: int,
    count: int,
    seconds: float,
    processes: int = 1,
    before: Mapping[str, Any] | None = None,
    save: Callable[[Mapping[str, Any]], object] = lambda record: None,
) -> Mapping[str, Any]:
    """Return the outcome of the products of `count` seeds, or of as many as `seconds` allow, as a record.

    Products of one kernel are executed by one process.  `before` is a record of the first of these seeds, which is
    continued.  `save` is called repeatedly, with the record of all seeds up to one.  Raises ValueError where `before`
    begins with another seed or was made with other versions.
    """
    done, spent, different = 0, 0.0, list[int]()
    if before is not None:
        same = {**analysis_environment(), "first_seed": first}
        other = [name for name, value in same.items() if before.get(name) != value]
        if other:
            raise ValueError(f"the record to be continued has another {other[0]}")
        done, spent, different = int(before["products"]), float(before["seconds"]), list(before["different_seeds"])
    begin = perf_counter()

    def record() -> Mapping[str, Any]:
        forms, kernels = Counter[str](), set()
        for seed in range(first, first + done):
            desc = drawn(seed).desc
            kernels.add(kernel_key(desc))
            names = ("iteration_rotation", "iteration_permutation", "tail", "k_cuts")
            forms.update(name for name in names if getattr(desc, name))
        return {
            **analysis_environment(),
            "architecture": "gfx942",
            "executed": "simulated on bit patterns, not on a device",
            "first_seed": first,
            "products": done,
            "equal": done - len(different),
            "different_seeds": sorted(different),
            "kernels": len(kernels),
            "with": dict(sorted(forms.items())),
            "seconds": round(spent + perf_counter() - begin),
        }

    with ProcessPoolExecutor(processes) as pool:
        while done < count:
            kernels: dict[tuple[Any, ...], list[int]] = {}
            size = min(_CHUNK, count - done)
            for seed in range(first + done, first + done + size):
                kernels.setdefault(kernel_key(drawn(seed).desc), []).append(seed)
            waiting = [pool.submit(_of_one_kernel, seeds) for seeds in kernels.values()]
            outcomes = dict[int, bool]()
            try:
                for each in waiting:
                    left = seconds - (perf_counter() - begin)
                    outcomes.update(each.result(timeout=None if left == float("inf") else max(0.0, left)))
            except TimeoutError:
                pool.shutdown(wait=False, cancel_futures=True)
                break
            done += size
            different += [seed for seed, equal in outcomes.items() if not equal]
            print(f"{done} of {count} after {perf_counter() - begin:.0f} s", flush=True)
            save(record())
    return record()


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--continue", dest="before", type=Path, help="a record of the first of these products")
    given = parser.parse_args()

    def save(record: Mapping[str, Any]) -> None:
        given.out.write_text(json.dumps(record, indent=1) + "\n")

    before = None if given.before is None else json.loads(given.before.read_text())
    save(measure(given.first, given.count, given.seconds, given.processes, before, save))


if __name__ == "__main__":
    main()
