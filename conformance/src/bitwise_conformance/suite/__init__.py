"""The suite that every architecture's plugin runs: `pytest --pyargs bitwise_conformance`."""
