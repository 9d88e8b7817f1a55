"""The forms of answers in JSON, as models whose JSON Schemas are published in docs/schemas."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bitwise_core.cli.common import SCHEMA


class Form(BaseModel):
    """An object without further fields.  Another version of bitwise may add fields to it."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)


class Answer(Form):
    """What every answer begins with: the version of its form, and what made it."""

    form: str = Field(alias="schema")
    versions: dict[str, str]
    tools: list[str]


class Difference(Form):
    """A difference from the expected classes."""

    kernel: str
    rule: str
    level: Literal["error", "warning", "note"]
    message: str


Scope = Literal["launch", "every launch"]


class PartitionAnswer(Answer):
    """The answer of `bitwise partition`: `shared` says what the configurations of each class share."""

    classes: list[list[str]]
    shared: list[str]
    unknown: dict[str, str]
    scope: Scope
    seconds: float
    notes: list[str]
    conditions: list[str]
    tensors: dict[str, list[str]]
    target: str
    unexpected: list[Difference] | None = None


class OrderedPlace(Form):
    """A place at which the order of threads decides."""

    kind: str
    reason: str
    line: int | None
    source: str | None
    other_line: int | None
    other_source: str | None


class KernelAnswer(Form):
    """The determinism of a kernel."""

    name: str
    outcome: Literal["deterministic", "nondeterministic", "unknown"]
    reason: str
    places: list[OrderedPlace]


class DeterminismAnswer(Answer):
    """The answer of `bitwise determinism`."""

    kernels: list[KernelAnswer]
    scope: Scope
    seconds: float
    notes: list[str]
    conditions: list[str]
    target: str


class CounterexampleForm(Form):
    """An input on which the kernels differ: an element with both bit patterns, and as decimals where it has some."""

    input: str | None
    element: str
    size: int
    left: str
    right: str
    decimals: list[str] | None
    ulps: int | None
    different: int
    drawn: str


class SideForm(Form):
    """The divergent node of one kernel: an expression, its operation, its line, and the source line with its calls."""

    node: str
    operation: str
    line: int | None
    source: str | None
    calls: list[str]


class DivergenceForm(Form):
    """The first divergence; `offset` and `size` are in bytes, `meaning` says in words how the kernels differ."""

    element: str
    buffer: str
    offset: int
    size: int
    left: SideForm | None
    right: SideForm | None
    depth: int
    why_not: str | None
    meaning: str | None


class DiffAnswer(Answer):
    """The answer of `bitwise diff`."""

    outcome: Literal["equal", "different", "unproved", "unknown"]
    reason: str
    scope: Scope
    notes: list[str]
    conditions: list[str]
    tensors: dict[str, list[str]]
    divergence: DivergenceForm | None
    counterexample: CounterexampleForm | None


class TreeNode(Form):
    """A node of a tree: its operation, kind and width, the numbers of its operands, and its lines where known."""

    node: str
    kind: str
    bits: int
    operands: list[int] = []
    line: int | None = None
    source: str | None = None


class TreeAnswer(Answer):
    """The answer of `bitwise tree --format json`: nodes in topological order, `root` is the number of the last one."""

    element: str
    root: int
    complete: bool
    nodes: list[TreeNode]


class BufferForm(Form):
    """A buffer after a run: the name of its elements' format, their NumPy type, their number, and how many changed."""

    format: str | None
    type: str
    elements: int
    changed: int


class RunAnswer(Answer):
    """The answer of `bitwise run`: `out` is the file that was written."""

    kernel: str
    out: str
    buffers: dict[str, BufferForm]
    notes: list[str]


class GemmAnswer(Answer):
    """The answer of `bitwise gemm`: the descriptor of an (m, k) times (k, n) product, and the same in words."""

    m: int
    n: int
    k: int
    descriptor: dict[str, Any]
    text: str
    words: list[str]
    picture: list[str]
    notes: list[str]


class PartedDescriptor(Form):
    """A descriptor that a random input of some kind distinguishes from the function."""

    descriptor: str
    kind: str
    draw: int


class ProbeAnswer(Answer):
    """The answer of `bitwise probe`: the order of the sum, and the descriptor where one is determined."""

    target: str
    sizes: list[int]
    dtype: str
    order: Any = Field(alias="form")
    words: str | None
    dropped: list[int]
    descriptor: str | None
    alike: list[str]
    survivors: list[str]
    parted: list[PartedDescriptor]
    open: list[str]
    walk: str
    probes: int
    launches: int


class ArchitectureForm(Form):
    """An architecture of a plugin, with the targets that it reads."""

    name: str
    targets: list[str]


class MatrixUnitForm(Form):
    """A row of a matrix unit: its evidence and the source of it."""

    name: str
    status: str
    source: str


class PluginForm(Form):
    """A plugin and what it provides."""

    name: str
    distribution: str
    version: str
    architectures: list[ArchitectureForm]
    matrix_units: list[MatrixUnitForm]
    profiles: list[str]
    launchers: list[str]
    patchsets: list[str]


class CapabilityForm(Form):
    """What a plugin supports for one architecture, in words."""

    architecture: str
    plugin: str
    reads: str
    executes: str
    evaluates: str
    launches: str
    evidence: str


class BrokenForm(Form):
    """A plugin that could not be loaded."""

    name: str
    distribution: str
    reason: str


class PluginsAnswer(Answer):
    """The answer of `bitwise plugins`."""

    plugins: list[PluginForm]
    capabilities: list[CapabilityForm]
    broken: list[BrokenForm]


class CacheFolder(Form):
    """A folder of results: the number of its entries, and their size in bytes."""

    entries: int
    size: int


class CacheAnswer(Answer):
    """The answer of `bitwise cache info`: `limit` of each folder is in bytes, `off` says that nothing is kept."""

    directory: str | None
    limit: int
    off: bool
    folders: dict[str, CacheFolder]


class CheckedPart(Form):
    """A distribution or a launcher: what was found, or what is missing, and what it enables."""

    name: str
    found: list[str]
    missing: str
    enables: str


class FoundTool(Form):
    """A tool that was found."""

    version: str
    path: str
    note: str


class CheckedTool(Form):
    """A tool that a plugin uses: what was found, or what is missing, and what it enables."""

    name: str
    found: list[FoundTool]
    missing: str
    enables: str
    plugin: str


class LoadedPlugin(Form):
    """A plugin with the architectures that it reads."""

    name: str
    distribution: str
    version: str
    architectures: list[str]


class CheckedCache(Form):
    """A folder of kept results; sizes are in bytes."""

    name: str
    path: str
    entries: int
    size: int
    limit: int
    writable: bool


class DoctorAnswer(Answer):
    """The answer of `bitwise doctor`."""

    python: str
    executable: str
    platform: str
    distributions: list[CheckedPart]
    plugins: list[LoadedPlugin]
    broken: list[BrokenForm]
    found_tools: list[CheckedTool]
    launchers: list[CheckedPart]
    caches: list[CheckedCache]


FORMS: dict[str, type[Answer]] = {
    "partition": PartitionAnswer,
    "determinism": DeterminismAnswer,
    "diff": DiffAnswer,
    "tree": TreeAnswer,
    "run": RunAnswer,
    "gemm": GemmAnswer,
    "probe": ProbeAnswer,
    "plugins": PluginsAnswer,
    "cache-info": CacheAnswer,
    "doctor": DoctorAnswer,
}
"""The forms by the name of the command."""


def json_schema(command: str, form: type[Answer]) -> dict[str, Any]:
    """Return the JSON Schema of a command's answers."""
    found = form.model_json_schema(by_alias=True)
    found["properties"]["schema"] = {"const": f"{command}/{SCHEMA}"}
    title = f"bitwise {command.replace('-', ' ')}"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found, "title": title}
