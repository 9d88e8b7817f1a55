"""TorchInductor: kernels of compiled models of tables of rtdl-revisiting-models, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(name: str, dtype: str, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        t.torch.manual_seed(53)
        model = getattr(import_module("rtdl_revisiting_models"), name)(**settings)
        _step(t, model.to(t.device).to(t.dtype(dtype)), t.normal(30, 19, dtype=dtype))

    return driver


def _tokens(t: Tensors) -> None:
    t.torch.manual_seed(53)
    model = import_module("rtdl_revisiting_models").FTTransformer(
        n_cont_features=6, cat_cardinalities=[4, 9], d_out=3, n_blocks=1, d_block=48, attention_n_heads=3,
        attention_dropout=0.0, ffn_d_hidden_multiplier=4 / 3, ffn_dropout=0.0, residual_dropout=0.0,
    )  # fmt: skip
    categories = t.torch.stack([t.integers(0, 4, 20), t.integers(0, 9, 20)], dim=1)
    _step(t, model.to(t.device), t.normal(20, 6), categories)


CASES: dict[str, Driver] = {
    "perceptron": _driver("MLP", "float32", d_in=19, d_out=5, n_blocks=2, d_block=72, dropout=0.0),
    "residuals": _driver("ResNet", "float32", d_in=19, d_out=5, n_blocks=1, d_block=72, d_hidden_multiplier=2.0,
                         dropout1=0.0, dropout2=0.0),
    "narrow": _driver("ResNet", "bfloat16", d_in=19, d_out=None, n_blocks=2, d_block=40, d_hidden_multiplier=1.5,
                      dropout1=0.0, dropout2=0.0),
    "tokens": _tokens,
}  # fmt: skip
