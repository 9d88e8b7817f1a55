"""Prints the signatures of the samples of a plugin, as JSON.

python -m bitwise_conformance.suite.print_signatures PLUGIN SAMPLES
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from bitwise_conformance.suite.analysis import signatures
from bitwise_conformance.suite.suite import Suite


def main(plugin: str, samples: str) -> None:
    """Read every sample of a plugin, given by its module."""
    print(json.dumps(signatures(Suite(import_module(plugin), Path(samples)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
