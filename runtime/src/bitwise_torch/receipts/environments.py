"""The environment of this process: distributions, Python, library, device and the variables that select kernels."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import distributions
from types import ModuleType

from bitwise_core.caching.code_digest import code_digest
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import LockableProfile, NotCovered
from bitwise_torch.receipts.receipt_file import Environment, Package

_OTHERS = ("torch", "triton", "numpy", "cuda-bindings", "nvidia-cublas", "nvidia-cublas-cu12")

VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "TORCH_CUBLASLT_UNIFIED_WORKSPACE", "DISABLE_ADDMM_CUDA_LT",
    "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "PYTORCH_TUNABLEOP_ENABLED",
    "TORCH_BLAS_PREFER_CUBLASLT", "TORCH_BLAS_PREFER_HIPBLASLT",
)  # fmt: skip
"""Variables by which PyTorch and the libraries select kernels of matrix products."""


def environment() -> Environment:
    """Return the environment of this process; `device` is empty where no plugin describes a library on a device."""
    code = {
        each.distribution: code_digest([each.module]) if isinstance(each.module, ModuleType) else None
        for each in registry.default().plugins
    }
    found = {str(each.name): each.version for each in distributions()}
    packages = {
        name: Package(version=version, code=code.get(name))
        for name, version in sorted(found.items())
        if name.startswith("bitwise-") or name in _OTHERS
    }
    return Environment(
        packages=packages, python=platform.python_version(), machine=f"{platform.system()} {platform.machine()}",
        device=device(), variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )  # fmt: skip


def device() -> Mapping[str, str]:
    """Return what the first plugin that describes a library on this machine says of both; nothing without one."""
    for profile in registry.default().profiles:
        if isinstance(profile, LockableProfile):
            try:
                return dict(profile.provenance())
            except NotCovered:
                continue
    return {}
