"""Record the results of register operations on a GPU.

    python -m bitwise_bench.register_operations.record records/register-operations-sm90-h100.json.xz

Every form of `forms.forms()` that ptxas accepts runs twice on the operands of `operands`; the results must agree.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bitwise_bench.command_line import command_parser
from bitwise_bench.register_operations.assembling import assemble
from bitwise_bench.register_operations.forms import Form, forms
from bitwise_bench.register_operations.kernels import kernels
from bitwise_bench.register_operations.operands import Words
from bitwise_bench.register_operations.recorded import save
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the recorder; the exit status is 1 where two runs of a form differ, else 0."""
    parser = command_parser("register_operations.record", __doc__)
    parser.add_argument("out", type=Path, help="write the record here, as compressed JSON (.json.xz)")
    chosen = parser.parse_args(arguments)
    from bitwise_bench.gpu.launching import environment
    from bitwise_bench.register_operations.device import Device

    ptxas = Ptxas.locate("sm_90")
    given = {**environment(), "ptxas": ptxas.version, "command": "python -m bitwise_bench.register_operations.record"}
    device = Device.open()
    results: dict[Form, tuple[Words, ...]] = {}
    rejected: dict[Form, str] = {}
    unstable = 0
    for kernel in kernels(forms()):
        accepted, cubin, messages = assemble(ptxas.path, kernel)
        rejected |= messages
        if accepted is None:
            continue
        first, second = (device.results(accepted, cubin) for _ in range(2))
        unstable += _differences(first, second)
        results |= first
    save(chosen.out, given, results, rejected)
    size = chosen.out.stat().st_size
    print(f"{len(results)} forms recorded, {len(rejected)} rejected by ptxas {ptxas.version}; {size} bytes")
    return 1 if unstable else 0


def _differences(first: Mapping[Form, tuple[Words, ...]], second: Mapping[Form, tuple[Words, ...]]) -> int:
    """Print the forms whose results differ, and return how many there are."""
    differ = [
        form
        for form, words in first.items()
        if not all(np.array_equal(one, other) for one, other in zip(words, second[form], strict=True))
    ]
    for form in differ:
        print(f"two runs differ: {form.name}", file=sys.stderr)
    return len(differ)


if __name__ == "__main__":
    sys.exit(main())
