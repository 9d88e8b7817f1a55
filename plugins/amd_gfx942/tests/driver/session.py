"""Runs the launcher with the real hip-python on a driver built for tests: `session.py FOLDER`.

A separate process, in which hip-python loads this driver.  A launch calls back into this module, which evaluates the
descriptor on the memory that the launcher allocated.  Prints what it observed as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from bitwise_amd_gfx942 import device, matrix_units
from bitwise_amd_gfx942.launcher import Products
from bitwise_core.descriptors import GEMMDesc, read
from bitwise_core.descriptors.evaluation import evaluate
from bitwise_core.descriptors.hardware import Hardware
from bitwise_core.numerics import FLOAT_FORMATS, storage

HARDWARE = Hardware({row.name: row for row in matrix_units.ROWS})
LAUNCH = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_void_p, ctypes.c_uint64
)


class _Parameters(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("a", "b", "c")),
        *((name, ctypes.c_int32) for name in ("m", "n", "k", "used")),
        *((name, ctypes.c_uint64) for name in ("first_scratch", "second_scratch")),
    )


def build(folder: Path) -> ctypes.CDLL:
    """Compile the driver to the path where hip-python loads it."""
    library = folder / "lib" / "libamdhip64.so"
    library.parent.mkdir()
    source = Path(__file__).parent / "libamdhip64.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", str(library), str(source)], check=True)
    os.environ["ROCM_PATH"] = str(folder)
    found = ctypes.CDLL(str(library))
    found.test_live.restype = ctypes.c_int64
    return found


def architecture_offset() -> int:
    """The byte offset of the architecture's name in hip-python's record of device properties."""
    from hip import hip

    record = hip.hipDeviceProp_t.allocate(1)
    base, size = record.as_c_void_p().value, record.c_sizeof()
    for offset in range(size - 7):
        ctypes.memset(base, 0, size)
        ctypes.memmove(base + offset, b"gfx942", 7)
        if record.gcnArchName in (b"gfx942", "gfx942"):
            return offset
    raise AssertionError("no offset of gcnArchName was found")


def array(address: int, dtype: str, shape: tuple[int, int]) -> np.ndarray:
    """The memory at an address as an array."""
    width = storage(FLOAT_FORMATS[dtype].bits)
    size = shape[0] * shape[1] * np.dtype(width).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), width).reshape(shape)


def main() -> None:
    """Run the products on standard input: one per line, the rows, the columns and the descriptor."""
    driver = build(Path(sys.argv[1]))
    offset = architecture_offset()
    observed: dict[str, list[object]] = {"launches": [], "equal": [], "missing": [], "errors": []}
    descriptors: list[GEMMDesc] = []

    def launch(code: int, name: bytes, shape: list[int], arguments: int, size: int) -> None:
        given = _Parameters.from_address(arguments)
        desc = descriptors[-1]
        a = array(given.a, desc.left_dtype, (given.m, given.k))
        b = array(given.b, desc.right_dtype, (given.k, given.n))
        array(given.c, desc.output_dtype, (given.m, given.n))[:] = evaluate(desc, a, b, hardware=HARDWARE)
        scratch = given.first_scratch, given.second_scratch
        elf = ctypes.string_at(code, 4) == b"\x7fELF"
        observed["launches"].append([name.decode(), shape[:7], size, given.used, scratch, elf])

    callback = LAUNCH(launch)
    for architecture, count in ((b"gfx942:sramecc+:xnack-", 1), (b"gfx90a", 1), (b"gfx942", 0)):
        driver.test_setup(callback, architecture, count, offset)
        observed["missing"].append(Products().missing())
    driver.test_setup(callback, b"gfx942", 1, offset)
    generator = np.random.default_rng(5)
    for line in sys.stdin.read().splitlines():
        m, n, text = line.split(" ", 2)
        desc = read(text)
        assert isinstance(desc, GEMMDesc)
        descriptors.append(desc)
        a, b = (
            generator.integers(0, 1 << FLOAT_FORMATS[dtype].bits, shape, dtype=np.uint64).astype(
                storage(FLOAT_FORMATS[dtype].bits)
            )
            for dtype, shape in ((desc.left_dtype, (int(m), desc.k)), (desc.right_dtype, (desc.k, int(n))))
        )
        out = Products().launch(desc, a, b)
        observed["equal"].append(bool(out.tobytes() == evaluate(desc, a, b, hardware=HARDWARE).tobytes()))
    for failure in (2, 500):
        driver.test_fail(failure)
        try:
            Products().launch(desc, a, b)
        except device.DeviceError as error:
            observed["errors"].append(str(error))
    print(json.dumps({**observed, "live": driver.test_live()}))


if __name__ == "__main__":
    main()
