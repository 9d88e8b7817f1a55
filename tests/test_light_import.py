"""Importing any module imports neither torch nor Triton nor CUDA's bindings: they are optional and slow to import."""

from __future__ import annotations

import json
import subprocess
import sys

from workspace import KERNELS, distributions

PACKAGES = [found.package for found in distributions() if found.package and found.modules()]

# They are replaced by traps, so that the test can fail where they are not installed, and cannot be fooled by a
# module that catches ImportError.
PROBE = """
import importlib, json, pkgutil, sys
touched, imported = [], []
class Trap:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "triton", "cuda"):
            touched.append((imported[-1], name))
            raise ImportError(f"{name} was imported")
sys.meta_path.insert(0, Trap())
packages, kernels = map(json.loads, sys.argv[1:])
for name in packages:
    imported.append(name)
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        parents = module.name.split(".")[:-1]
        if not module.name.endswith("__main__") and not set(parents) & set(kernels):
            imported.append(module.name)
            importlib.import_module(module.name)
print(json.dumps([touched, imported]))
"""


def test_no_module_imports_an_optional_library() -> None:
    command = [sys.executable, "-c", PROBE, json.dumps(PACKAGES), json.dumps(sorted(KERNELS))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    touched, imported = json.loads(done.stdout)
    assert (touched, done.stderr) == ([], "")
    assert len(imported) > 900
    assert {each.partition(".")[0] for each in imported} == set(PACKAGES)
