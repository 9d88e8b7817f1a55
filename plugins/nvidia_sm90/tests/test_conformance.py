"""The conformance suite on sm_90."""

from pathlib import Path

from bitwise_conformance.suite import *
from bitwise_nvidia_sm90 import plugin

SUITE = Suite(plugin, Path(__file__).parent / "samples")
