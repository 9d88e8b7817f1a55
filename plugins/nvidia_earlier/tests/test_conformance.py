"""The conformance suite on sm_80, sm_86 and sm_89, and on the matrix units from sm_70 on."""

from pathlib import Path

from bitwise_conformance.suite import *
from bitwise_nvidia_earlier import plugin

SUITE = Suite(plugin, Path(__file__).parent / "samples")
