"""Numerical experiments on any callable: in which order it adds, read off its outputs alone."""

from __future__ import annotations

from bitwise_core.probe.forms import Form, form_of, words
from bitwise_core.probe.reveal import Revealed, reveal
from bitwise_core.probe.separate import Separation, separate
from bitwise_core.probe.subject import ProbeError, Subject, product_subject, reduction_subject
from bitwise_core.probe.sums import SumTree

__all__ = [
    "Form",
    "ProbeError",
    "Revealed",
    "Separation",
    "Subject",
    "SumTree",
    "form_of",
    "product_subject",
    "reduction_subject",
    "reveal",
    "separate",
    "words",
]
