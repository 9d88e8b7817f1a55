"""Say, pin and prove which bits a GPU kernel returns.

The names below are loaded when they are first used: to import the package loads none of its modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bitwise_core.api import (
        BitwiseError,
        Counterexample,
        Determinism,
        DeterminismReport,
        Divergence,
        GEMMDesc,
        KernelDeterminism,
        Launch,
        Outcome,
        Partition,
        Place,
        RunResult,
        Source,
        Verdict,
        compare,
        determinism,
        evaluate,
        partition,
        run,
    )

    __version__: str

__all__ = [
    "BitwiseError",
    "Counterexample",
    "Determinism",
    "DeterminismReport",
    "Divergence",
    "GEMMDesc",
    "KernelDeterminism",
    "Launch",
    "Outcome",
    "Partition",
    "Place",
    "RunResult",
    "Source",
    "Verdict",
    "__version__",
    "compare",
    "determinism",
    "evaluate",
    "partition",
    "run",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "__version__":
            from importlib.metadata import version

            return version("bitwise-core")
        from bitwise_core import api

        return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
