"""The environment on which measurements depend."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path


def analysis_environment() -> dict[str, str]:
    """Return the CPU and the versions of Python, NumPy and Triton."""
    return {
        "cpu": processor_name(),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "triton": _version("triton"),
    }


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def processor_name() -> str:
    """Return the model of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
