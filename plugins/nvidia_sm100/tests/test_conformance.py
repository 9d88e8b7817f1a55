"""The conformance suite on sm_100 and sm_103."""

from pathlib import Path

from bitwise_conformance.suite import *
from bitwise_nvidia_sm100 import plugin

SUITE = Suite(plugin, Path(__file__).parent / "samples")
