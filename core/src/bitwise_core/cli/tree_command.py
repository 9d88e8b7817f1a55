"""`bitwise tree`."""

from __future__ import annotations

import re

import typer
from rich.console import Console

from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.block_symmetry.grid import NotSymmetric
from bitwise_core.checker.comparison import find_element, session_of, stored_parts, trace_element
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.trees.expression_trees import MAXIMUM_NODES, Tree, build_tree
from bitwise_core.cli.common import UNKNOWN, print_answer
from bitwise_core.errors import InputError
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.buffers import element_types
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import ManifestError
from bitwise_core.ir.condensed_tree import condense
from bitwise_core.ir.nodes import Concat, Node, descendants
from bitwise_core.ir.svg import to_svg
from bitwise_core.ir.text import head, render

_ELEMENT = re.compile(r"(?P<buffer>.+)\[(?P<index>\d{1,18})\]\Z", re.DOTALL)
_UNLIMITED = 10**9
DEPTH = 24
"""The levels of a tree that are shown."""


def run(source: Source, arch: Arch, options: Options, element: str, output_format: str, whole: bool) -> int:
    """Print the tree of one element and return the exit status.  Raises InputError.

    `output_format` is a value of `TreeFormat`.  Long chains are shortened in text and pictures, and large trees cut;
    `whole` prints everything.
    """
    if source.launch is None:
        raise InputError(f"{source.name}: has no launch; a tree is computed for one launch: give --manifest")
    try:
        tree, sources = tree_of(source, arch, options, element, None if whole else MAXIMUM_NODES)
    except Unsupported as error:
        typer.echo(f"Unknown: {source.name}: {error}", err=True)
        return UNKNOWN
    known = element_types([source.launch]).items()
    widths = {name: each.bytes for name, each in known if each.kind is not None}
    if output_format == "json":
        print_answer("tree", as_record(tree, element, sources), (arch,))
        return 0
    root = tree.root if whole else condense(tree.root, DEPTH, widths)
    if output_format == "svg":
        typer.echo(to_svg(root, _UNLIMITED if whole else 200, widths), nl=False)
    else:
        limits = (_UNLIMITED, _UNLIMITED) if whole else (DEPTH, 200)
        Console(highlight=False, soft_wrap=True).print(render(root, *limits, widths), markup=False, end="")
    return 0


def tree_of(
    source: Source, arch: Arch, options: Options, element: str, maximum: int | None
) -> tuple[Tree, dict[int, str]]:
    """Return the tree of an element such as `Y[0]`, and the source location of each assembly line.

    The tree has at most `maximum` nodes (None: no limit).  Raises InputError for a buffer or an element that the launch
    does not store, Unsupported where the kernel cannot be analysed.
    """
    assert source.launch is not None
    found = _ELEMENT.match(element)
    if found is None:
        raise InputError(
            f"--element: {element!r} is not of the form BUFFER[INDEX]; give a stored element, such as 'Y[0]'"
        )
    names = source.launch.buffers()
    if found["buffer"] not in names:
        raise InputError(
            f"--element: {source.name} has no buffer {found['buffer']!r}; its buffers are {', '.join(names)}"
        )
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
        raise Unsupported(f"the grid is too large to analyse every block: {error}") from None
    if isinstance(place, str):
        raise InputError(f"--element: {source.name} does not store {element}; {place}")
    replayed, _, _ = trace_element(prepared, session, place.address, place.size, place.threads[0] or 0)
    parts = stored_parts(replayed, place.address, place.size)
    trees = [build_tree(replayed, each, maximum) for each, _ in parts]
    sources = {line: str(each) for line, each in replayed.sources.items()}
    if len(trees) == 1:
        return trees[0], sources
    lines = {node: line for each in trees for node, line in each.lines.items()}
    return Tree(Concat(tuple(each.root for each in trees)), lines, all(each.complete for each in trees)), sources


def as_record(tree: Tree, element: str, sources: dict[int, str]) -> dict[str, object]:
    """Return the tree as a JSON object: nodes in topological order, operands by number, and the root's number."""
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
