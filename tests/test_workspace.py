"""The parser of imports that the structure tests use."""

from __future__ import annotations

import pytest

from workspace import Import, distributions, imports

SOURCE = """
import one.two
from three import four as five
from . import six
from .seven import eight
from ..nine import ten
if TYPE_CHECKING:
    import eleven
else:
    import twelve
def f():
    import thirteen
    if typing.TYPE_CHECKING:
        import fourteen
class C:
    import fifteen
    def g(self):
        import sixteen
try:
    import seventeen
except ImportError:
    pass
"""


def test_every_import_is_found_with_its_line() -> None:
    assert imports(SOURCE, "top.sub") == [
        Import("one.two", 2, in_function=False, for_types=False),
        Import("three.four", 3, in_function=False, for_types=False),
        Import("top.sub.six", 4, in_function=False, for_types=False),
        Import("top.sub.seven.eight", 5, in_function=False, for_types=False),
        Import("top.nine.ten", 6, in_function=False, for_types=False),
        Import("eleven", 8, in_function=False, for_types=True),
        Import("twelve", 10, in_function=False, for_types=False),
        Import("thirteen", 12, in_function=True, for_types=False),
        Import("fourteen", 14, in_function=True, for_types=True),
        Import("fifteen", 16, in_function=False, for_types=False),
        Import("sixteen", 18, in_function=True, for_types=False),
        Import("seventeen", 20, in_function=False, for_types=False),
    ]


@pytest.mark.parametrize(
    ("in_function", "for_types", "at_load"),
    [(False, False, True), (True, False, False), (False, True, False), (True, True, False)],
)
def test_which_imports_run_at_load(in_function: bool, for_types: bool, at_load: bool) -> None:
    assert Import("x", 1, in_function, for_types).at_load is at_load


def test_all_distributions_are_found() -> None:
    assert {found.name: found.package for found in distributions()} == {
        "bitwise-core": "bitwise_core",
        "bitwise-torch": "bitwise_torch",
        "bitwise-nvidia-ptx": "bitwise_nvidia_ptx",
        "bitwise-nvidia-earlier": "bitwise_nvidia_earlier",
        "bitwise-nvidia-sm90": "bitwise_nvidia_sm90",
        "bitwise-nvidia-sm100": "bitwise_nvidia_sm100",
        "bitwise-nvidia-sm120": "bitwise_nvidia_sm120",
        "bitwise-nvidia": None,
        "bitwise-cublas-profiles": "bitwise_cublas_profiles",
        "bitwise-amd-gfx942": "bitwise_amd_gfx942",
        "bitwise-amd": None,
        "bitwise-rocblas-profiles": "bitwise_rocblas_profiles",
        "bitwise-triton": "bitwise_triton",
        "bitwise-pytest": "bitwise_pytest",
        "bitwise-conformance": "bitwise_conformance",
        "bitwise-toy": "bitwise_toy",
        "bitwise-bench": "bitwise_bench",
    }
