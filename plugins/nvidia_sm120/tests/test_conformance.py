"""The conformance suite on sm_120."""

from pathlib import Path

from bitwise_conformance.suite import *
from bitwise_nvidia_sm120 import plugin

SUITE = Suite(plugin, Path(__file__).parent / "samples")
