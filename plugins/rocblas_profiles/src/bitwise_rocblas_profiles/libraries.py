"""The library versions with tables in this distribution, and a user's own logic files: from a call to its kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from bitwise_core.descriptors import GEMMDesc
from bitwise_rocblas_profiles.describe import Stagger, describe, types_of
from bitwise_rocblas_profiles.errors import NotSelected, RocblasError
from bitwise_rocblas_profiles.problem import MEBIBYTE, Call
from bitwise_rocblas_profiles.selection import (
    Selected,
    by_device,
    select_equal,
    select_nearest,
    select_on_grid,
)
from bitwise_rocblas_profiles.tables import LogicFile, Table, bundled
from bitwise_rocblas_profiles.versions import VERSIONS

NOT_MEASURED = (
    "Derived from the library's published parameters and the published rules of its kernels; not measured on a device."
)


@dataclass(frozen=True, slots=True)
class Device:
    """A device as the libraries tell devices apart: whether it is an APU, and its number of compute units."""

    name: str
    apu: bool
    compute_units: int


DEVICES: Mapping[str, Device] = MappingProxyType(
    {
        each.name: each
        for each in (Device("MI300X", False, 304), Device("MI300A", True, 228), Device("MI308X", False, 80))
    }
)
"""The devices with gfx942, each as a single partition."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a library runs for a call: the selected kernel, its descriptor, and notes as sentences."""

    selected: Selected
    desc: GEMMDesc
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """One version of a library.  `workspace` is the size in bytes that a caller allows by default."""

    name: str
    version: str
    table: Table
    workspace: int

    @property
    def description(self) -> str:
        """The library with the source of its table."""
        source = self.table.source
        where = source.get("tag") or f"{source.get('branch')} of {source.get('commit_date')}"
        commit = source["commit"][:12]
        return f"{self.name} {self.version} (logic files of {source['repository']} {where}, commit {commit})"

    def select(self, call: Call, device: Device, types: str | None = None) -> Selected:
        """Return the kernel that the library selects.

        `types` is the tag of a problem type of hipBLASLt, needed where several match.  Raises NotSelected.
        """
        if self.table.generator == "Tensile":
            if types is not None:
                raise NotSelected(f"{self.name} has one problem type for these types: leave types out")
            return self._select_merged(call, device)
        return self._select_typed(call, device, types)

    def answer(self, call: Call, device: Device, types: str | None = None, stagger: Stagger | None = None) -> Answer:
        """Return what the library runs for a call with alpha = 1 and beta = 0.  Raises NotSelected and Declined."""
        selected = self.select(call, device, types)
        desc = describe(selected.solution, selected.file, call, stagger)
        notes = [
            f"{self.description} on {device.name}: {call.words}; workspace {call.workspace} bytes.",
            selected_words(selected),
            NOT_MEASURED,
        ]
        if types is not None:
            notes.append(
                f"The problem type {types} is the caller's choice: which one is searched first is not published."
            )
        if stagger is not None and desc.iteration_rotation is not None:
            notes.append(
                f"That StaggerUMapping 0 counts tiles along {stagger} is the caller's choice: no measurement says so."
            )
        return Answer(selected, desc, tuple(notes))

    def _select_merged(self, call: Call, device: Device) -> Selected:
        """The rule of rocBLAS: files of a predicate together, exact sizes before the nearest one, fp32 after xf32."""
        if call.bias:
            raise NotSelected(f"{self.name} has no products with a bias: frameworks add it with kernels of their own")
        for kind in ("X", "S") if call.a == "X" else (None,):
            known = [each for each in matching(self.table.files, call, kind) if not each.problem["StochasticRounding"]]
            for files in by_device(known, device.apu, device.compute_units):
                found = select_in(files, call, device)
                if found is not None:
                    return found
        raise NotSelected(f"{self.description} has no solution that may run {call.words} on {device.name}")

    def _select_typed(self, call: Call, device: Device, types: str | None) -> Selected:
        """The rule of hipBLASLt inside one problem type: exact sizes before the grid."""
        files = [each for each in matching(self.table.files, call) if _plain(each, call, random=types is not None)]
        there = {each.tag: None for each in files}
        if types is None:
            if len(there) != 1:
                listed = f"there are {', '.join(there)}: choose one with types" if there else "there is none"
                raise NotSelected(
                    f"{self.description} for {call.words}: which matching problem type it searches first is not "
                    f"published; {listed}"
                )
            (types,) = there
        elif types not in there:
            listed = ", ".join(there) or "none"
            raise NotSelected(f"{self.description} has no problem type {types} for {call.words}; matching are {listed}")
        for group in by_device([each for each in files if each.tag == types], device.apu, device.compute_units):
            found = select_in(group, call, device)
            if found is not None:
                return found
            lacking = self._missing(types, call, group[0].hardware.cu_count)
            if lacking is not None:
                raise NotSelected(
                    f"{self.description} for {call.words}: no row of exactly this size, and the grid of the others, "
                    f"{lacking}, is not in this distribution: read it with bitwise rocblas describe --logic FILE"
                )
        raise NotSelected(f"{self.description} has no solution of {types} that may run {call.words} on {device.name}")

    def _missing(self, tag: str, call: Call, compute_units: int | None) -> str | None:
        """Return the path of the file of a problem type that the table lacks."""
        layout = {"NN": "Ailk_Bljk", "NT": "Ailk_Bjlk", "TN": "Alik_Bljk", "TT": "Alik_Bjlk"}[call.letters]
        folder = "gfx942/" if compute_units is None else f"gfx942_{compute_units}cu/"
        wanted = f"_Cijk_{layout}_{tag}.yaml"
        paths = [str(each["path"]) for each in self.table.missing]
        return next((each for each in paths if each.endswith(wanted) and folder in f"{each}/"), None)


def matching(files: Iterable[LogicFile], call: Call, kind: str | None = None) -> list[LogicFile]:
    """Return the files whose problem type has the types and layouts of a call; `kind` is S to multiply X as fp32."""
    found = []
    for file in files:
        problem, types = file.problem, types_of(file.problem)
        wanted = ("S", "S", ("S", "S")) if kind == "S" else (call.a, call.b, call.factors)
        layouts = bool(problem["TransposeA"]), bool(problem["TransposeB"])
        if (
            (types.a, types.b, types.multiplied) == wanted
            and (types.d, types.compute) == (call.d, call.compute)
            and layouts == (call.transpose_a, call.transpose_b)
        ):
            found.append(file)
    return found


def _plain(file: LogicFile, call: Call, *, random: bool) -> bool:
    """Return whether a problem type of hipBLASLt takes a product with or without a bias, and nothing else beside it.

    `random` allows those whose result is rounded at random.
    """
    problem = file.problem
    if problem["StochasticRounding"] and not random:
        return False
    others = ("UseE", "Gradient", "GroupedGemm", "Sparse", "UseScaleCD", "OutputAmaxD")
    if any(problem[name] for name in others) or file.selection not in ("Equality", "GridBased"):
        return False
    return problem["BiasSrc"] in (None, "D") and (not call.bias or bool(problem["UseBias"]))


def select_in(files: Sequence[LogicFile], call: Call, device: Device) -> Selected | None:
    """Return the kernel that files of one problem type and one predicate select: exact sizes first."""
    units = device.compute_units
    equal = select_equal([each for each in files if each.selection == "Equality"], call, units)
    if equal is not None:
        return equal
    nearest = select_nearest([each for each in files if each.selection == "Euclidean"], call, units)
    return nearest or select_on_grid([each for each in files if each.selection == "GridBased"], call, units)


def selected_words(selected: Selected) -> str:
    """Return the selected kernel as a sentence."""
    bits, row = selected.solution.bits, selected.row
    shape = "x".join(map(str, bits["MatrixInstruction"][:3])) if bits["MatrixInstruction"] else "none"
    exact = "this size" if selected.distance == 0 else f"{row.m} x {row.n} x {row.k}, at distance {selected.distance:g}"
    parts = [
        f"macro tile {bits['MacroTile0']}x{bits['MacroTile1']}",
        f"matrix instruction {shape}",
        f"DepthU {bits['DepthU']}",
    ]
    parts += [f"{name} {bits[name]}" for name in ("GlobalSplitU", "LocalSplitU") if bits[name] not in (None, 1)]
    parts += [f"StaggerU {bits['StaggerU']}"] if bits["StaggerU"] else []
    return f"Solution {selected.number} of {selected.file.path}, tuned for {exact}: {', '.join(parts)}."


@cache
def libraries() -> Mapping[tuple[str, str], Library]:
    """Return the library versions with tables in this distribution, by name and version."""
    tables = {table.source["repository"]: table for table in bundled()}
    return MappingProxyType({
        (name, version): Library(name, version, tables[repository], workspace * MEBIBYTE)
        for (name, version), (repository, workspace) in VERSIONS.items()
    })  # fmt: skip


def library(text: str) -> Library:
    """Return the library `NAME:VERSION`.  Raises RocblasError, which lists the known ones."""
    name, _, version = text.partition(":")
    known = libraries()
    if (name, version) in known:
        return known[name, version]
    raise RocblasError(
        f"there are no tables of {text}; there are {', '.join(':'.join(each) for each in known)}. Read the logic files "
        "of another version with bitwise rocblas describe --logic FILE"
    )


def device(name: str) -> Device:
    """Return a device by its name.  Raises RocblasError, which lists the known ones."""
    if name not in DEVICES:
        raise RocblasError(f"the device {name} is not known; known are {', '.join(DEVICES)}")
    return DEVICES[name]


def transposed(desc: GEMMDesc) -> GEMMDesc:
    """Return the descriptor of the transposed product: A and B change places, and rows and columns of C."""
    rotation = desc.iteration_rotation
    if rotation is not None:
        rotation = rotation.model_copy(update={"axis": "columns" if rotation.axis == "rows" else "rows"})
    return desc.model_copy(
        update={"left_dtype": desc.right_dtype, "right_dtype": desc.left_dtype, "iteration_rotation": rotation}
    )
