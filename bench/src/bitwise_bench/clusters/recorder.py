"""Compare kernels in clusters of blocks on an sm_90 GPU with their simulation.

    python -m bitwise_bench.clusters.recorder --out records/clusters-sm90-h100.json

With `--dry-run` every kernel is assembled and simulated, and none is launched.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.clusters.programs import Bytes, Program, ptx_programs, triton_programs
from bitwise_bench.command_line import command_parser
from bitwise_bench.gpu.driver import LoadedKernel, assemble
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.concrete import PreparedLaunch, prepare_launch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.simulation import simulate
from bitwise_core.plugins import registry


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every kernel; the exit status is 1 where a kernel is not simulated, or returns other bytes on the GPU."""
    parser = command_parser("clusters.recorder", __doc__)
    parser.add_argument("--out", type=Path, help="write the record here, as JSON")
    parser.add_argument("--dry-run", action="store_true", help="assemble and simulate without launching")
    parser.add_argument("--only", default="", help="only the kernels whose name contains this text")
    chosen = parser.parse_args(arguments)
    if not (chosen.dry_run or chosen.out):
        parser.error("give --out to write the record, or --dry-run to assemble and simulate only")
    arch = registry.default().arch("sm_90")
    rows = []
    for program in programs():
        if chosen.only in program.name:
            rows.append(compare(program, arch, launch=not chosen.dry_run))
            print(f"{program.name:40} {rows[-1]['outcome']}")
    if chosen.out:
        from bitwise_bench.gpu.launching import environment

        record = {"environment": {} if chosen.dry_run else environment(), "kernels": rows}
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(row["outcome"] in ("simulated", "equal") for row in rows) else 1


def programs() -> Iterator[Program]:
    """Yield all kernels."""
    yield from ptx_programs()
    yield from triton_programs()


def compare(program: Program, arch: Arch, *, launch: bool) -> dict[str, Any]:
    """Return the row of the record for one kernel: the outcome, and the digests of its bytes."""
    module = arch.parse(program.text, program.launch.file)
    prepared = prepare_launch(module, arch, program.launch)
    image = assemble(program.text, fp_fusion=False)
    row: dict[str, Any] = {
        "kernel": program.name,
        "grid": program.launch.grid,
        "cluster": prepared.clusters.shape,
        "simulation": simulated(prepared, program),
    }
    if "unknown" in row["simulation"]:
        return {**row, "outcome": f"unknown: {row['simulation']['unknown']}"}
    if not launch:
        return {**row, "outcome": "simulated"}
    row["gpu"] = digests(LoadedKernel(image, program.launch, len(prepared.kernel.parameters)).run(program.contents))
    return {**row, "outcome": "equal" if row["gpu"] == row["simulation"] else "different"}


def simulated(prepared: PreparedLaunch, program: Program) -> dict[str, str]:
    """Return the digests of the simulated bytes of every buffer, or the reason why there are none, as `unknown`."""
    try:
        return digests(simulate(prepared, program.contents).after)
    except Unsupported as error:
        return {"unknown": str(error)}


def digests(after: Any) -> dict[str, str]:
    """Return the digest of the bytes of each buffer, by name."""
    return {name: _digest(after[name]) for name in sorted(after)}


def _digest(content: Bytes) -> str:
    return blake2b(np.ascontiguousarray(content).tobytes(), digest_size=8).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
