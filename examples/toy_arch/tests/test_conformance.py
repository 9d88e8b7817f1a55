"""The conformance suite for toy1."""

from pathlib import Path

from bitwise_conformance.suite import *
from bitwise_toy import plugin

SUITE = Suite(plugin, Path(__file__).parent / "samples")
