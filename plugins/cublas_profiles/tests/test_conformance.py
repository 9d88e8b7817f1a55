"""The conformance suite on the cuBLASLt profiles."""

from pathlib import Path

from bitwise_conformance.suite import *
from bitwise_cublas_profiles import plugin

SUITE = Suite(plugin, Path(__file__).parent / "samples")
