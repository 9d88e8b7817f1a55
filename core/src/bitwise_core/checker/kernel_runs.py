"""The bytes of one launch of a kernel, for the command and the API."""

from __future__ import annotations

from collections.abc import Mapping

from bitwise_core.checker.analysis import analyse, prepare
from bitwise_core.checker.sources import Options, Source, buffer_numbers
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.execution.determined_runs import may_wait, simulate_in_one_order, stops_at_order
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.simulation import SimulationResult, simulate
from bitwise_core.execution.values.symbolic_vector import Array


def run_kernel(
    source: Source, arch: Arch, options: Options, contents: Mapping[str, Array]
) -> tuple[PreparedLaunch, SimulationResult]:
    """Run a kernel on the bytes of its buffers.

    Where its threads race, the analysis must prove that they leave the same bytes in every order, and one order is run.
    Raises Unsupported, AssemblyError and ManifestError.
    """
    prepared = prepare(source, arch, options)
    if may_wait(prepared) and _is_determined(source, arch, options):
        return prepared, simulate_in_one_order(prepared, contents)
    try:
        return prepared, simulate(prepared, contents)
    except Unsupported as error:
        if not stops_at_order(prepared, error) or not _is_determined(source, arch, options):
            raise
    return prepared, simulate_in_one_order(prepared, contents)


def _is_determined(source: Source, arch: Arch, options: Options) -> bool:
    assert source.launch is not None
    return analyse(source, arch, buffer_numbers(set(source.launch.buffers())), options).unknown is None
