"""One process of a sweep: a shape asked, run as answered and from the descriptor of the answer, and compared."""

from __future__ import annotations

import argparse
import importlib
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from bitwise_cublas_profiles.draws import CANCELLING, DRAWS, PLAIN, Pools
from bitwise_cublas_profiles.library import Library, Pointers
from bitwise_cublas_profiles.profile import Declined, Profile, profile
from bitwise_cublas_profiles.question import Answer, CublasError, Question
from bitwise_cublas_profiles.shapes import REGIMES, Drawn, drawn
from bitwise_cublas_profiles.tally import COLUMNS

CONTROL = 16


class Sweep:
    """What one process needs: the library, the profile, pools of random operands, and the launcher."""

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

    def compare(self, each: Drawn, answer: Answer, desc: Any, draws: int = DRAWS) -> tuple[str, Any]:
        """Runs both on the last `draws` draws: `equal`, or `different` and where."""
        torch, asked = self.torch, each.asked
        from bitwise_cublas_profiles.tensors import torch_type

        theirs = torch.full((asked.m, asked.n), -7.0, dtype=torch_type(asked.c), device=self.device)
        ours = torch.full_like(theirs, 5.0)
        chosen = range(DRAWS - draws, DRAWS)
        counts = []
        for draw in chosen:
            a, b = self.pools.operands(asked, each.number, draw)
            self._both(asked, answer, desc, a, b, theirs, ours)
            counts.append((self._bits(theirs) != self._bits(ours)).sum())
        differ = dict(zip(chosen, torch.stack(counts).tolist(), strict=True))
        if not any(differ.values()):
            return "equal", None
        mask, about = 0, None
        for draw in (draw for draw, count in differ.items() if count):
            a, b = self.pools.operands(asked, each.number, draw)
            self._both(asked, answer, desc, a, b, theirs, ours)
            # All NaNs are one value.
            wrong = (self._bits(theirs) != self._bits(ours)) & ~(theirs.isnan() & ours.isnan())
            count = int(wrong.sum())
            if count:
                mask |= 1 << draw
                if about is None:
                    first = int(wrong.flatten().nonzero()[0])
                    bits = [int(self._bits(side).flatten()[first]) for side in (theirs, ours)]
                    about = [count, first, *bits]
        return ("different", [mask, *about]) if about is not None else ("equal", None)

    def _both(self, asked: Question, answer: Answer, desc: Any, a: Any, b: Any, theirs: Any, ours: Any) -> None:
        pointers = Pointers(a.data_ptr(), b.data_ptr(), theirs.data_ptr(), self.space.data_ptr())
        self.library.run(asked, answer, pointers, self.torch.cuda.current_stream().cuda_stream)
        self.launch(desc, a, b, ours)

    def _bits(self, matrix: Any) -> Any:
        return matrix.view(self.torch.int32 if matrix.element_size() == 4 else self.torch.int16)

    def control(self, each: Drawn, answer: Answer, desc: Any) -> list[Any] | None:
        """Runs a wrong descriptor on every draw: what is wrong, and on how many draws of either kind that shows."""
        from bitwise_cublas_profiles.perturb import perturbed

        found = perturbed(desc, random.Random(f"{self.chosen.seed}:{each.number}:control"))
        if found is None:
            return None
        try:
            outcome, about = self.compare(each, answer, found[1])
        except Exception as error:  # the launcher refuses it
            if "CUDA" in str(error):
                raise
            return None
        shown = about[0] if outcome == "different" else 0
        return [found[0], (shown & (1 << PLAIN) - 1).bit_count(), (shown >> DRAWS - CANCELLING).bit_count()]

    def others(self, each: Drawn, answer: Answer) -> list[Any] | None:
        """The alternatives that return cuBLAS's bytes, for the first shapes of every configuration."""
        from bitwise_cublas_profiles.perturb import alternatives

        found = answer.configuration
        key = (each.asked.a, found.algorithm, found.stages, found.custom, found.reduction, each.asked.letters)
        self.tried[key] += 1
        if self.tried[key] > 2:
            return None
        names: list[str] = []
        enough = time.time() + 8
        for name, desc in alternatives(each.asked, found.split_k):
            if time.time() > enough:
                names.append("unfinished")
                break
            try:
                # The draws that tell most come last, and are tried first.
                if all(self.compare(each, answer, desc, draws)[0] == "equal" for draws in (CANCELLING, DRAWS)):
                    names.append(name)
            except Exception as error:
                if "CUDA" in str(error):
                    raise
        return ["alternatives", names]

    def row(self, number: int) -> list[Any]:
        """One line of the file."""
        from bitwise_cublas_profiles.describe import descriptor_of
        from bitwise_cublas_profiles.provenance import digest

        each = drawn(self.chosen.seed, number, self.chosen.candidates, self.chosen.shares)
        asked = each.asked
        row: list[Any] = [
            number, REGIMES.index(each.regime), asked.m, asked.n, asked.k, asked.a, asked.letters, asked.c, 0,
        ]  # fmt: skip
        try:
            answer = self.library.ask(asked)[0]
        except CublasError as error:
            return [*row, *[None] * 7, "no answer", str(error), None, None]
        found = answer.configuration
        row += [found.algorithm, found.tile, found.stages, found.split_k, found.reduction, found.custom,
                found.cluster_shape]  # fmt: skip
        control = ran = None
        try:
            try:
                desc = descriptor_of(asked, found, self.profile)
            except Declined:
                desc = descriptor_of(asked, found, self.profile, beyond=True)
                row[COLUMNS.index("candidate")] = 1
            ran = digest(desc)
            outcome, about = self.compare(each, answer, desc)
            if number % (CONTROL * len(REGIMES)) < len(REGIMES):
                control = self.control(each, answer, desc)
        except Declined as error:
            outcome, about = "declined", str(error).split(" is not described: ")[-1].split(" (algorithm")[0]
        except ValueError as error:
            outcome, about = "declined", f"the launcher refuses: {error}"
        except Exception as error:
            if "CUDA" in str(error):  # nothing more runs in this process
                raise
            outcome, about = "failed", f"{type(error).__name__}: {str(error)[:300]}"
        if outcome in ("different", "declined") and self.chosen.alternatives:
            control = self.others(each, answer)
        return [*row, outcome, about, control, ran]
