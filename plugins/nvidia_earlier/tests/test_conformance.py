"""The conformance suite on the matrix units of sm_70 to sm_89."""

from pathlib import Path

from bitwise_conformance.suite import *
from bitwise_nvidia_earlier import plugin

SUITE = Suite(plugin, Path(__file__).parent / "samples")
