"""Triton integration: compare and partition compiled configurations without a GPU, and prune autotuning to equal bits.

`compare`, `partition` and `capture` take a kernel, its `triton.Config` objects and its arguments.
`equivalence_pruner` restricts an autotuner to configurations that are proved equal to a reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitwise_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from bitwise_triton.arguments import Argument, Buffer, TensorMap
    from bitwise_triton.autotune import ConfigurationReport, equivalence_pruner
    from bitwise_triton.comparison import ConfigurationPartition, capture, compare, partition
    from bitwise_triton.compilation import CompiledKernel
    from bitwise_triton.configurations import compile_configuration, compile_configurations, write_folder
    from bitwise_triton.errors import CaptureError, UnverifiableReferenceError

__all__ = [
    "Argument",
    "Buffer",
    "CaptureError",
    "CompiledKernel",
    "ConfigurationPartition",
    "ConfigurationReport",
    "TensorMap",
    "UnverifiableReferenceError",
    "capture",
    "compare",
    "compile_configuration",
    "compile_configurations",
    "equivalence_pruner",
    "partition",
    "write_folder",
]

if not TYPE_CHECKING:  # the names are loaded when they are first used
    __getattr__ = lazy_names(
        __name__,
        {
            "arguments": ("Argument", "Buffer", "TensorMap"),
            "autotune": ("ConfigurationReport", "equivalence_pruner"),
            "comparison": ("ConfigurationPartition", "capture", "compare", "partition"),
            "compilation": ("CompiledKernel",),
            "configurations": ("compile_configuration", "compile_configurations", "write_folder"),
            "errors": ("CaptureError", "UnverifiableReferenceError"),
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
