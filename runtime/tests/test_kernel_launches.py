from __future__ import annotations

from bitwise_torch.kernel_launches import KernelLaunch, kernels_of


def test_the_kernels_of_a_trace_are_sorted_by_their_start() -> None:
    trace = {
        "traceEvents": [
            {"cat": "kernel", "name": "reduce", "ts": 9.5, "args": {"grid": [4, 1, 1], "block": [128, 1, 1]}},
            {"cat": "cpu_op", "name": "mm", "ts": 1},
            {"cat": "kernel", "name": "multiply", "ts": 2,
             "args": {"grid": [1, 2, 9], "block": [384, 1, 1], "shared memory": 1024}},
        ]
    }  # fmt: skip
    assert kernels_of(trace) == (
        KernelLaunch("multiply", (1, 2, 9), (384, 1, 1), 1024), KernelLaunch("reduce", (4, 1, 1), (128, 1, 1), 0),
    )  # fmt: skip
    assert kernels_of({}) == ()
