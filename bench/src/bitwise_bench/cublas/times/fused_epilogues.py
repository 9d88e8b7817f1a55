"""Times of products with an epilogue: fused kernels against cuBLAS and separate kernels, of the same bytes.

    python -m bitwise_bench.cublas.times.fused_epilogues --out records/cublas-epilogues-sm90-h100.json
    python -m bitwise_bench.cublas.times.fused_epilogues --part held-out --out held-out.json
    python -m bitwise_bench.cublas.times.fused_epilogues --only-compile; ... --processes 0 --out epilogues.json

The baseline is torch.mm and PyTorch's operators.  `kernel` is a fused kernel, `separate` a product with the same bits
and PyTorch's operators, and `ours` the one of both that matmul chooses.  With --first-call, `first call` is the fastest
of so many fused kernels, as BITWISE_TIMED_SCHEDULES chooses it.  `library` is the epilogue of cuBLASLt that
PyTorch reaches (addmm, _addmm_activation), and `compiled` is torch.compile with dynamic shapes; both may return other
bytes, since they round less often.  Times are of consecutive launches in a CUDA graph, in microseconds, taken in turn,
after processes compiled the kernels of all cases: medians over three allocations of the operands.
The shapes are those of `model_shapes`, 16 models by six epilogues; those of the other parts are drawn.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.model_shapes import MODELS, RANKS
from bitwise_bench.cublas.times.schedule_timing import fields_of
from bitwise_bench.cublas.worker_processes import Parts
from bitwise_core.descriptors import Epilogue, Step
from bitwise_core.descriptors.epilogue import OPERANDS
from bitwise_nvidia_sm90.gemm.graph_times import in_turn

_SCALED = (Step(name="scale", value=0.5), "add")
EPILOGUES = {
    "residual": Epilogue.of("add"),
    "bias, GELU": Epilogue.of("bias", "gelu_tanh"),
    "SwiGLU": Epilogue.of("swiglu"),
    "expert": Epilogue.of(*_SCALED),
    "LoRA": Epilogue.of(*_SCALED),
    "to fp8": Epilogue.of(
        Step(name="scale", value=16.0), Step(name="clamp", low=-448.0, high=448.0), Step(name="convert", dtype="e4m3")
    ),
}
"""The six epilogues by name: what follows a product in models.

An attention layer's output is added to the residual; a dense layer has a bias and GELU; a gated layer's second product
is multiplied by SiLU of the first; an expert's output is scaled by the router and added to that of the others; the
product of a LoRA adapter is scaled and added to that of the layer; and the input of a layer in fp8 is scaled, clamped
and converted.
"""
TOKENS = (1, 16, 64, 256, 1024, 4096)
_ROUNDS = 3
_PLACEMENTS = 3
"""The allocations of the operands whose median time counts: where operands lie decides what stays in the L2 cache."""
_POLL_SECONDS = 0.02
_KEPT = 8
"""Cases after which the record is written again."""
_MOST_SEQUENCES = 256
"""The compiled versions of a sequence that torch.compile may keep."""


@dataclass(frozen=True, slots=True)
class Case:
    """A product of m rows, n columns and k values of k, of `dtype`, with an epilogue of EPILOGUES."""

    epilogue: str
    model: str
    m: int
    n: int
    k: int
    dtype: str = "bfloat16"


def published() -> list[Case]:
    """Return 96 cases: each epilogue for each model, with its own widths; token counts follow each other."""
    found = []
    for row, epilogue in enumerate(EPILOGUES):
        for column, model in enumerate(MODELS):
            inner = model.dense or model.expert
            n, k = {
                "residual": (model.hidden, model.hidden), "expert": (model.hidden, model.expert or model.dense),
                "LoRA": (model.hidden, RANKS[column % len(RANKS)]),
            }.get(epilogue, (inner, model.hidden))  # fmt: skip
            found.append(Case(epilogue, model.name, TOKENS[(row + column) % len(TOKENS)], n, k))
    return found


def drawn(seed: int, count: int = 48) -> list[Case]:
    """Return cases with drawn widths and token counts, in both types of 16 bits."""
    dice = random.Random(seed)
    found = []
    for place in range(count):
        epilogue = list(EPILOGUES)[place % len(EPILOGUES)]
        m = round(2 ** dice.uniform(0, 13))
        n, k = (8 * round(2 ** dice.uniform(6, 11.3)) for _ in range(2))
        found.append(Case(epilogue, "drawn", m, n, k, dice.choice(("bfloat16", "float16"))))
    return found


PARTS: dict[str, Callable[[], list[Case]]] = {
    "models": published,
    "held-out": partial(drawn, 20),
    "tuning": partial(drawn, 21),
    "second-tuning": partial(drawn, 24, 96),
    "second-held-out": partial(drawn, 22, 96),
    "third-held-out": partial(drawn, 23, 96),
    "third-tuning": partial(drawn, 31),
    "fourth-held-out": partial(drawn, 32, 96),
    "fifth-held-out": partial(drawn, 33, 96),
    "sixth-held-out": partial(drawn, 34),
}
"""The choice is not fitted to the cases of the parts whose names end with `held-out`, as far as they were measured."""
_RECORDED = ["models", "held-out"]
COMPILED = "models"
"""The part whose sequences torch.compile compiles."""


class Operands:
    """The tensors of a case: a, b, a weight in PyTorch's layout, and the operands of the epilogue."""

    def __init__(self, case: Case) -> None:
        import torch

        generator = torch.Generator(device="cuda").manual_seed(case.m + case.n + case.k)
        dtype = getattr(torch, case.dtype)

        def normal(*shape: int) -> Any:
            return torch.randn(*shape, device="cuda", generator=generator).to(dtype)

        self.epilogue = EPILOGUES[case.epilogue]
        self.kept: Any = None
        self.timed: Any = None
        self.a = normal(case.m, case.k)
        self.b = (normal(case.n, case.k) / math.sqrt(case.k)).t()
        self.matrices = sum(OPERANDS[each] == 2 for each in self.epilogue.operands)
        self.others = [normal(case.n) if each == "bias" else normal(case.m, case.n) for each in self.epilogue.operands]

    def sequence(self) -> Any:
        """Return the result of torch.mm and PyTorch's operators."""
        import torch

        from bitwise_torch.epilogues import eager

        return eager(self.epilogue, torch.mm(self.a, self.b), self.others)

    def ours(self) -> Any:
        """Return the result of matmul with the epilogue."""
        from bitwise_torch import matmul

        return matmul(self.a, self.b, like="cublas", epilogue=self.epilogue, operands=self.others)

    def separate(self) -> Any:
        """Return the result of a product with the same bits and PyTorch's operators."""
        from bitwise_torch import matmul
        from bitwise_torch.epilogues import eager

        return eager(self.epilogue, matmul(self.a, self.b, like="cublas"), self.others)

    def fused(self, most: int = 1) -> tuple[list[tuple[Any, Callable[[], Any]]], tuple[float, float] | None]:
        """Return up to `most` kernels with the epilogue and their schedules, that with the least expected time first.

        The second part is the expected seconds of kernels with the epilogue and of separate ones.
        """
        import torch

        from bitwise_nvidia_sm90.gemm.fusions import Fusion
        from bitwise_nvidia_sm90.gemm.measured_schedules import candidates
        from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM
        from bitwise_nvidia_sm90.gemm.run import expected_seconds_of, planned, run_fused
        from bitwise_torch import describe

        desc = describe(self.a, self.b, like="cublas")
        fusion, out = Fusion(self.epilogue, desc.output_dtype, tuple(self.others)), torch.empty_like(self.sequence())
        self.kept = out  # a launch has its address only
        places = [tensor.data_ptr() for tensor in (self.a, self.b, out, *self.others)]
        found: dict[Any, Callable[[], Any]] = {}
        for each in candidates(desc, planned(desc), self.a, self.b, out, 3 + most, fusion.matrices):
            if len(found) == most:
                break
            if each not in found:
                with suppress(UnsupportedGEMM):
                    found[each] = partial(run_fused(desc, fusion, self.a, self.b, out, each).launch, *places)
        return list(found.items()), expected_seconds_of(planned(desc), fusion, self.a, self.b, out)

    def first_call(self, most: int) -> Callable[[], Any]:
        """Return the launch of the fastest of so many kernels with the epilogue, timed as at a first call."""
        import torch

        from bitwise_nvidia_sm90.gemm.fusions import Fusion
        from bitwise_nvidia_sm90.gemm.tuning import fastest_fused
        from bitwise_torch import describe

        desc, out = describe(self.a, self.b, like="cublas"), torch.empty_like(self.sequence())
        self.timed = out
        fusion = Fusion(self.epilogue, desc.output_dtype, tuple(self.others))
        found = fastest_fused(desc, fusion, self.a, self.b, out, most)
        return partial(found.launch, *(tensor.data_ptr() for tensor in (self.a, self.b, out, *self.others)))

    def library(self, name: str) -> Callable[[], Any] | None:
        """Return the product with cuBLASLt's own epilogue, None where PyTorch reaches none."""
        import torch

        a, b = self.a, self.b
        if name in ("residual", "expert", "LoRA"):
            return lambda: torch.addmm(self.others[0], a, b, alpha=1.0 if name == "residual" else 0.5)
        if name == "bias, GELU":
            return lambda: torch._addmm_activation(self.others[0], a, b, use_gelu=True)
        return None


def _compile(part: int, parts: int, cases: Sequence[Case], compiled: Sequence[Case], most: int, ready: Any) -> None:
    """Run a share of the cases once, to fill the compilers' caches; then `ready` holds the part."""
    import torch

    with torch.no_grad():
        for case in list({_kind(case): case for case in compiled}.values())[part::parts]:
            given = Operands(case)
            _compiled_sequence(given.epilogue)(given.a, given.b, *given.others)
        for case in cases[part::parts]:
            try:
                given = Operands(case)
                given.ours()
                given.fused(most)
            except Exception as error:
                print(f"{case}: {error}", file=sys.stderr)
    ready[part] = True


def compile_all(
    cases: Sequence[Case], compiled: Sequence[Case], processes: int, deadline: float, most: int = 1
) -> None:
    """Fill the compilers' caches for all cases, and those of torch.compile for `compiled`, unless time ends before.

    Of each case `most` kernels with the epilogue are compiled.
    The processes launch kernels, so that nothing can be timed meanwhile.
    """
    with (
        multiprocessing.Manager() as manager,
        Parts(_compile, (cases, compiled, most, ready := manager.dict()), processes) as parts,
    ):
        while time.time() < deadline and any(part not in ready and parts.alive(part) for part in range(processes)):
            time.sleep(_POLL_SECONDS)


def _kind(case: Case) -> tuple[str, str, bool]:
    """Return what torch.compile compiles once: it treats a length of 1 as a constant."""
    return case.epilogue, case.dtype, case.m == 1


def _compiled_sequence(epilogue: Epilogue) -> Callable[..., Any]:
    import torch

    # All sequences have the code of one function; beyond the limit, PyTorch would run them eagerly.
    torch._dynamo.config.recompile_limit = _MOST_SEQUENCES

    from bitwise_torch.epilogues import eager

    def sequence(a: Any, b: Any, *others: Any) -> Any:
        return eager(epilogue, torch.mm(a, b), others)

    found: Callable[..., Any] = torch.compile(sequence, dynamic=True)
    return found


def rows(
    cases: Iterable[Case], deadline: float, *, compiled: bool, most: int = 1, first_call: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield the record of each case; no case starts after the deadline.

    With `most` over 1, a record has the times of so many kernels with the epilogue and their schedules, and the other
    fields that `cost_fit` takes.  With `first_call`, the fastest of so many kernels is timed, too.
    """
    import torch

    from bitwise_torch import describe
    from bitwise_torch.epilogues import fuses

    sequences: dict[tuple[str, str, bool], Callable[..., Any]] = {}
    for case in cases:
        if time.time() > deadline:
            return
        placed = [Operands(case) for _ in range(_PLACEMENTS)]
        given, record = placed[0], asdict(case)
        try:
            with torch.no_grad():
                given.ours()
                found, wanted = given.ours(), given.sequence()
        except Exception as error:
            yield {**record, "failed": f"{type(error).__name__}: {error}"}
            continue
        bits = {1: torch.uint8, 2: torch.int16}[found.element_size()]
        record["equal"] = bool(torch.equal(found.view(bits), wanted.view(bits)))
        record["fused"] = fuses(given.a, given.b, given.epilogue, given.others, like="cublas")
        record["descriptor"] = describe(given.a, given.b, like="cublas").to_text()
        if compiled and _kind(case) not in sequences:
            sequences[_kind(case)] = _compiled_sequence(given.epilogue)
        times: dict[str, list[float]] = {}
        for each in placed:
            launches: dict[str, Callable[[], Any]] = {
                "sequence": each.sequence, "ours": each.ours, "separate": each.separate,
            }  # fmt: skip
            (kernels, expected), library = each.fused(most), each.library(case.epilogue)
            if kernels:
                launches["kernel"] = kernels[0][1]
                record["schedule"] = fields_of(kernels[0][0])
                record["expected"] = expected and [round(1e6 * seconds, 2) for seconds in expected]
            if most > 1 and each is given:
                own = in_turn({str(place): launch for place, (_, launch) in enumerate(kernels)}, _ROUNDS)
                record["times"] = [
                    (fields_of(schedule), round(taken, 2))
                    for (schedule, _), taken in zip(kernels, own.values(), strict=True)
                ]
                record |= {"group": f"fused-{case.epilogue}", "layout": "nt", "maps columns": True}
                record |= {"output bytes": found.element_size(), "loads": given.matrices}
            if kernels and first_call:
                launches["first call"] = each.first_call(first_call)
            if library is not None:
                launches["library"] = library
            if compiled:
                launches["compiled"] = partial(sequences[_kind(case)], each.a, each.b, *each.others)
            with torch.no_grad():
                for name, taken in in_turn(launches, _ROUNDS).items():
                    times.setdefault(name, []).append(taken)
        yield {**record, **{name: round(sorted(each)[_PLACEMENTS // 2], 2) for name, each in times.items()}}


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return geometric means of the baseline's time over each other, of all and by epilogue, and the slowest cases."""
    timed = [each for each in found if "ours" in each]
    result: dict[str, Any] = {
        "cases": len(found), "failed": sum("failed" in each for each in found),
        "other bytes": sum(not each["equal"] for each in timed), "fused": sum(each["fused"] for each in timed),
    }  # fmt: skip
    for name in ("ours", "first call", "library", "compiled"):
        ratios = [(each["sequence"] / each[name], each) for each in timed if name in each]
        if ratios:
            result[name] = {
                "mean": _mean(ratio for ratio, _ in ratios), "cases": len(ratios),
                "below 1": sum(ratio < 1 for ratio, _ in ratios), "least": round(min(ratio for ratio, _ in ratios), 3),
                "epilogues": {
                    epilogue: _mean(ratio for ratio, each in ratios if each["epilogue"] == epilogue)
                    for epilogue in dict.fromkeys(each["epilogue"] for _, each in ratios)
                },
            }  # fmt: skip
    slowest = sorted(timed, key=lambda each: each["sequence"] / each["ours"])[:6]
    result["slowest"] = [
        [each["epilogue"], each["m"], each["n"], each["k"], each["dtype"], round(each["sequence"] / each["ours"], 3)]
        for each in slowest
    ]
    return result


def _mean(ratios: Iterable[float]) -> float:
    logarithms = [math.log(each) for each in ratios]
    return round(math.exp(sum(logarithms) / len(logarithms)), 3)


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a record, each case on a line."""
    parts = []
    for name, each in result["parts"].items():
        lines = ",\n".join(json.dumps(row) for row in each["rows"])
        parts.append(f'{json.dumps(name)}: {{\n"summary": {json.dumps(each["summary"])},\n"rows": [\n{lines}\n]}}')
    head = json.dumps(result["environment"])
    path.write_text(f'{{\n"environment": {head},\n"parts": {{\n' + ",\n".join(parts) + "\n}}\n", encoding="utf-8")


def _part(found: Sequence[dict[str, Any]], count: int) -> dict[str, Any]:
    """Return the record of the rows so far of a part of `count` cases."""
    return {"summary": {**summary(found), "not reached": count - len(found)}, "rows": found}


def _environment() -> dict[str, Any]:
    import torch
    import triton

    from bitwise_cublas_profiles.library import Library

    return {
        "gpu": torch.cuda.get_device_properties(0).name, "library": Library(None).version,
        "torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Time the cases of a part.  The exit status is 1 if bytes differ or a case failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.times.fused_epilogues", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, help="where to write the record; needed unless --only-compile is given")
    parser.add_argument(
        "--part", choices=[*PARTS], default=_RECORDED, nargs="+", help=f"the cases (default {' '.join(_RECORDED)})"
    )
    parser.add_argument("--every", type=int, default=1, help="take every so many cases (default 1)")
    parser.add_argument("--skip", type=int, default=0, help="leave out this many cases before (default 0)")
    parser.add_argument(
        "--processes", type=int, default=14, help="compile processes; 0 where the caches are full (default 14)"
    )
    parser.add_argument("--only-compile", action="store_true", help="fill the compilers' caches; time nothing")
    parser.add_argument("--seconds", type=float, default=200.0, help="start no new case after this many seconds")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--most", type=int, default=1, help="kernels with the epilogue that are timed (default 1)")
    parser.add_argument(
        "--first-call", type=int, default=0, help="time the fastest of so many kernels as at a first call (default 0)"
    )
    given = parser.parse_args(arguments)
    if not given.out and not given.only_compile:
        parser.error("give --out, the file to write the record to, or --only-compile")
    deadline = time.time() + given.seconds
    cases = {name: make()[given.skip :: given.every] for name, make in PARTS.items() if name in given.part}
    compiled = [] if given.no_compile else cases.get(COMPILED, [])
    if given.processes:
        compile_all(
            [case for each in cases.values() for case in each],
            compiled,
            given.processes,
            deadline,
            max(given.most, given.first_call),
        )
    if given.only_compile:
        return 0
    result: dict[str, Any] = {"environment": _environment(), "parts": {}}
    status = 0
    for name, each in cases.items():
        found: list[dict[str, Any]] = []
        for row in rows(
            each, deadline, compiled=bool(compiled) and name == COMPILED, most=given.most, first_call=given.first_call
        ):
            found.append(row)
            if len(found) % _KEPT == 0:
                result["parts"][name] = _part(found, len(each))
                write(given.out, result)
        result["parts"][name] = _part(found, len(each))
        write(given.out, result)
        totals = result["parts"][name]["summary"]
        status |= bool(totals["failed"] or totals["other bytes"])
        print(name, json.dumps(totals, indent=1))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
