"""Analyses, trees and runs of samples."""

from __future__ import annotations

from dataclasses import replace

from bitwise_conformance.suite.samples import Group, Kernel
from bitwise_conformance.suite.suite import Suite
from bitwise_core.assembly.module import Module
from bitwise_core.checker.analysis import analyse, prepare
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source
from bitwise_core.cli.tree_command import tree_of
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.simulation import simulate
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.ir.nodes import Node

OPTIONS = Options(audit_contraction=False)
"""Samples are analysed without the contraction audit, since the suite does not concern the assembler."""

EVERY_LAUNCH = Options(every_launch=True, audit_contraction=False)


def analysis(suite: Suite, kernel: Kernel, options: Options = OPTIONS) -> AnalysisResult:
    """Return the analysis of a sample, cached in the suite."""
    found = suite.analyses.get((kernel, options))
    if found is None:
        found = analyse_sample(suite.arch(kernel.group.arch), kernel, options)
        suite.analyses[kernel, options] = found
    return found


def analyse_sample(arch: Arch, kernel: Kernel, options: Options = OPTIONS) -> AnalysisResult:
    """Return a new analysis of a sample."""
    return analyse_source(arch, kernel.group, kernel.group.source(kernel.file), options)


def analyse_source(arch: Arch, group: Group, source: Source, options: Options = OPTIONS) -> AnalysisResult:
    """Return the analysis of a kernel that is launched on the buffers of a group."""
    return analyse(source, arch, group.buffers, options)


def signatures(suite: Suite) -> dict[str, str]:
    """Return the signatures of the samples that are not Unknown, by id."""
    found = {each.id: analysis(suite, each).signature for each in suite.kernels}
    return {name: signature.hex() for name, signature in found.items() if signature is not None}


def tree(arch: Arch, kernel: Kernel, element: str) -> Node:
    """Return the complete tree of an element.  Raises InputError and Unsupported."""
    return tree_of(kernel.group.source(kernel.file), arch, OPTIONS, element, None)[0].root


def run(arch: Arch, source: Source, before: dict[str, Array]) -> dict[str, Array]:
    """Return the bytes of every buffer after a launch.  Raises AssemblyError and Unsupported."""
    return dict(simulate(prepare(source, arch, OPTIONS), before).after)


def with_module(arch: Arch, module: Module) -> Arch:
    """Return the architecture with a parser that returns this module for every text."""

    def parse(text: str, file: str) -> Module:
        return module

    return replace(arch, parse=parse)
