"""Prepared products: the parameters of compiled kernels, and which matrices later calls use."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_core.descriptors import Epilogue, GEMMDesc, read
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_sm90.gemm import driver_launches, kernel_images
from bitwise_nvidia_sm90.gemm import prepared_launches as prepared
from bitwise_nvidia_sm90.gemm.driver_launches import Address, DriverError, Image, Number, TensorMap
from bitwise_nvidia_sm90.gemm.fusions import Fusion
from bitwise_nvidia_sm90.gemm.kernels.text_kernel import TextKernel
from bitwise_nvidia_sm90.gemm.launch import KernelCall, kernel_calls
from bitwise_nvidia_sm90.gemm.matrix_layouts import MatrixMap
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule, fallback
from fake_driver import FakeDriver

WGMMA = "path=matrix instruction=instruction(architecture=sm_90 family=wgmma k=16) instruction_k=16"
FP8 = (
    "path=matrix instruction=instruction(architecture=sm_90 family=wgmma k=32) instruction_k=32 k_cuts=[cut(span=128)]"
)
BLOCKS = "path=fma k_cuts=[cut(layout=strided count=4 tile=128) cut(layout=strided count=128 merge=halves)]"
MMA_K8 = (
    "path=matrix instruction=instruction(architecture=sm_90 family=mma.sync k=8) instruction_k=8 k_loop_step=32 "
    "short_iteration=first"
)
NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "e4m3": "float8_e4m3fn"}
TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry copied(.param .align 64 .b8 map[128], .param .u64 target, .param .u32 count)
{ ret; }
"""


class ElementType(str):
    """A stand-in for a type of PyTorch."""

    @property
    def itemsize(self) -> int:
        return next(FLOAT_FORMATS[short].bits // 8 for short, name in NAMES.items() if name == self)


class Matrix:
    """A stand-in for a tensor: its address, and what a launch reads."""

    device = SimpleNamespace(index=0)

    def __init__(self, shape: tuple[int, ...], dtype: str, address: int = 4096, strides: Any = None) -> None:
        self.shape, self.dtype, self.address = shape, ElementType(NAMES[dtype]), address
        self.strides = strides or (shape[-1], 1)
        self.size = self.dtype.itemsize

    def stride(self) -> tuple[int, ...]:
        return tuple(self.strides)

    def data_ptr(self) -> int:
        return self.address

    def element_size(self) -> int:
        return self.size

    def numel(self) -> int:
        found = 1
        for each in self.shape:
            found *= each
        return found

    def detach(self) -> Matrix:
        return Matrix(
            self.shape, {name: short for short, name in NAMES.items()}[self.dtype], self.address, self.strides
        )


def descriptor(k: int, rest: str, dtype: str = "fp16", out: str = "fp16") -> GEMMDesc:
    found = read(f"gemm(k={k} left_dtype={dtype} right_dtype={dtype} output_dtype={out} {rest})")
    assert isinstance(found, GEMMDesc)
    return found


class Function:
    """A stand-in for a Triton function whose compiled code has a PTX text."""

    arg_names = ("A", "B", "C", "N", "BLOCK")

    def __init__(self, text: str = "") -> None:
        metadata = SimpleNamespace(
            global_scratch_size=0, profile_scratch_size=0, launch_cooperative_grid=False, num_warps=4, shared=0,
            num_ctas=1, launch_pdl=True, tensordesc_meta=None,
        )  # fmt: skip
        signature = {"A": "*fp16", "B": "*fp16", "C": "*fp32", "N": "i32", "BLOCK": "constexpr"}
        self.compiled = SimpleNamespace(
            metadata=metadata, src=SimpleNamespace(signature=signature), name="part", hash="code",
            asm={"ptx": text, "cubin": b"cubin"},
        )  # fmt: skip

    def warmup(self, **given: Any) -> Any:
        assert {"A", "B", "C", "N", "BLOCK", "grid", "num_warps"} == given.keys()
        return self.compiled


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    found = FakeDriver({"part": (8, 8, 8, 4, 8, 8)})
    monkeypatch.setattr(driver_launches, "driver", lambda: found)
    monkeypatch.setattr(driver_launches, "launch_address", lambda: None)
    monkeypatch.setattr(driver_launches, "_kernels", {})
    functions = SimpleNamespace(
        _cuda_getDevice=lambda: 0,
        _cuda_getCurrentRawStream=lambda index: 5,
        _cuda_cudaCachingAllocator_raw_alloc=lambda size, stream: size << 20,
        _cuda_cudaCachingAllocator_raw_delete=lambda address: None,
    )
    cuda = SimpleNamespace(current_device=None, caching_allocator_delete=None)
    torch = SimpleNamespace(
        float32="fp32", _C=functions, cuda=cuda, empty=lambda shape, dtype, device: Matrix(shape, dtype, 1 << 40)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return found


def prepare(monkeypatch: pytest.MonkeyPatch, function: Function, made: Any, a: Matrix, b: Matrix, out: Matrix) -> Any:
    def calls(plan: Any, chosen: Any, a: Any, b: Any, out: Any, workspace: Any, fusion: Any, *_: Any) -> Any:
        space = workspace((2, 3, 4), "fp32")
        return [
            KernelCall(function, (2,), {"A": a, "B": b, "C": space, "N": 7}, {"BLOCK": 3}, {"num_warps": 4}),
            KernelCall(
                function, (2, 5), {"B": space, "A": out, "C": out, "N": 8}, {"BLOCK": 3}, {"num_warps": 4}, 7168
            ),
        ]

    monkeypatch.setattr(prepared, "kernel_calls", calls)
    return prepared.prepare(descriptor(64, WGMMA), made, Schedule(64, 64), a, b, out)  # type: ignore[arg-type]


def test_a_prepared_product_uses_the_matrices_of_its_call(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = Matrix((2, 2), "fp16", 16)
    found = prepare(monkeypatch, Function(), None, twice, twice, Matrix((2, 2), "fp16", 32))
    found.launch(64, 128, 256)
    space = 2 * 3 * 4 * 4 << 20
    assert [each[3] for each in fake.launches] == [
        (16, 16, space, 7, 0, 0), (32, space, 32, 8, 0, 0), (64, 128, space, 7, 0, 0), (256, space, 256, 8, 0, 0),
    ]  # fmt: skip
    assert [(each[2].gridDimX, each[2].gridDimY) for each in fake.launches] == [(2, 1), (2, 5)] * 2
    assert [each[2].sharedMemBytes for each in fake.launches] == [0, 7168] * 2
    assert {each[1] for each in fake.launches} == {5}
    assert found.code == ("code", "code")


@pytest.mark.parametrize("sliced", [False, True])
def test_the_operands_of_an_epilogue_follow_the_output(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, sliced: bool
) -> None:
    def calls(plan: Any, chosen: Any, a: Any, b: Any, out: Any, workspace: Any, fusion: Any, *_: Any) -> Any:
        bias, residual = fusion.operands
        last = workspace((2, 2), "fp32") if sliced else out
        return [KernelCall(Function(), (2,), {"A": residual, "B": bias, "C": last, "N": 7}, {"BLOCK": 3},
                           {"num_warps": 4})]  # fmt: skip

    monkeypatch.setattr(prepared, "kernel_calls", calls)
    matrices = [Matrix((2, 2), "fp16", 16 * place) for place in range(5)]
    fusion = Fusion(Epilogue.of("bias", "add"), "fp16", (matrices[3], matrices[4]))
    found = prepared.prepare(descriptor(64, WGMMA), None, Schedule(64, 64), *matrices[:3], fusion)  # type: ignore[arg-type]
    found.launch(64, 128, 256, 512, 1024)
    space = 2 * 2 * 4 << 20
    assert [each[3][:3] for each in fake.launches] == [
        (64, 48, space if sliced else 32), (1024, 512, space if sliced else 256)
    ]  # fmt: skip


@pytest.mark.parametrize("number", [2, 3])
def test_each_workspace_has_its_own_part_of_one_allocation(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def calls(plan: Any, chosen: Any, a: Any, b: Any, out: Any, workspace: Any, fusion: Any, *_: Any) -> Any:
        spaces = [workspace((rows, 70), "fp32") for rows in range(1, number + 1)]
        given = [{"A": spaces[-1], "B": spaces[0], "C": spaces[1]}, {"A": a, "B": b, "C": out}]
        return [KernelCall(Function(), (2,), {**each, "N": 7}, {"BLOCK": 3}, {"num_warps": 4}) for each in given]

    monkeypatch.setattr(prepared, "kernel_calls", calls)
    matrices = (Matrix((2, 2), "fp16") for _ in range(3))
    found = prepared.prepare(descriptor(64, WGMMA), None, Schedule(64, 64), *matrices)  # type: ignore[arg-type]
    found.launch(64, 128, 256)
    starts = [0, 512, 512 + 768][:number]  # of 280, 560 and 840 bytes
    space = starts[-1] + 280 * number << 20
    addresses = [space + each for each in starts]
    assert [each[3][:3] for each in fake.launches[2:]] == [(addresses[-1], *addresses[:2]), (64, 128, 256)]


def test_fp8_by_mma_sync_raises(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(descriptor(256, FP8, "e4m3", "bf16"))
    operands = [Matrix((2, 2), "e4m3") for _ in range(3)]
    with pytest.raises(UnsupportedGEMM, match=r"run fp8 by mma\.sync"):
        prepare(monkeypatch, Function("mma.sync.aligned.m16n8k16"), made, *operands)
    assert prepare(monkeypatch, Function("wgmma.mma_async"), made, *operands).code == ("code", "code")


def test_a_kernel_with_too_many_threads_is_not_supported(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.attributes["CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK"] = 96
    with pytest.raises(UnsupportedGEMM, match="part runs 128 threads; its registers allow 96"):
        prepare(monkeypatch, Function(), None, *(Matrix((2, 2), "fp16") for _ in range(3)))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("global_scratch_size", 4, "the kernel part needs scratch memory"),
        ("profile_scratch_size", 4, "the kernel part needs scratch memory"),
        ("num_ctas", 2, "the kernel part needs a cooperative launch or clusters"),
        ("launch_cooperative_grid", True, "the kernel part needs a cooperative launch or clusters"),
    ],
)
def test_a_kernel_with_other_needs_raises(field: str, value: int, said: str) -> None:
    function = Function()
    setattr(function.compiled.metadata, field, value)
    with pytest.raises(DriverError, match=said):
        kernel_images.triton_image(function.compiled)


@pytest.fixture
def without_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Triton compile for sm_90 without a GPU."""
    pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    active = SimpleNamespace(
        get_current_device=lambda: 0, get_current_stream=lambda device: 0,
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
    )  # fmt: skip
    monkeypatch.setattr(driver, "_active", active)


def declared_sizes(text: str) -> list[int]:
    """Return the sizes in bytes of the parameters of the entry point of a PTX text."""
    header = text[text.index(".entry") :]
    found = []
    for kind, count in re.findall(
        r"\.param\s+(?:\.align\s+\d+\s+)?\.[bu](\d+)[^,)\[]*(?:\[(\d+)\])?", header[: header.index("{")]
    ):
        found.append(int(kind) // 8 * int(count or 1))
    return found


@pytest.mark.usefixtures("without_device")
@pytest.mark.parametrize(
    ("desc", "m", "n", "chosen"),
    [
        (descriptor(512, WGMMA), 256, 512, Schedule(128, 128, 64, 8, 8, 3, 0, True)),
        (descriptor(512, WGMMA), 256, 512, Schedule(128, 64, 64, 8, 8, 3, 8, True, True, 2)),
        (descriptor(512, WGMMA, "bf16", "fp32"), 200, 72, None),
        (descriptor(1024, f"{WGMMA} k_cuts=[cut(count=4)]"), 1, 37, None),
        (descriptor(512, FP8, "e4m3", "bf16"), 256, 512, Schedule(128, 128, 128, 8, 8, 3, 132, True, False, 2)),
        (descriptor(130, "path=fma k_cuts=[cut(count=4) cut(span=33)]", "bf16", "bf16"), 5, 7, None),
        (descriptor(900, BLOCKS), 1, 3, None),
        (descriptor(331, f"{MMA_K8} k_cuts=[cut(span=112)]"), 40, 37, Schedule(64, 32, 64, tma=True, packed=True)),
        (descriptor(331, MMA_K8), 40, 37, Schedule(64, 32, 64, tma=True, transposed=True, packed=True)),
    ],
    ids=str,
)
def test_the_parameters_are_those_of_the_compiled_kernel(
    desc: GEMMDesc, m: int, n: int, chosen: Schedule | None
) -> None:
    made = plan(desc)
    a, out = Matrix((m, desc.k), desc.left_dtype, 16), Matrix((m, n), desc.output_dtype, 48)
    b = Matrix((desc.k, n), desc.right_dtype, 32, (1, desc.k))
    space: list[Matrix] = []

    def workspace(shape: tuple[int, ...], dtype: str) -> Matrix:
        space.append(Matrix(shape, dtype, 64))
        return space[-1]

    for call in kernel_calls(made, chosen or fallback(made, m, n), a, b, out, workspace):
        matrices = (a, b, out, *space)
        given = {**call.arguments, **call.constants}
        compiled = call.kernel.warmup(grid=call.grid, **{**given, **prepared._maps(call.arguments)}, **call.options)
        kernel, _ = prepared._kernel(call, matrices, made)
        image, parameters = kernel.image, kernel.parameters
        sizes = declared_sizes(compiled.asm["ptx"])
        driver_launches._Layout([kernel], [sizes], 6)
        kinds = [
            128 if isinstance(each, TensorMap) else 8 if isinstance(each, Address) else None for each in parameters
        ]
        assert [size for size, kind in zip(sizes, kinds, strict=True) if kind not in (None, size)] == []
        assert [each for each, size in zip(parameters, sizes, strict=True) if size == 128] == [
            each for each in parameters if isinstance(each, TensorMap)
        ]
        used = {each.matrix for each in parameters if not isinstance(each, Number)}
        assert used == {
            index
            for index, matrix in enumerate(matrices)
            if any(matrix in (each, getattr(each, "matrix", None)) for each in call.arguments.values())
        }
        for each in parameters:
            if isinstance(each, TensorMap):
                matrix = matrices[each.matrix]
                assert (each.dtype, each.size) == (matrix.dtype, matrix.size)
                assert all(part <= 256 for part in each.box)
                assert each.box[-1] * each.size <= (128 if each.swizzle == 3 else 32)
        assert (image.threads, image.dependent) == (32 * compiled.metadata.num_warps, True)
        assert image.code.startswith(b"\x7fELF")
        assert image.name.encode() in image.code


def text_call(matrix: Matrix, target: Matrix, text: str = TEXT) -> KernelCall:
    kernel = TextKernel("copied", text, 96, 512, ("map", "target", "count"), (2, 1, 1), dependent=False)
    box = MatrixMap(matrix, (64, 32), (40, 1), (8, 32), swizzle=64)
    return KernelCall(kernel, (3,), {"map": box, "target": target, "count": 17}, {}, {})


def test_a_text_is_assembled_and_takes_its_arguments_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        Ptxas.locate("sm_90a")
    except PtxasNotFound as error:
        pytest.skip(str(error))
    matrix, target = Matrix((64, 32), "bf16"), Matrix((8, 32), "bf16")
    kernel, code = prepared._kernel(text_call(matrix, target), (matrix, matrix, target), plan(descriptor(64, WGMMA)))
    assert kernel.image == Image(kernel.image.code, "copied", 96, 512, (2, 1, 1), False)
    assert kernel.image.code.startswith(b"\x7fELF")
    assert kernel.grid == (3, 1, 1)
    assert kernel.parameters == (
        TensorMap(0, "bfloat16", 2, (64, 32), (40, 1), (8, 32), 2),
        Address(2),
        Number(17),
    )
    assert len(code) == 64
    with pytest.raises(DriverError, match="the PTX text of a kernel cannot be assembled: ptxas rejects the text"):
        prepared._kernel(
            text_call(matrix, target, TEXT.replace("ret", "rte")), (matrix, target), plan(descriptor(64, WGMMA))
        )


def test_an_unaligned_matrix_has_no_tensor_map() -> None:
    matrix = Matrix((64, 32), "bf16", 4100)
    with pytest.raises(UnsupportedGEMM, match="a matrix is not aligned to 16 bytes: tensor maps need that"):
        kernel_images.text_parameters(text_call(matrix, matrix), (matrix,))
