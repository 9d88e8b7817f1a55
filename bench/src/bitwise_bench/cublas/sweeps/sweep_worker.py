"""One process of a sweep: query a shape, run the result and its descriptor, and compare the bytes."""

from __future__ import annotations

import argparse
import importlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bitwise_bench.cublas.sweeps.random_queries import REGIMES, RandomQuery, random_query
from bitwise_bench.cublas.sweeps.sweep_operands import CANCELLING, DRAWS, PLAIN, Pools
from bitwise_bench.cublas.sweeps.sweep_records import COLUMNS
from bitwise_cublas_profiles.library import Library, Pointers
from bitwise_cublas_profiles.profile import Profile, RowNotCovered, profile
from bitwise_cublas_profiles.query import CublasError, GemmQuery, HeuristicResult

CONTROL = 16


class Sweep:
    """State of one process: the library, the profile, pools of random operands, and the launcher."""

    device = "cuda"

    def __init__(self, chosen: argparse.Namespace) -> None:
        import torch

        self.torch = torch
        self.chosen = chosen
        self.library = Library(chosen.library)
        properties = torch.cuda.get_device_properties(0)
        self.profile: Profile = profile(self.library.version, f"{properties.major}.{properties.minor}")
        module, _, name = str(chosen.launcher).partition(":")
        self.launch: Callable[..., Any] = getattr(importlib.import_module(module), name)
        self.pools = Pools(chosen.seed, self.device)
        self.tried: Counter[tuple[Any, ...]] = Counter()
        self.space = torch.empty(64 << 20, dtype=torch.uint8, device=self.device)

    def compare(self, each: RandomQuery, result: HeuristicResult, desc: Any, draws: int = DRAWS) -> tuple[str, Any]:
        """Run both on the last `draws` draws: `equal`, or `different` with the place."""
        torch, query = self.torch, each.query
        from bitwise_cublas_profiles.tensors import torch_type

        theirs = torch.full((query.m, query.n), -7.0, dtype=torch_type(query.c), device=self.device)
        ours = torch.full_like(theirs, 5.0)
        chosen = range(DRAWS - draws, DRAWS)
        counts = []
        for draw in chosen:
            a, b = self.pools.operands(query, each.number, draw)
            self._both(query, result, desc, a, b, theirs, ours)
            counts.append((self._bits(theirs) != self._bits(ours)).sum())
        differ = dict(zip(chosen, torch.stack(counts).tolist(), strict=True))
        if not any(differ.values()):
            return "equal", None
        mask, about = 0, None
        for draw in (draw for draw, count in differ.items() if count):
            a, b = self.pools.operands(query, each.number, draw)
            self._both(query, result, desc, a, b, theirs, ours)
            # All NaNs count as one value.
            wrong = (self._bits(theirs) != self._bits(ours)) & ~(theirs.isnan() & ours.isnan())
            count = int(wrong.sum())
            if count:
                mask |= 1 << draw
                if about is None:
                    first = int(wrong.flatten().nonzero()[0])
                    bits = [int(self._bits(side).flatten()[first]) for side in (theirs, ours)]
                    about = [count, first, *bits]
        return ("different", [mask, *about]) if about is not None else ("equal", None)

    def _both(
        self, query: GemmQuery, result: HeuristicResult, desc: Any, a: Any, b: Any, theirs: Any, ours: Any
    ) -> None:
        pointers = Pointers(a.data_ptr(), b.data_ptr(), theirs.data_ptr(), self.space.data_ptr())
        self.library.run(query, result, pointers, self.torch.cuda.current_stream().cuda_stream)
        self.launch(desc, a, b, ours)

    def _bits(self, matrix: Any) -> Any:
        return matrix.view(self.torch.int32 if matrix.element_size() == 4 else self.torch.int16)

    def control(self, each: RandomQuery, result: HeuristicResult, desc: Any) -> list[Any] | None:
        """Run a wrong descriptor on every draw: the mutation, and on how many draws of either kind it differs."""
        from bitwise_bench.cublas.orders.descriptor_mutations import mutated

        found = mutated(desc, random.Random(f"{self.chosen.seed}:{each.number}:control"))
        if found is None:
            return None
        try:
            outcome, about = self.compare(each, result, found[1])
        except Exception as error:  # the launcher does not support it
            if "CUDA" in str(error):
                raise
            return None
        shown = about[0] if outcome == "different" else 0
        return [found[0], (shown & (1 << PLAIN) - 1).bit_count(), (shown >> DRAWS - CANCELLING).bit_count()]

    def others(self, each: RandomQuery, result: HeuristicResult) -> list[Any] | None:
        """The alternatives that return cuBLAS's bytes, for the first shapes of every configuration."""
        from bitwise_bench.cublas.orders.descriptor_mutations import alternatives

        found = result.configuration
        key = (
            each.query.multiplied,
            found.algorithm,
            found.stages,
            found.custom,
            found.reduction,
            each.query.transposes,
        )
        self.tried[key] += 1
        if self.tried[key] > 2:
            return None
        names: list[str] = []
        enough = time.time() + 8
        for name, desc in alternatives(each.query, found.split_k):
            if time.time() > enough:
                names.append("unfinished")
                break
            try:
                # The cancelling draws reject the most and come last; try them first.
                if all(self.compare(each, result, desc, draws)[0] == "equal" for draws in (CANCELLING, DRAWS)):
                    names.append(name)
            except Exception as error:
                if "CUDA" in str(error):
                    raise
        return ["alternatives", names]

    def row(self, number: int) -> list[Any]:
        """One line of the file."""
        from bitwise_bench.cublas.row_evidence import digest
        from bitwise_cublas_profiles.describe import descriptor_of

        each = random_query(self.chosen.seed, number, self.chosen.candidates, self.chosen.shares)
        query = each.query
        if self.chosen.workspace is not None:
            query = replace(query, workspace=self.chosen.workspace)
        query = replace(query, reductions=self.chosen.reductions)
        each = replace(each, query=query)
        row: list[Any] = [
            number, REGIMES.index(each.regime), query.m, query.n, query.k, query.multiplied, query.transposes, query.c,
            0,
        ]  # fmt: skip
        try:
            result = self.library.heuristic(query)[0]
        except CublasError as error:
            return [*row, *[None] * 7, "no answer", str(error), None, None]
        found = result.configuration
        row += [found.algorithm, found.tile, found.stages, found.split_k, found.reduction, found.custom,
                found.cluster_shape]  # fmt: skip
        control = ran = None
        try:
            try:
                desc = descriptor_of(query, found, self.profile, workspace=result.workspace)
            except RowNotCovered:
                desc = descriptor_of(query, found, self.profile, extrapolate=True, workspace=result.workspace)
                row[COLUMNS.index("candidate")] = 1
            ran = digest(desc)
            outcome, about = self.compare(each, result, desc)
            if number % (CONTROL * len(REGIMES)) < len(REGIMES):
                control = self.control(each, result, desc)
        except RowNotCovered as error:
            outcome, about = "declined", str(error).split(" is not described: ")[-1].split(" (algorithm")[0]
        except ValueError as error:
            outcome, about = "declined", f"the launcher does not support it: {error}"
        except Exception as error:
            if "CUDA" in str(error):  # the CUDA context is unusable
                raise
            outcome, about = "failed", f"{type(error).__name__}: {str(error)[:300]}"
        if outcome in ("different", "declined") and self.chosen.alternatives:
            control = self.others(each, result)
        return [*row, outcome, about, control, ran]
