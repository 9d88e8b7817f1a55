from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bitwise_core.cli import app


def test_a_function_of_one_argument() -> None:
    done = CliRunner().invoke(app, ["probe", "numpy:add.accumulate", "8", "16"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "bitwise: numpy:add.accumulate: the callable returned the shape (8, 16), not (8,)\n"


def test_a_product_of_doubles_is_a_tree_or_unresolved() -> None:
    done = CliRunner().invoke(app, ["probe", "numpy:matmul", "16", "4", "24", "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == (3 if found["descriptor"] is None else 0)
    assert (found["descriptor"] is None) == bool(found["open"])
    assert found["sizes"] == [16, 4, 24]


def test_a_sum_in_words_and_as_a_descriptor() -> None:
    done = CliRunner().invoke(app, ["probe", "numpy.linalg:norm", "8", "16"])
    assert done.exit_code == 2
    done = CliRunner().invoke(app, ["probe", "test_cli_probe:last_of_sums", "8", "40"])
    assert done.stdout == (
        "test_cli_probe:last_of_sums: a chain of 40 contiguous values\n"
        "reduction(length=40 dtype=fp32 folds=[fold(stride=1 count=40)])\n"
    )
    assert done.exit_code == 0
    assert done.stderr.startswith("1 other descriptor of this order returns other bytes\n")


def last_of_sums(x: Any) -> Any:
    return np.cumsum(x, axis=1)[:, -1]


def products(a: Any, b: Any) -> Any:
    total = np.zeros((len(a), b.shape[1]), dtype=np.float32)
    for low in range(0, a.shape[1], 16):
        part = np.zeros_like(total)
        for k in range(low, min(low + 16, a.shape[1])):
            part = part + a[:, k, None].astype(np.float32) * b[k].astype(np.float32)
        total = total + part
    return total[:, :].astype(a.dtype)


def test_a_product_in_words_and_as_a_descriptor() -> None:
    arguments = ["probe", "test_cli_probe:products", "32", "4", "40", "--dtype", "float16"]
    done = CliRunner().invoke(app, arguments)
    assert done.stdout == (
        "test_cli_probe:products: a chain of 3 contiguous parts: 2 of 16 values (a chain of 16 contiguous values), "
        "then 1 of 8 values (a chain of 8 contiguous values)\n"
        "gemm(k=40 left_dtype=fp16 right_dtype=fp16 output_dtype=fp16 path=fma k_cuts=[cut(span=16)])\n"
    )
    assert done.exit_code == 0
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert found["descriptor"] == found["survivors"][0] == done.stdout.splitlines()[1]
    assert {each["kind"] for each in found["parted"]} <= {"flat", "wide", "vanishing"}
    assert len(found["parted"]) >= 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["numpy", "4", "4"], "'numpy' is not of the form MODULE:FUNCTION, such as numpy:matmul"),
        (["numpy:nothing", "4", "4"], "numpy:nothing: the module numpy has no nothing"),
        (["numpy:pi", "4", "4"], "numpy:pi: pi is not callable; name a function"),
        (["no_such_module:f", "4", "4"],
         "no_such_module:f: the module no_such_module cannot be imported (No module named 'no_such_module')"),
        (["numpy:matmul", "4"], "give three sizes, M N K, for f(a, b), or two, ROWS LENGTH, for f(x), and not 1"),
        (["numpy:matmul", "4", "4", "4", "--dtype", "int7"], "numpy:matmul: operands of int7 cannot be probed; the "
         "supported types are float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2"),
    ],
)  # fmt: skip
def test_errors(arguments: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, ["probe", *arguments])
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"bitwise: {sentence}\n")
