"""Typical user kernels with their autotuning spaces, for the demonstration."""

from __future__ import annotations

from bitwise_triton.samples.sample import Sample

__all__ = ["Sample", "all_samples"]


def all_samples() -> list[Sample]:
    """Every sample, in the order of the demonstration. Imports Triton."""
    from bitwise_triton.samples import masked_gemm, softmax_rows

    return [softmax_rows.SAMPLE, masked_gemm.SAMPLE]
