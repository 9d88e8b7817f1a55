"""Prints the signatures of a plugin's samples, as JSON: what another process makes of them.

python -m bitwise_conformance.suite.again PLUGIN SAMPLES
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from bitwise_conformance.suite.reading import signatures
from bitwise_conformance.suite.suite import Suite


def main(plugin: str, samples: str) -> None:
    """Reads every sample of the plugin in that module."""
    print(json.dumps(signatures(Suite(import_module(plugin), Path(samples)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
