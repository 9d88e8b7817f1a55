"""Say, pin and prove which bits a GPU kernel returns."""

from __future__ import annotations

from bitwise_core.lazy_names import lazy_names

TYPE_CHECKING = False  # `typing` takes a third of the time in which Python starts
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


if not TYPE_CHECKING:  # the names are loaded when they are first used
    _of_the_api = lazy_names(__name__, {"api": [name for name in __all__ if name != "__version__"]})

    def __getattr__(name: str) -> object:
        if name != "__version__":
            return _of_the_api(name)
        from importlib.metadata import version

        return version("bitwise-core")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
