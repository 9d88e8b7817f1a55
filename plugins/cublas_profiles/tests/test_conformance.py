"""The profiles of cuBLASLt take the suite that every plugin takes."""

from pathlib import Path

from bitwise_conformance.suite import *
from bitwise_cublas_profiles import plugin

SUITE = Suite(plugin, Path(__file__).parent / "samples")
