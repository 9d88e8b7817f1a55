"""The conformance suite on the profiles of rocBLAS and hipBLASLt."""

from pathlib import Path

from bitwise_conformance.suite import *
from bitwise_rocblas_profiles import plugin

SUITE = Suite(plugin, Path(__file__).parent / "samples")
