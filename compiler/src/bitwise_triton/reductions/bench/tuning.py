"""Tuning one case in the free order and in pinned ones, over the same configurations."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitwise_triton.errors import CaptureError
from bitwise_triton.reductions.bench.cases import Case, Configuration
from bitwise_triton.reductions.bench.compiling import Build, Compiled, ratio

ROUNDS = 7


@dataclass(frozen=True)
class Tuned:
    """One order's best configuration, its time in microseconds, and the classes of bytes of all configurations.

    `compile_ratio` is the time to compile over that of the free order, None where nothing was compiled anew; `failed`
    are the configurations that do not compile, with why; `agrees` is whether the bytes are those of the order's
    evaluation on the CPU, None where it is not evaluated.
    """

    order: str
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
            "order": self.order,
            "configuration": dict(self.configuration),
            "microseconds": round(self.microseconds, 3),
            "classes": self.classes,
            "measured": self.measured,
            "compile_ratio": None if self.compile_ratio is None else round(self.compile_ratio, 3),
            "failed": list(self.failed),
            "agrees_with_order": self.agrees,
        }


def tune(case: Case, orders: Sequence[str], compiled: Mapping[tuple[str, int], Compiled | CaptureError]) -> list[Tuned]:
    """The free order and each of `orders`, each at its own best; the best ones are timed again side by side.

    `compiled` has each (order, number of configuration), or why it does not compile. Raises CaptureError where no
    configuration of an order compiles.
    """
    from bitwise_triton.reductions.bench.measuring import Timer, as_the_order_says, same_bytes, tensors_of

    tensors = tensors_of(case)
    outputs = [tensors[tensor.name] for tensor in case.tensors if tensor.content == "out"]
    best: list[Timer] = []
    found: list[dict[str, Any]] = []
    for order in ("", *orders):
        kept: list[list[Any]] = []
        times: dict[int, tuple[float, Timer]] = {}
        failed: list[str] = []
        agrees: bool | None = None
        for number, configuration in enumerate(case.configurations):
            made = compiled[order, number]
            if isinstance(made, CaptureError):
                failed.append(f"{dict(configuration)}: {made}")
                continue
            for output in outputs:
                output.zero_()
            timer = Timer(Build(case, order, number), tensors)
            times[number] = (timer.microseconds(3), timer)
            if not any(same_bytes(outputs, other) for other in kept):
                kept.append([output.clone() for output in outputs])
            if order:
                now = as_the_order_says(case, order, tensors)
                agrees = now if agrees is None else agrees and now
        if not times:
            raise CaptureError(f"No configuration of {case.name} in the order {order!r} compiles: {failed[0]}")
        number, (_, timer) = min(times.items(), key=lambda item: item[1][0])
        best.append(timer)
        found.append(
            {
                "order": order,
                "configuration": case.configurations[number],
                "classes": len(kept),
                "measured": len(times),
                "compile_ratio": ratio(compiled, order),
                "failed": tuple(failed),
                "agrees": agrees,
            }
        )
    rounds = [[timer.microseconds(1) for timer in best] for _ in range(ROUNDS)]
    medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
    return [Tuned(**one, microseconds=time) for one, time in zip(found, medians, strict=True)]
