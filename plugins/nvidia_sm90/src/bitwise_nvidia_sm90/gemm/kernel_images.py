"""The images and parameters of kernels: of compiled Triton functions, and of PTX texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound
from bitwise_nvidia_ptx.assembler.ptxas import AssemblyFailed, Ptxas
from bitwise_nvidia_sm90.gemm.driver_launches import Address, DriverError, Image, Number, Parameter, TensorMap
from bitwise_nvidia_sm90.gemm.launch import KernelCall
from bitwise_nvidia_sm90.gemm.matrix_layouts import ALIGNMENT, MatrixMap
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM

_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""The driver's code of a swizzle by its width in bytes."""
_WARP = 32


def triton_image(compiled: Any) -> Image:
    """Return the image of a compiled Triton function.

    Raises DriverError for one that needs scratch memory, a cooperative launch or clusters.
    """
    metadata = compiled.metadata
    if metadata.global_scratch_size or metadata.profile_scratch_size:
        raise DriverError(f"the kernel {compiled.name} needs scratch memory, which its launches do not allocate")
    if metadata.launch_cooperative_grid or metadata.num_ctas != 1:
        raise DriverError(f"the kernel {compiled.name} needs a cooperative launch or clusters")
    return Image(
        compiled.asm["cubin"], compiled.name, _WARP * metadata.num_warps, metadata.shared,
        dependent=bool(metadata.launch_pdl),
    )  # fmt: skip


def triton_parameters(compiled: Any, arguments: Mapping[str, Any], matrices: Sequence[Any]) -> tuple[Parameter, ...]:
    """Return the parameters of a compiled Triton function, in the order of Triton's own launcher.

    `arguments` are all arguments in order; those that are one of `matrices`, or the MatrixMap of one, change between
    calls.  A constant is no parameter; a tensor map is followed by its shape and its strides; two addresses of scratch
    memory, which these kernels do not use, come last.
    """
    maps = iter(compiled.metadata.tensordesc_meta or ())
    found: list[Parameter] = []
    for name, kind in compiled.src.signature.items():
        value = arguments[name]
        if kind == "constexpr":
            continue
        if isinstance(value, MatrixMap):
            form = next(maps)
            made = tensor_map(value, matrices, tuple(form["block_size"]), form["swizzle"])
            if form["elem_size"] != made.size or form["fp4_padded"]:
                raise DriverError(f"{name} of the kernel {compiled.name} is no tensor map of {made.dtype}")
            found += [made, *map(Number, (*value.shape, *value.strides))]
        elif kind.startswith("*"):
            found.append(Address(_index(value, matrices)))
        else:
            found.append(Number(int(value)))
    return (*found, Number(0), Number(0))


def text_parameters(call: KernelCall, matrices: Sequence[Any]) -> tuple[Parameter, ...]:
    """Return the parameters of a TextKernel: the arguments of its call in order."""
    found: list[Parameter] = []
    for value in call.arguments.values():
        if isinstance(value, MatrixMap):
            found.append(tensor_map(value, matrices, value.block, _SWIZZLES[value.swizzle]))
        elif isinstance(value, int):
            found.append(Number(value))
        else:
            found.append(Address(_index(value, matrices)))
    return tuple(found)


def tensor_map(given: MatrixMap, matrices: Sequence[Any], box: tuple[int, ...], swizzle: int) -> TensorMap:
    """Return the tensor map of a matrix with a box and the driver's code of a swizzle.  Raises UnsupportedGEMM."""
    check_alignment(given)
    matrix = given.matrix
    dtype = str(matrix.dtype).removeprefix("torch.")
    return TensorMap(
        _index(matrix, matrices), dtype, int(matrix.element_size()), given.shape, given.strides, box, swizzle
    )


def check_alignment(given: MatrixMap) -> None:
    """Raise UnsupportedGEMM unless the address of a matrix allows a tensor map."""
    if given.matrix.data_ptr() % ALIGNMENT:
        raise UnsupportedGEMM(f"a matrix is not aligned to {ALIGNMENT} bytes: tensor maps need that")


def _index(matrix: Any, matrices: Sequence[Any]) -> int:
    return next(index for index, each in enumerate(matrices) if each is matrix)


def object_file(text: str) -> bytes:
    """Return the object file of a PTX text for sm_90a, cached on disk.  Raises DriverError."""
    try:
        return Ptxas.locate("sm_90a", text=text).cached_assembly(text)
    except (AssemblyFailed, PtxasNotFound) as error:
        raise DriverError(f"the PTX text of a kernel cannot be assembled: {error}") from None
