"""Importing any module imports neither torch nor Triton nor CUDA's bindings: they are optional and slow to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from workspace import KERNELS, distributions

PACKAGES = [found.package for found in distributions() if found.package and found.modules()]

# They are replaced by traps, so that the test can fail where they are not installed, and cannot be fooled by a
# module that catches ImportError.
PROBE = """
import importlib, pkgutil, sys
touched = []
class Trap:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "triton", "cuda"):
            touched.append(name)
            raise ImportError(f"{name} was imported")
sys.meta_path.insert(0, Trap())
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, sys.argv[1] + "."):
    parents = module.name.split(".")[:-1]
    if not module.name.endswith("__main__") and not set(parents) & set(sys.argv[2:]):
        importlib.import_module(module.name)
print(touched)
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_an_optional_library(package: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE, package, *KERNELS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("[]\n", "")
