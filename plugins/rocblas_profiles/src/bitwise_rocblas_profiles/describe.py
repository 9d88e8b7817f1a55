"""From the parameters of a kernel and a call to the descriptor of what the kernel computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from bitwise_core.descriptors import Cut, GEMMDesc, Instruction, Rotation, Share, Tail
from bitwise_rocblas_profiles.errors import Declined
from bitwise_rocblas_profiles.problem import FORMATS, Call
from bitwise_rocblas_profiles.tables import Generator, LogicFile, Solution
from bitwise_rocblas_profiles.versions import ARCHITECTURE

FAMILY = "mfma"

Stagger: TypeAlias = Literal["M", "N"]
"""Which tiles a kernel of TensileLite counts where StaggerUMapping is 0.

N: those along N, and those along M for every other mapping.  So reads the source of 2024-10, and so do earlier
generated kernels: a branch is inverted.  M: those along M, those along N for 1, and for 2 all tiles start alike, as in
later generated kernels.
"""

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "StaggerU": 32, "StaggerUStride": 256, "StaggerUMapping": 0, "GlobalSplitU": 1, "LocalSplitU": 1,
        "GlobalSplitUSummationAssignmentRoundRobin": 1, "GlobalSplitUCoalesced": 0, "StreamK": 0, "DirectToVgprA": 0,
        "DirectToVgprB": 0, "InterleaveAlpha": 0, "NoTailLoop": 0, "CustomKernelName": "",
    }
)  # fmt: skip
"""The generators' values for parameters that a file does not give."""
_ALGORITHM: Mapping[Generator, str] = MappingProxyType({"Tensile": "SingleBuffer", "TensileLite": "MultipleBuffer"})
_TREE = 128
"""The number of slices from which Tensile may add a power of two of them as a tree."""


@dataclass(frozen=True, slots=True)
class Types:
    """The types of a problem type's operands, result and sums, and the one in which both operands are multiplied."""

    a: str
    b: str
    multiplied: tuple[str, str]
    d: str
    compute: str


def types_of(problem: Mapping[str, Any]) -> Types:
    """Return the letters of the types of a file's problem type."""
    kind = problem["DataType"]
    multiplied = _pair(kind)
    if kind == "S" and problem["F32XdlMathOp"] == "X":
        multiplied = "X", "X"
    a = _pair(problem["DataTypeA"] or multiplied[0])[0]
    b = _pair(problem["DataTypeB"] or multiplied[1])[1]
    if multiplied == ("X", "X"):
        a, b = ("X" if each == "S" else each for each in (a, b))
    summed = problem["ComputeDataType"] or ("S" if problem["HighPrecisionAccumulate"] else kind)
    return Types(a, b, multiplied, problem["DestDataType"], summed)


def _pair(kind: str) -> tuple[str, str]:
    """Return the types of A and B of a type that may name both, such as F8B8."""
    return {"F8B8": ("F8", "B8"), "B8F8": ("B8", "F8")}.get(kind, (kind, kind))


def describe(solution: Solution, file: LogicFile, call: Call, stagger: Stagger | None = None) -> GEMMDesc:
    """Return the descriptor of a kernel's product for alpha = 1 and beta = 0, C[m, n] as in the column-major call.

    `stagger` is needed for kernels of TensileLite whose loops start elsewhere for each tile.  With a bias the
    descriptor is that of the product, to whose sum the bias is added before the only rounding.  Raises Declined.
    """
    return _Kernel(solution, file, call, stagger).descriptor()


class _Kernel:
    def __init__(self, solution: Solution, file: LogicFile, call: Call, stagger: Stagger | None) -> None:
        self.solution, self.file, self.call, self.stagger = solution, file, call, stagger
        self.types = types_of(file.problem)

    def value(self, name: str) -> Any:
        found = self.solution.bits[name]
        return DEFAULTS.get(name) if found is None else found

    def descriptor(self) -> GEMMDesc:
        """Return the descriptor; the parts of a kernel are checked from the outside in."""
        self._check_form()
        types, output = self._check_types(), self._output()
        depth, waves, permuted = self._check_depth()
        k, native = self.call.k, int(self.value("MatrixInstruction")[2])
        count, tail = divmod(k, depth)
        if tail and self.value("NoTailLoop"):
            raise Declined("tail", f"K = {k}, DepthU = {depth}")
        slices = int(self.value("GlobalSplitU"))
        outer, contiguous = self._slices(slices, depth)
        rotation = self._rotation(count, slices)
        permutation = self._permutation(depth // waves, native, permuted) if permuted > 1 and count else ()
        cuts = [*outer]
        if waves > 1:
            cuts.append(Cut(layout="strided", count=waves, tile=native * (permuted if count else 1)))
        needed = bool(permutation) or waves > 1 or contiguous
        left, right = types
        wide = left if left == right and (self.types.a, self.types.b) != self.types.multiplied else None
        return GEMMDesc(
            k=k, left_dtype=FORMATS[self.types.a], right_dtype=FORMATS[self.types.b], path="matrix", **output,
            multiplied_as=wide, instruction=Instruction(architecture=ARCHITECTURE, family=FAMILY, k=native),
            instruction_k=native, k_cuts=tuple(cuts), iteration_rotation=rotation, iteration_permutation=permutation,
            k_loop_step=depth // waves if rotation or permutation else None,
            tail=self._tail(tail, count, slices, contiguous, waves, native) if tail and needed else None,
        )  # fmt: skip

    def _check_form(self) -> None:
        if self.value("CustomKernelName"):
            raise Declined("custom kernel", self.value("CustomKernelName"))
        if not self.value("MatrixInstruction") or not self.value("EnableMatrixInstruction"):
            raise Declined("vector ALU")
        if self.solution.guard["KernelLanguage"] != "Assembly" or self.solution.guard["PersistentKernel"]:
            raise Declined("other kernel")
        if self.value("StreamK"):
            raise Declined("stream-k")
        if self.file.problem["StochasticRounding"]:
            raise Declined("stochastic rounding")
        if self.value("InterleaveAlpha"):
            raise Declined("output conversion", "InterleaveAlpha")

    def _check_types(self) -> tuple[str, str]:
        """Return the types in which the operands are multiplied."""
        types = self.types
        if types.compute != "S" or not {types.a, types.b, *types.multiplied} <= FORMATS.keys():
            raise Declined("type", f"{types.a} x {types.b} in {types.compute}")
        for stored, multiplied in zip((types.a, types.b), types.multiplied, strict=True):
            if stored != multiplied and (stored, multiplied) not in (("F8", "H"), ("B8", "H")):
                raise Declined("rounded operands", f"{stored} multiplied as {multiplied}")
        return FORMATS[types.multiplied[0]], FORMATS[types.multiplied[1]]

    def _output(self) -> dict[str, Any]:
        d, problem = self.types.d, self.file.problem
        if d not in ("S", "H", "B", "F8", "B8"):
            raise Declined("type", f"a result of {d}")
        if d in ("S", "H", "B"):
            return {"output_dtype": FORMATS[d]}
        if self.file.generator == "Tensile" and not problem["Fp32toFp8SWClip"]:
            raise Declined("output conversion", "Fp32toFp8SWClip is 0")
        # Both generators clamp a finite sum, and convert an infinite one as it is.
        return {"output_dtype": FORMATS[d], "output_satfinite": True, "output_nan_for_infinity": True}

    def _check_depth(self) -> tuple[int, int, int]:
        """Return the k of an iteration, how many waves share it, and over how many instructions k is permuted."""
        depth, waves, native = (
            int(self.value("DepthU")),
            int(self.value("LocalSplitU")),
            self.value("MatrixInstruction")[2],
        )
        permuted = 1
        if self.value("UnrollMajorLDSA") or self.value("UnrollMajorLDSB"):
            width, each = self.value("LocalReadVectorWidth"), self.value("MIInputPerThread")
            if width is None or each is None or width % each or native % each:
                raise Declined("vector width", f"LocalReadVectorWidth {width}, MIInputPerThread {each}")
            permuted = width // each
        if permuted > 1 and (self.value("DirectToVgprA") or self.value("DirectToVgprB")):
            raise Declined("direct to registers")
        if depth % (waves * native * permuted):
            raise Declined("depth", f"DepthU {depth}, LocalSplitU {waves}, {permuted} instructions of {native} k")
        return depth, waves, permuted

    def _slices(self, slices: int, depth: int) -> tuple[tuple[Cut, ...], bool]:
        """Return the cut of k into global slices, and whether it is contiguous."""
        if slices < 1:
            raise Declined("slices", f"GlobalSplitU {slices}")
        if slices == 1:
            return (), False
        lite = self.file.generator == "TensileLite"
        algorithm = self.solution.bits["GlobalSplitUAlgorithm"] or _ALGORITHM[self.file.generator]
        if algorithm == "SingleBuffer":
            raise Declined("atomics", f"{slices} slices")
        if algorithm not in (("MultipleBuffer", "MultipleBufferSingleKernel") if lite else ("MultipleBuffer",)):
            raise Declined("slices", str(algorithm))
        if not lite and slices >= _TREE and not slices & (slices - 1):
            raise Declined("tree of slices", f"{slices} slices")
        if not lite and not self.value("GlobalSplitUSummationAssignmentRoundRobin"):
            raise Declined("slices", "GlobalSplitUSummationAssignmentRoundRobin is 0")
        contiguous = lite and bool(self.value("GlobalSplitUCoalesced"))
        start: Literal["first", "zero"] = "first" if algorithm == "MultipleBufferSingleKernel" else "zero"
        if contiguous:
            return (Cut(count=slices, tile=depth, remainder="spread", start=start),), True
        return (Cut(layout="strided", count=slices, tile=depth, start=start),), False

    def _tail(self, tail: int, count: int, slices: int, contiguous: bool, waves: int, native: int) -> Tail:
        each, more = divmod(count, slices)
        owner = slices - 1 if contiguous and each else more
        shares = [Share(part=owner)] if slices > 1 else []
        if waves > 1:
            shares.append(Share(tile=native))
        return Tail(length=tail, shares=tuple(shares))

    def _permutation(self, length: int, native: int, permuted: int) -> tuple[int, ...]:
        """Return the k that each wave multiplies in an iteration of `length` k, in the order of its instructions.

        A block of native * permuted k is read in vectors: each group of lanes holds consecutive k, of which it takes
        its part of each instruction.
        """
        each = int(self.value("MIInputPerThread"))
        block = [
            lanes * each * permuted + instruction * each + number
            for instruction in range(permuted)
            for lanes in range(native // each)
            for number in range(each)
        ]
        return tuple(begin + place for begin in range(0, length, len(block)) for place in block)

    def _rotation(self, count: int, slices: int) -> Rotation | None:
        """Return where the loops of output tiles start, for `count` iterations over all slices."""
        period = int(self.value("StaggerU"))
        if period <= 1 or not count:
            return None
        if period & (period - 1):
            raise Declined("stagger", f"StaggerU {period}")
        shift = self.value("_staggerStrideShift")
        if shift is None:
            raise Declined("stagger", "_staggerStrideShift is not given")
        step = 1 << int(shift)
        each, more = divmod(count, slices)
        least = _fitting(period, step, each)
        # The host takes one number of iterations for all slices; the kernels of TensileLite take their own.
        most = _fitting(period, step, each + bool(more)) if self.file.generator == "TensileLite" else least
        if most == 1:
            return None
        axis = self._axis()
        if axis is None:
            return None
        tile = int(self.value("MacroTile0" if axis == "rows" else "MacroTile1"))
        return Rotation(axis=axis, tile=tile, period=most, step=step, halved=bool(each) and least != most)

    def _axis(self) -> Literal["rows", "columns"] | None:
        """Return along which axis tiles are counted; None where every tile starts at iteration 0."""
        mapping = int(self.value("StaggerUMapping"))
        single = {
            "rows": self.call.m <= self.value("MacroTile0"), "columns": self.call.n <= self.value("MacroTile1")
        }  # fmt: skip
        if self.file.generator == "Tensile":
            if mapping == 2:
                if self.call.batch > 1:
                    raise Declined("stagger by batch")
                return None
            if mapping not in (0, 1):
                raise Declined("stagger", f"StaggerUMapping {mapping}")
            axis: Literal["rows", "columns"] = "columns" if mapping else "rows"
            return None if single[axis] else axis
        earlier: Literal["rows", "columns"] = "rows" if mapping else "columns"
        later: Literal["rows", "columns"] | None = {0: "rows", 1: "columns"}.get(mapping)  # type: ignore[assignment]
        if self.stagger is None:
            if later is not None and single["rows"] and single["columns"]:
                return None
            raise Declined("stagger axis", f"StaggerUMapping {mapping}")
        if self.stagger == "M" and later is None:
            raise Declined("stagger", f"StaggerUMapping {mapping}: a start that is the same in all tiles")
        axis = later if self.stagger == "M" and later is not None else earlier
        return None if single[axis] else axis


def _fitting(period: int, step: int, iterations: int) -> int:
    while period > 1 and iterations < period * step:
        period //= 2
    return period
