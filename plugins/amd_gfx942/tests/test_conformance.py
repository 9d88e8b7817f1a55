"""The conformance suite on the gfx942 plugin."""

from pathlib import Path

from bitwise_amd_gfx942 import plugin
from bitwise_conformance.suite import *

SUITE = Suite(plugin, Path(__file__).parent / "samples")
