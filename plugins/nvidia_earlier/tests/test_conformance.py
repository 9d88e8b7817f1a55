"""The matrix units of sm_70 to sm_89 take the suite that every plugin takes."""

from pathlib import Path

from bitwise_conformance.suite import *
from bitwise_nvidia_earlier import plugin

SUITE = Suite(plugin, Path(__file__).parent / "samples")
