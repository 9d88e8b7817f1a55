"""Triton integration: capture compiled configurations without a GPU, and prune autotuning to those of equal bits."""

from __future__ import annotations

from bitwise_triton.arguments import Argument, Buffer, TensorMap
from bitwise_triton.autotune import Report, same_bits
from bitwise_triton.capture import all_captured, capture_each, compile_configuration, write_folder
from bitwise_triton.compilation import Captured
from bitwise_triton.errors import CaptureError, UndeterminedReferenceError

__all__ = [
    "Argument",
    "Buffer",
    "CaptureError",
    "Captured",
    "Report",
    "TensorMap",
    "UndeterminedReferenceError",
    "all_captured",
    "capture_each",
    "compile_configuration",
    "same_bits",
    "write_folder",
]
