"""The conformance suite of the `bitwise` distributions: samples, laws and the recorded bytes of real kernels."""

from __future__ import annotations
