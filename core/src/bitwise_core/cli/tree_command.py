"""`bitwise tree`."""

from __future__ import annotations

import re
from pathlib import Path

import typer
from rich.console import Console

from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.analysis import Options, Source, prepare
from bitwise_core.checker.block_symmetry.grid import NotSymmetric
from bitwise_core.checker.comparison import find_element, session_of, trace_element
from bitwise_core.checker.expression_trees import MAXIMUM_NODES, Tree, build_tree
from bitwise_core.checker.kernel_files import InputError
from bitwise_core.cli.common import kernels, print_json
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import ManifestError
from bitwise_core.ir.nodes import Node, descendants
from bitwise_core.ir.svg import to_svg
from bitwise_core.ir.text import head, render

UNKNOWN = 3
_ELEMENT = re.compile(r"(?P<buffer>.+)\[(?P<index>\d{1,18})\]\Z", re.DOTALL)
_WHOLE = 10**9


def run(
    kernel: str, element: str, manifest: Path | None, entry: str | None, target: str | None,
    options: Options, form: str, whole: bool,
) -> int:  # fmt: skip
    """Prints the tree of one element and gives the exit status.  Raises InputError."""
    (source,), arch, options = kernels((kernel,), manifest, entry, target, options)
    if source.launch is None:
        raise InputError(f"{source.name}: has no launch; a tree is shown for the launch of a manifest: give --manifest")
    try:
        tree, sources = tree_of(source, arch, options, element, None if whole else MAXIMUM_NODES)
    except Unsupported as error:
        typer.echo(f"Unknown: {source.name}: {error}", err=True)
        return UNKNOWN
    if form == "svg":
        typer.echo(to_svg(tree.root, max_nodes=_WHOLE if whole else 200), nl=False)
    elif form == "json":
        print_json(as_record(tree, element, sources))
    else:
        limits = (_WHOLE, _WHOLE) if whole else (24, 200)
        Console(highlight=False, soft_wrap=True).print(render(tree.root, *limits), markup=False, end="")
    return 0


def tree_of(
    source: Source, arch: Arch, options: Options, element: str, maximum: int | None
) -> tuple[Tree, dict[int, str]]:
    """The tree of an element named `Y[0]`, and the kernel's source lines by the assembly's.

    Raises InputError for a buffer or an element that the launch does not store, Unsupported where it cannot be read.
    """
    assert source.launch is not None
    found = _ELEMENT.match(element)
    if found is None:
        raise InputError(f"--element: {element!r} is not of the form Y[0], a buffer and the index of a stored element")
    names = source.launch.buffers()
    if found["buffer"] not in names:
        raise InputError(f"--element: {source.name} has no buffer {found['buffer']!r}; its buffers: {', '.join(names)}")
    session = session_of((source,), options)
    number = session.buffers[found["buffer"]]
    try:
        prepared = prepare(source, arch, options)
        place = find_element(source, prepared, session, number, int(found["index"]))
    except ManifestError as error:
        raise InputError(f"{source.name}: {error}") from None
    except AssemblyError as error:
        raise InputError(str(error)) from None
    except NotSymmetric as error:
        raise Unsupported(f"the grid is too large to be run whole: {error}") from None
    if isinstance(place, str):
        raise InputError(f"--element: {source.name} does not store {element}; {place}")
    replayed, scalar, _ = trace_element(prepared, session, place.address, place.size, place.threads[0] or 0)
    return build_tree(replayed, scalar, maximum), {line: str(each) for line, each in replayed.sources.items()}


def as_record(tree: Tree, element: str, sources: dict[int, str]) -> dict[str, object]:
    """The tree as JSON has it: nodes with the numbers of their operands before them, and the root's number."""
    numbers: dict[Node, int] = {}
    nodes = []
    for node in descendants(tree.root):
        numbers[node] = len(numbers)
        record: dict[str, object] = {"node": head(node), "kind": node.kind, "bits": node.bits}
        if node.children:
            record["operands"] = [numbers[child] for child in node.children]
        line = tree.lines.get(node)
        if line is not None:
            record["line"] = line
            if line in sources:
                record["source"] = sources[line]
        nodes.append(record)
    return {"element": element, "root": numbers[tree.root], "complete": tree.complete, "nodes": nodes}
