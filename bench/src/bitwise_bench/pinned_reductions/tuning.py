"""Tuning of one case in the free order and in pinned ones, over the same configurations."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitwise_bench.pinned_reductions.cases import Case, Configuration
from bitwise_bench.pinned_reductions.compilation import FREE, Build, Compiled, Variant, ratio
from bitwise_triton.errors import CaptureError

ROUNDS = 7


@dataclass(frozen=True)
class Tuned:
    """One variant's best configuration, its time in microseconds, and the classes of bytes over all configurations.

    `compile_ratio` is the compile time relative to the free order, None if nothing was compiled afresh. `failed` are
    the configurations that do not compile, with reasons. `agrees` is whether the bytes are those of the order's CPU
    evaluation, None if it is not evaluated.
    """

    variant: Variant
    configuration: Configuration
    microseconds: float
    classes: int
    measured: int
    compile_ratio: float | None
    failed: tuple[str, ...]
    agrees: bool | None

    def as_json(self) -> dict[str, Any]:
        """The form of the record."""
        return {
            "order": self.variant.order,
            "configuration": dict(self.configuration),
            "microseconds": round(self.microseconds, 3),
            "classes": self.classes,
            "measured": self.measured,
            "compile_ratio": None if self.compile_ratio is None else round(self.compile_ratio, 3),
            "failed": list(self.failed),
            "agrees_with_order": self.agrees,
        }


def tune(
    case: Case, variants: Sequence[Variant], compiled: Mapping[tuple[Variant, int], Compiled | CaptureError]
) -> list[Tuned]:
    """The free order and each of `variants`, each at its own best; the best ones are timed again round-robin.

    `compiled` has each (variant, configuration number), or the compile error. The bytes of an order with and without
    the layout pass are compared as one. Raises CaptureError if no configuration of a variant compiles.
    """
    from bitwise_bench.pinned_reductions.measurement import Timer, matches_order, same_bytes, tensors_of

    tensors = tensors_of(case)
    outputs = [tensors[tensor.name] for tensor in case.tensors if tensor.content == "out"]
    best: list[Timer] = []
    found: list[dict[str, Any]] = []
    classes: dict[str, list[list[Any]]] = {}
    for variant in (FREE, *variants):
        kept = classes.setdefault(variant.order, [])
        times: dict[int, tuple[float, Timer]] = {}
        failed: list[str] = []
        agrees: bool | None = None
        for number, configuration in enumerate(case.configurations):
            made = compiled[variant, number]
            if isinstance(made, CaptureError):
                failed.append(f"{dict(configuration)}: {made}")
                continue
            for output in outputs:
                output.zero_()
            timer = Timer(Build(case, variant, number), tensors)
            times[number] = (timer.microseconds(3), timer)
            if not any(same_bytes(outputs, other) for other in kept):
                kept.append([output.clone() for output in outputs])
            if variant != FREE:
                now = matches_order(case, variant.order, tensors)
                agrees = now if agrees is None else agrees and now
        if not times:
            raise CaptureError(f"No configuration of {case.name} in the order {variant.order!r} compiles: {failed[0]}")
        number, (_, timer) = min(times.items(), key=lambda item: item[1][0])
        best.append(timer)
        found.append(
            {
                "variant": variant,
                "configuration": case.configurations[number],
                "classes": len(kept),
                "measured": len(times),
                "compile_ratio": ratio(compiled, variant),
                "failed": tuple(failed),
                "agrees": agrees,
            }
        )
    rounds = [[timer.microseconds(1) for timer in best] for _ in range(ROUNDS)]
    medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
    return [Tuned(**one, microseconds=time) for one, time in zip(found, medians, strict=True)]
