"""Readings of samples, their trees and their runs."""

from __future__ import annotations

from dataclasses import replace

from bitwise_conformance.suite.expected import Group, Kernel
from bitwise_conformance.suite.suite import Suite
from bitwise_core.asm import Module
from bitwise_core.checker import AnalysisResult, Options, Source, prepare, read
from bitwise_core.cli.showing import tree_of
from bitwise_core.engine.execution import execute
from bitwise_core.machine.arch import Arch
from bitwise_core.machine.lanes import Array
from bitwise_core.tree.nodes import Node

OPTIONS = Options(trust_text=True)
"""Samples are read as they are written: what an assembler makes of them is no matter of the suite."""

EVERY_LAUNCH = Options(every_launch=True, trust_text=True)


def reading(suite: Suite, kernel: Kernel) -> AnalysisResult:
    """The reading of a sample for its launch, made once."""
    if kernel not in suite.readings:
        suite.readings[kernel] = read_again(suite.arch(kernel.group.arch), kernel)
    return suite.readings[kernel]


def read_again(arch: Arch, kernel: Kernel, options: Options = OPTIONS) -> AnalysisResult:
    """The reading of a sample."""
    return read_source(arch, kernel.group, kernel.group.source(kernel.file), options)


def read_source(arch: Arch, group: Group, source: Source, options: Options = OPTIONS) -> AnalysisResult:
    """The reading of a kernel that is launched on a group's buffers."""
    return read(source, arch, group.buffers, options)


def signatures(suite: Suite) -> dict[str, str]:
    """The signature of every sample that is read, by the sample's id."""
    found = {each.id: read_again(suite.arch(each.group.arch), each).signature for each in suite.kernels}
    return {name: signature.hex() for name, signature in found.items() if signature is not None}


def tree(arch: Arch, kernel: Kernel, element: str) -> Node:
    """The whole tree of an element.  Raises InputError and Unreadable."""
    return tree_of(kernel.group.source(kernel.file), arch, OPTIONS, element, None)[0].root


def run(arch: Arch, source: Source, before: dict[str, Array]) -> dict[str, Array]:
    """The bytes of every buffer after a launch.  Raises what the text and the launch deserve."""
    return dict(execute(prepare(source, arch, OPTIONS), before).after)


def reads(arch: Arch, module: Module) -> Arch:
    """The architecture with a parser that gives this module for every text."""

    def parse(text: str, file: str) -> Module:
        return module

    return replace(arch, parse=parse)
