from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from bitwise_core.cli import app


def test_a_function_of_one_argument() -> None:
    done = CliRunner().invoke(app, ["probe", "numpy:add.accumulate", "8", "16"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "bitwise: numpy:add.accumulate: the callable returned the shape (8, 16), not (8,)\n"


def test_a_product_of_doubles_is_a_tree_or_open() -> None:
    done = CliRunner().invoke(app, ["probe", "numpy:matmul", "16", "4", "24", "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == (3 if found["form"] is None else 0)
    assert (found["form"] is None) == bool(found["open"])
    assert found["sizes"] == [16, 4, 24]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["numpy", "4", "4"], "'numpy' is not of the form module:function, as in numpy:matmul"),
        (["numpy:nothing", "4", "4"], "numpy:nothing: numpy has no nothing"),
        (["numpy:pi", "4", "4"], "numpy:pi: pi is no function"),
        (["no_such_module:f", "4", "4"],
         "no_such_module:f: the module no_such_module cannot be imported (No module named 'no_such_module')"),
        (["numpy:matmul", "4"], "give three sizes, M N K, for f(a, b), or two, ROWS LENGTH, for f(x); not 1"),
        (["numpy:matmul", "4", "4", "4", "--dtype", "int7"], "numpy:matmul: operands of int7 are not probed; there "
         "are float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2"),
    ],
)  # fmt: skip
def test_mistakes(arguments: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, ["probe", *arguments])
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"bitwise: {sentence}\n")
