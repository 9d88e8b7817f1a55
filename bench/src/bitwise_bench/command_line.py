"""Argument parsers of the commands of this distribution."""

from __future__ import annotations

import argparse


def command_parser(module: str, docstring: str | None) -> argparse.ArgumentParser:
    """Return a parser for `python -m bitwise_bench.<module>`, described by the first line of the module's docstring."""
    return argparse.ArgumentParser(prog=f"bitwise_bench.{module}", description=(docstring or "").split("\n")[0])
