"""The batch-invariant mode: an override returns the bytes of a row whatever its batch, and nothing else is silent."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from bitwise_core.errors import BitwiseError
from bitwise_core.plugins import registry
from bitwise_core.plugins.attention_calls import AttentionForm
from bitwise_core.plugins.launchers import SequentialLauncher
from bitwise_torch import attention_execution
from bitwise_torch.batch_invariance import attention as attention_module
from bitwise_torch.batch_invariance.mask_runs import Run, first_keys_differ, runs_of_mask, segments_of_mask
from bitwise_torch.batch_invariance.mode import BatchVarianceError, BatchVarianceWarning, batch_invariant, overrides
from bitwise_torch.batch_invariance.products import PRODUCT_OPERATORS
from bitwise_torch.batch_invariance.row_functions import extents_of_rows, first_of_rows
from bitwise_torch.batch_invariance.row_operators import ROW_OPERATORS
from bitwise_torch.batch_invariance.spreads import SPREADS
from bitwise_torch.interception import InterceptionError
from bitwise_torch.transformers_attention import attention_of_module

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not any(isinstance(each, SequentialLauncher) for each in registry.default().launchers):
    pytest.skip("no installed plugin has a launcher of products", allow_module_level=True)

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
COUNTS = {"cpu": (1, 2, 5), "cuda": (1, 2, 8, 9, 16, 17, 33, 64, 65, 128, 130, 257)}
"""Numbers of rows: on a GPU across the boundaries of its schedules."""

K, N = 96, 48


def tensor(*shape: int, device: str, dtype: Any = None, seed: int = 0) -> Any:
    found = torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
    return found.to(dtype or torch.bfloat16).to(device)


def fixed(*shape: int, like: Any, seed: int = 1, dtype: Any = None) -> Any:
    """Return an operand that does not depend on the batch."""
    return tensor(*shape, device=str(like.device), dtype=dtype or like.dtype, seed=seed)


def heads(x: Any) -> tuple[Any, Any, Any]:
    """Return a query of three heads for each row, and keys and values of a sequence for each."""
    rows = x.shape[0]
    query = x.reshape(rows, 3, 1, K // 3)
    keys = x.reshape(rows, 1, 1, K).expand(rows, 3, 5, K)[..., : K // 3] * fixed(5, K // 3, like=x)
    return query, keys, keys * 2


def wide_heads(x: Any, width: int = 64) -> tuple[Any, Any, Any]:
    """Return the operands of `heads` with heads of another width; for 64 numbers there are kernels."""
    query, keys, values = (torch.nn.functional.pad(each, (0, width - K // 3), value=0.5) for each in heads(x))
    return query, keys, values


def scaled(x: Any) -> Any:
    left, right = x.to(torch.float8_e4m3fn), fixed(N, K, like=x).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=x.device)
    return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def scaled_blocks(x: Any) -> Any:
    """Return a product whose rows have a scale for each 128 of 256 values of k, and blocks of 128 x 128 of weights."""
    wide = x.repeat(1, 3)[:, :256]
    scales = wide.view(len(x), 2, 128).float().abs().amax(2).t().contiguous().t()
    right = fixed(N, 256, like=x).to(torch.float8_e4m3fn).t()
    return torch._scaled_mm(
        wide.to(torch.float8_e4m3fn), right, scale_a=scales, scale_b=fixed(1, 2, like=x).float().abs().t(),
        out_dtype=torch.bfloat16,
    )  # fmt: skip


def scaled_by_recipes(x: Any) -> Any:
    from torch.nn.functional import ScalingType, scaled_mm

    left, right = x.to(torch.float8_e4m3fn), fixed(N, K, like=x).to(torch.float8_e4m3fn).t()
    scales = x.float().abs().amax(1, keepdim=True), fixed(1, N, like=x).float()
    return scaled_mm(left, right, scales[0], ScalingType.RowWise, scales[1], ScalingType.RowWise)


def scaled_groups(x: Any) -> Any:
    left, right = x.to(torch.float8_e4m3fn), fixed(N, K, like=x).to(torch.float8_e4m3fn).t()[None].expand(2, K, N)
    ends = torch.tensor([x.shape[0] // 2, x.shape[0]], dtype=torch.int32, device=x.device)
    scales = x.float().abs().amax(1), fixed(1, N, like=x).float().expand(2, N).contiguous()
    # PyTorch has this operator on GPUs alone; what serves it is called here.
    on_cpu = PRODUCT_OPERATORS["_scaled_grouped_mm"]
    function = on_cpu if x.device.type == "cpu" else torch._scaled_grouped_mm
    return function(left, right, *scales, offs=ends)


def grouped(x: Any) -> Any:
    ends = torch.tensor([x.shape[0] // 2, x.shape[0]], dtype=torch.int32, device=x.device)
    weight = fixed(1, K, N, like=x).expand(2, K, N).contiguous()  # a row has one weight in either group
    return torch._grouped_mm(x, weight, offs=ends)


def gradient(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the gradient of a function for its rows."""

    def found(x: Any) -> Any:
        leaf = x.detach().requires_grad_()
        out = function(leaf)
        out.backward(fixed(1, *out.shape[1:], like=out, seed=5).expand(out.shape))
        return leaf.grad

    return found


def entries(x: Any) -> Any:
    """Add three parts of each row to a row, in an order of the rows of their own."""
    rows = x.shape[0]
    index = torch.arange(rows, device=x.device).repeat(3)
    return torch.zeros(rows, K // 3, device=x.device, dtype=x.dtype).index_add(0, index, torch.cat(x.chunk(3, 1)))


def batch_norm_of_cudnn(x: Any) -> Any:
    # PyTorch has this operator on GPUs alone; what serves it is called here.
    function = SPREADS["cudnn_batch_norm"] if x.device.type == "cpu" else torch.cudnn_batch_norm
    known = (fixed(8, like=x, seed=seed).float().abs() for seed in range(4))
    return function(x.reshape(len(x), 8, -1, 1).float(), *known, False, 0.1, 1e-5)[0]


CASES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "mm": ("mm", lambda x: x @ fixed(K, N, like=x)),
    "mm of a transposed weight": ("mm", lambda x: x @ fixed(N, K, like=x).t()),
    "mm of fp32": ("mm", lambda x: x.float() @ fixed(K, N, like=x).float()),
    "mm of a short k": ("mm", lambda x: x[:, :7] @ fixed(7, N, like=x)),
    "gradient of mm": ("mm", gradient(lambda x: x @ fixed(K, N, like=x))),
    "linear with a bias": ("addmm", lambda x: torch.nn.functional.linear(x, fixed(N, K, like=x), fixed(N, like=x))),
    "addmm with alpha": (
        "addmm", lambda x: torch.addmm(fixed(N, like=x), x, fixed(K, N, like=x), alpha=0.5, beta=2),
    ),
    "addmm in place": ("addmm_", lambda x: fixed(1, N, like=x).repeat(len(x), 1).addmm_(x, fixed(K, N, like=x))),
    "bmm": ("bmm", lambda x: torch.bmm(x[:, None], fixed(1, K, N, like=x).expand(len(x), K, N))),
    "bmm of rows": ("bmm", lambda x: torch.bmm(x[None].repeat(2, 1, 1), fixed(2, K, N, like=x)).transpose(0, 1)),
    "baddbmm": (
        "baddbmm", lambda x: torch.baddbmm(fixed(1, 1, N, like=x).expand(len(x), 1, N), x[:, None],
                                           fixed(1, K, N, like=x).expand(len(x), K, N)),
    ),
    "mv": ("mv", lambda x: torch.mv(x, fixed(K, like=x))),
    "dot": ("dot", lambda x: torch.stack([torch.dot(each, fixed(K, like=x)) for each in x])),
    "_addmm_activation": (
        "_addmm_activation", lambda x: torch._addmm_activation(fixed(N, like=x), x, fixed(K, N, like=x)),
    ),
    "_scaled_mm": ("_scaled_mm", scaled),
    "_scaled_mm of blocks": ("_scaled_mm", scaled_blocks),
    "_scaled_mm by recipes": ("_scaled_mm_v2", scaled_by_recipes),
    "_scaled_grouped_mm": ("_scaled_grouped_mm", scaled_groups),
    "_grouped_mm": ("_grouped_mm", grouped),
    "sum": ("sum", lambda x: x.sum(-1)),
    "sum over the first axis": ("sum", lambda x: x.t().sum(0)),
    "sum over two axes": ("sum", lambda x: x.reshape(len(x), 4, 2, -1).sum((1, 3))),
    "sum of rows that lie in another order": (
        "sum", lambda x: x.reshape(len(x), 4, 2, -1).transpose(1, 2).sum(-1, keepdim=True)
    ),
    "sum over axes that lie in another order": (
        "sum", lambda x: x.t().contiguous().reshape(8, -1, len(x)).transpose(0, 1).sum((0, 1))
    ),
    "mean": ("mean", lambda x: x.float().pow(2).mean(-1, keepdim=True)),
    "softmax": ("_softmax", lambda x: torch.softmax(x, -1)),
    "softmax of the first axis": ("_softmax", lambda x: torch.softmax(x.t(), 0).t()),
    "log_softmax to fp32": ("_log_softmax", lambda x: torch.log_softmax(x.float(), -1)),
    "gradient of softmax": ("_softmax_backward_data", gradient(lambda x: torch.softmax(x, -1))),
    "gradient of log_softmax": ("_log_softmax_backward_data", gradient(lambda x: torch.log_softmax(x, -1))),
    "layer_norm": (
        "native_layer_norm",
        lambda x: torch.nn.functional.layer_norm(x, (K,), fixed(K, like=x), fixed(K, like=x, seed=2)),
    ),
    "gradient of layer_norm": (
        "native_layer_norm_backward", gradient(lambda x: torch.nn.functional.layer_norm(x, (K,), fixed(K, like=x))),
    ),
    "rms_norm": ("_fused_rms_norm", lambda x: torch.rms_norm(x, (K,), fixed(K, like=x), 1e-6)),
    "gradient of rms_norm": (
        "_fused_rms_norm_backward", gradient(lambda x: torch.rms_norm(x, (K,), fixed(K, like=x), 1e-6)),
    ),
    "index_add": ("index_add", entries),
    "index_add in place": (
        "index_add_", lambda x: x.clone().index_add_(0, torch.arange(len(x)).repeat(2).to(x.device), x.repeat(2, 1)),
    ),
    "scatter_add": (
        "scatter_add", lambda x: torch.zeros_like(x).scatter_add(1, torch.zeros_like(x, dtype=torch.long), x),
    ),
    "gradient of gather": (
        "scatter_add_", gradient(lambda x: x.gather(1, torch.zeros(len(x), 3, dtype=torch.long, device=x.device))),
    ),
    "gradient of indices": (
        "_index_put_impl_", gradient(lambda x: x[torch.arange(len(x), device=x.device).repeat_interleave(2)][::2]),
    ),
    "gradient of indices of the last axis": (
        "_index_put_impl_",
        gradient(lambda x: x[..., torch.zeros(5, dtype=torch.long, device=x.device)].contiguous()),
    ),
    "average pool": (
        "avg_pool2d",
        lambda x: torch.nn.functional.avg_pool2d(
            x.reshape(len(x), 2, 8, -1), 3, 2, padding=1, count_include_pad=False
        ),
    ),
    "average pool of even windows": (
        "avg_pool2d", lambda x: torch.nn.functional.avg_pool2d(x.reshape(len(x), 2, 8, -1), (2, 3))
    ),
    "adaptive average pool": (
        "_adaptive_avg_pool2d", lambda x: torch.nn.functional.adaptive_avg_pool2d(x.reshape(len(x), 2, 8, -1), (3, 2))
    ),
    "norm by mse": (
        "mse_loss", lambda x: torch.stack([torch.nn.functional.mse_loss(each, each.flip(0)) for each in x])
    ),
    "sum by smooth L1": (
        "smooth_l1_loss",
        lambda x: torch.stack([torch.nn.functional.smooth_l1_loss(y, y.flip(0), reduction="sum") for y in x.float()]),
    ),
    "norm by huber": (
        "huber_loss", lambda x: torch.stack([torch.nn.functional.huber_loss(each, each.flip(0)) for each in x.float()])
    ),
    "prefix sums": ("cumsum", lambda x: torch.cumsum(x, 1)),
    "prefix sums of the axis before": ("cumsum", lambda x: torch.cumsum(x.reshape(len(x), 12, -1), 1)),
    "gradient of prefix sums": ("cumsum", gradient(lambda x: torch.cumsum(x, 1, dtype=torch.float32))),
    "prefix sums in place": ("cumsum_", lambda x: x.float().cumsum_(1)),
    "norm": ("linalg_vector_norm", lambda x: torch.linalg.vector_norm(x, dim=1)),
    "gradient of norm": ("linalg_vector_norm", gradient(lambda x: torch.nn.functional.normalize(x.float(), dim=1))),
    "norms of tensors": ("_foreach_norm", lambda x: torch.stack(torch._foreach_norm(list(x), 1))),
    "var": ("var", lambda x: torch.var(x, 1)),
    "norm by std": ("std", lambda x: torch.std(x.float(), 1, correction=0)),
    "norm by var_mean": ("var_mean", lambda x: torch.stack(torch.var_mean(x, 1), 1)),
    "norm by std_mean": ("std_mean", lambda x: torch.stack(torch.std_mean(x.reshape(len(x), 2, -1), (1, 2)), 1)),
    "group_norm": (
        "native_group_norm",
        lambda x: torch.nn.functional.group_norm(
            x.reshape(len(x), 8, -1), 4, fixed(8, like=x), fixed(8, like=x, seed=2)
        ),
    ),
    "batch_norm by known statistics": (
        "native_batch_norm",
        lambda x: torch.nn.functional.batch_norm(
            x.reshape(len(x), 8, -1), *(fixed(8, like=x, seed=seed).abs() for seed in range(4))
        ),
    ),
    "batch_norm of cuDNN": ("cudnn_batch_norm", batch_norm_of_cudnn),
    "gradient of batch_norm by known statistics": (
        "native_batch_norm_backward",
        gradient(
            lambda x: torch.nn.functional.batch_norm(
                x.reshape(len(x), 8, -1), *(fixed(8, like=x, seed=seed).abs() for seed in range(3))
            )
        ),
    ),
    "weight_norm": (
        "_weight_norm_interface", lambda x: torch._weight_norm_interface(x, fixed(1, 1, like=x).expand(len(x), 1))[0]
    ),
    "gradient of weight_norm": (
        "_weight_norm_interface_backward",
        gradient(lambda x: torch._weight_norm(x, fixed(1, 1, like=x).expand(len(x), 1).contiguous())),
    ),
    "gradient of group_norm": (
        "native_group_norm_backward",
        gradient(lambda x: torch.nn.functional.group_norm(x.reshape(len(x), 8, -1), 2, fixed(8, like=x))),
    ),
    "convolution": (
        "convolution",
        lambda x: torch.nn.functional.conv1d(
            x.reshape(len(x), 4, -1), fixed(6, 4, 3, like=x), fixed(6, like=x), stride=2, padding=2
        ),
    ),
    "convolution of each channel": (
        "convolution",
        lambda x: torch.nn.functional.conv1d(x.reshape(len(x), 8, -1), fixed(8, 1, 4, like=x), padding=3, groups=8),
    ),
    "convolution of images": (
        "convolution",
        lambda x: torch.nn.functional.conv2d(
            x.reshape(len(x), 4, 4, 6), fixed(6, 2, 2, 3, like=x), padding=(1, 0), dilation=(1, 2), groups=2
        ),
    ),
    "transposed convolution": (
        "convolution",
        lambda x: torch.nn.functional.conv_transpose1d(
            x.reshape(len(x), 4, -1), fixed(4, 3, 5, like=x), fixed(6, like=x), 3, 1, 1, 2, 2
        ),
    ),
    "transposed convolution of images": (
        "convolution",
        lambda x: torch.nn.functional.conv_transpose2d(
            x.reshape(len(x), 4, 4, 6), fixed(4, 6, 2, 3, like=x), stride=(2, 1), padding=(0, 1)
        ),
    ),
    "gradient of a transposed convolution": (
        "convolution_backward",
        gradient(
            lambda x: torch.nn.functional.conv_transpose1d(
                x.reshape(len(x), 4, -1), fixed(4, 3, 5, like=x), None, 3, 1, 1, 2, 2
            )
        ),
    ),
    "gradient of convolution": (
        "convolution_backward",
        gradient(
            lambda x: torch.nn.functional.conv2d(
                x.reshape(len(x), 4, 4, 6), fixed(6, 2, 2, 3, like=x), stride=(2, 1), padding=(1, 2), groups=2
            )
        ),
    ),
    "gradient of convolution of each channel": (
        "convolution_backward",
        gradient(
            lambda x: torch.nn.functional.conv1d(
                x.reshape(len(x), 8, -1), fixed(16, 1, 4, like=x), stride=3, padding=1, groups=8
            )
        ),
    ),
    "triangular systems": (
        "linalg_solve_triangular",
        lambda x: torch.linalg.solve_triangular(
            fixed(6, 6, like=x, dtype=torch.float32), x.float().reshape(len(x), 6, -1), upper=False, unitriangular=True
        ),
    ),
    "topk": ("topk", lambda x: torch.topk((x * 2).round(), 9)[1]),
    "attention": (
        "scaled_dot_product_attention",
        lambda x: torch.nn.functional.scaled_dot_product_attention(*heads(x)),
    ),
    "gradient of attention": (
        "scaled_dot_product_attention",
        gradient(lambda x: torch.nn.functional.scaled_dot_product_attention(*heads(x))),
    ),
    "gradient of attention of wide heads": (
        "scaled_dot_product_attention",
        gradient(lambda x: torch.nn.functional.scaled_dot_product_attention(*wide_heads(x))),
    ),
    "attention of heads between widths of kernels": (
        "scaled_dot_product_attention",
        lambda x: torch.nn.functional.scaled_dot_product_attention(*wide_heads(x, 80)),
    ),
    "gradient of attention of heads between widths of kernels": (
        "scaled_dot_product_attention",
        gradient(lambda x: torch.nn.functional.scaled_dot_product_attention(*wide_heads(x, 72))),
    ),
}  # fmt: skip
"""By what is computed: the operator, and a function of rows to results of each."""


def bits(x: Any) -> Any:
    return x.detach().contiguous().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_the_bytes_of_a_row_do_not_depend_on_its_batch(case: str, device: str) -> None:
    function, most = CASES[case][1], max(COUNTS[device])
    x = tensor(most + 3, K, device=device)
    with batch_invariant(strict=True):
        whole = function(x)
        for count in COUNTS[device]:
            for start in (0, most + 3 - count):
                part = slice(start, start + count)
                assert torch.equal(bits(function(x[part])), bits(whole[part])), (count, start)
            for start in (1, 3) if device == "cuda" else ():  # the second call repeats the launch of the first one
                part = slice(start, start + count)
                assert torch.equal(bits(function(x[part].clone())), bits(whole[part])), (count, start)


def test_one_row_whose_scales_fit_several_shapes_has_the_bytes_of_a_batch() -> None:
    x, weight = (tensor(rows, 128, device="cpu").to(torch.float8_e4m3fn) for rows in (3, 128))
    scales, scale = tensor(3, 1, device="cpu").float(), tensor(1, 1, device="cpu", seed=3).float()

    def product(rows: slice) -> Any:
        return torch._scaled_mm(x[rows], weight.t(), scales[rows], scale, out_dtype=torch.bfloat16)

    with batch_invariant(strict=True):
        whole, alone = product(slice(0, 3)), [product(slice(row, row + 1)) for row in range(3)]
    assert torch.equal(whole.view(torch.int16), torch.cat(alone).view(torch.int16))


def test_every_override_is_tested() -> None:
    kinds = {each.operator: each.kind for each in overrides()}
    tested = {operator for operator, _ in CASES.values()}
    assert {name for name, kind in kinds.items() if kind in ("product", "rows", "attention")} == tested


ROUNDED = re.compile("mean|norm|var|softmax|attention|topk|_scaled")
"""Cases whose results of small integers are no small integers, or have another order of equal numbers."""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", [each for each in CASES if not ROUNDED.search(each)])
def test_results_of_small_integers_are_those_of_pytorch(
    case: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sum of them is rounded, whatever the order."""

    def integers(*shape: int, device: str, dtype: Any = None, seed: int = 0) -> Any:
        found = torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
        return found.to(dtype or torch.bfloat16).to(device)

    monkeypatch.setitem(globals(), "tensor", integers)
    x = integers(6, K, device=device)
    expected = CASES[case][1](x)
    with batch_invariant(strict=True):
        found = CASES[case][1](x)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert torch.equal(found, expected)
    assert bool(found.any())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("groups", "outputs"), [(1, 6), (2, 4), (4, 4), (4, 8)])
def test_gradients_of_convolutions_of_small_integers_are_those_of_pytorch(
    groups: int, outputs: int, stride: int, device: str
) -> None:
    def small(*shape: int) -> Any:
        found = torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(sum(shape)))
        return found.float().to(device).requires_grad_()

    x, weight, bias = small(3, 4, 7, 5), small(outputs, 4 // groups, 2, 3), small(outputs)

    def gradients() -> tuple[Any, ...]:
        out = torch.nn.functional.conv2d(x, weight, bias, stride, (1, 4), (2, 1), groups)
        slope = (torch.arange(out.numel(), device=device).reshape(out.shape) % 5).float()
        return out, *torch.autograd.grad(out, (x, weight, bias), slope)

    wanted = gradients()
    with batch_invariant(strict=True):
        found = gradients()
    assert all(map(torch.equal, found, wanted))
    assert all(bool(each.any()) for each in found)


def test_prefix_sums_add_one_number_after_the_other() -> None:
    """Zeros in front change nothing, as those of a padded sequence."""
    x = tensor(2, 300, device="cpu", dtype=torch.float32)
    with batch_invariant(strict=True):
        whole = torch.cumsum(x, 1)
        padded = torch.cumsum(torch.nn.functional.pad(x, (5, 9)), 1)
    total = torch.zeros(2)
    for place in range(300):
        total = total + x[:, place]
        assert torch.equal(whole[:, place], total)
    assert torch.equal(padded[:, 5:305], whole)


@pytest.mark.parametrize("device", DEVICES)
def test_the_epsilon_of_rms_norm_is_pytorchs(device: str) -> None:
    """Of numbers whose mean of squares is near it."""
    x = torch.full((2, 64), 2.0**-11, device=device).bfloat16()
    expected = torch.nn.functional.rms_norm(x, (64,))
    with batch_invariant(strict=True):
        for _ in range(2):  # the second call repeats the launch of the first one
            assert torch.equal(torch.nn.functional.rms_norm(x, (64,)), expected)
    found = ROW_OPERATORS["_fused_rms_norm"](x, [64], None, None)[0]
    assert torch.equal(found, expected)
    assert found[0, 0] > 0.5


def test_norms_and_variances_of_exact_numbers() -> None:
    x = torch.tensor([[3.0, 4.0, 0.0, 0.0], [1.0, 3.0, 5.0, 7.0]])
    with batch_invariant(strict=True):
        assert torch.linalg.vector_norm(x[0]).item() == 5.0
        assert torch.linalg.vector_norm(x, 1, dim=1).tolist() == [7.0, 16.0]
        assert torch.linalg.vector_norm(-x, float("inf"), dim=0).tolist() == [3.0, 4.0, 5.0, 7.0]
        assert torch.var(x, 1, correction=0).tolist() == [3.1875, 5.0]
        assert torch.var(x[1], correction=-1).item() == 4.0
        assert torch.std(x[1], correction=-1).item() == 2.0
        assert [each.item() for each in torch.std_mean(x[1], correction=-1)] == [2.0, 4.0]
        assert torch.isnan(torch.var(x[:, :1], 1)).all()


def test_groups_are_normalised_as_rows() -> None:
    x = tensor(3, 4, 10, device="cpu", dtype=torch.float32)
    slope = fixed(3, 4, 10, like=x)

    def gradients(function: Callable[[Any], Any]) -> tuple[Any, Any]:
        leaf = x.clone().requires_grad_()
        out = function(leaf)
        return out.detach(), torch.autograd.grad(out, leaf, slope)[0]

    with batch_invariant(strict=True):
        groups = gradients(lambda y: torch.nn.functional.group_norm(y, 2))
        rows = gradients(
            lambda y: torch.nn.functional.layer_norm(y.reshape(3, 2, 20), (20,)).reshape(3, 4, 10)
        )  # fmt: skip
    assert all(map(torch.equal, groups, rows))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_triangular_systems_of_small_integers_are_those_of_pytorch(upper: bool, left: bool) -> None:
    """Divisions by powers of two and sums of small numbers are not rounded."""
    source = torch.Generator().manual_seed(1)
    a = torch.randint(-1, 2, (2, 5, 5), generator=source).float()
    a[:, range(5), range(5)] = torch.tensor([1.0, -2.0, 4.0, 0.5, -1.0])
    x = torch.randint(-3, 4, (2, 5, 3) if left else (2, 3, 5), generator=source).float()
    triangle = torch.triu(a) if upper else torch.tril(a)
    b = triangle @ x if left else x @ triangle
    leaves = a.requires_grad_(), b.requires_grad_()
    solve = torch.linalg.solve_triangular
    wanted = torch.autograd.grad(solve(*leaves, upper=upper, left=left).sum(), leaves)
    with batch_invariant(strict=True):
        found = solve(*leaves, upper=upper, left=left)
        gradients = torch.autograd.grad(found.sum(), leaves)
    assert torch.equal(found, x)
    assert all(map(torch.equal, gradients, wanted))
    with batch_invariant(strict=True), pytest.raises(BatchVarianceError, match=r"a system of torch\.float16 and"):
        solve(a.half(), b.half(), upper=upper, left=left)


def test_a_step_with_clipped_gradients_is_covered() -> None:
    x, weight = tensor(3, K, device="cpu"), fixed(K, N, like=tensor(1, 1, device="cpu")).requires_grad_()
    with batch_invariant(strict=True):
        (x @ weight).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_([weight], 1.0)
    assert norm > 1.0


def test_every_reduction_of_pytorch_is_named() -> None:
    """An operator that PyTorch marks as a reduction is overridden, warned of, exact, or composed of others."""
    named = {each.operator for each in overrides()}
    found = set()
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        operator = getattr(getattr(torch.ops.aten, name, None), overload or "default", None)
        if full.startswith("aten::") and operator is not None and torch.Tag.reduction in operator.tags:
            found.add(name)
    assert found - named <= {"logsumexp"}  # amax, exp, sum and log
    assert len(found) > 20


def test_an_operator_without_an_order_is_warned_of_once_or_refused() -> None:
    x = tensor(3, 4, device="cpu", dtype=torch.float32)
    with batch_invariant() as mode:
        with pytest.warns(BatchVarianceWarning, match=re.escape("aten::cumprod may depend on the batch")):
            found = torch.cumprod(x, 0)
        assert torch.equal(torch.cumprod(x, 0), found)
        assert mode.warned == {"aten::cumprod"}
    with batch_invariant(strict=True), pytest.raises(BatchVarianceError, match="aten::prod"):
        x.prod(0)
    with batch_invariant(strict=True), pytest.raises(BatchVarianceError, match="a norm of order 3; those of 1, 2 and"):
        torch.linalg.vector_norm(x, 3)
    with batch_invariant(strict=True), pytest.raises(BatchVarianceError, match=r"a norm in torch\.float64; fp32, fp16"):
        torch.linalg.vector_norm(x, dtype=torch.float64)
    with batch_invariant(strict=True), pytest.raises(BatchVarianceError, match=r"after module\.eval\(\)"):
        torch.nn.BatchNorm1d(4)(x)
    with batch_invariant(strict=True), pytest.raises(BatchVarianceError, match="a pool with ceil_mode"):
        torch.nn.functional.avg_pool2d(x[None], 2, ceil_mode=True)
    with batch_invariant(strict=True), pytest.raises(BatchVarianceError, match="float64"):
        x.double() @ x.double().t()
    with batch_invariant(strict=True), pytest.raises(BatchVarianceError, match="dropout"):
        torch.nn.functional.scaled_dot_product_attention(*[x[None]] * 3, dropout_p=0.5)
    head = tensor(1, 1, 3, 72, device="cpu")
    attention = torch.nn.functional.scaled_dot_product_attention
    with batch_invariant(strict=True):
        with pytest.raises(BatchVarianceError, match=r"attention of torch\.float64"):
            attention(*[head.double()] * 3)
        with pytest.raises(BitwiseError, match=r"must have the shape \(72, any\) here"):
            attention(head, head[..., :70], head)


def test_integers_and_moves_are_exact_and_pytorchs() -> None:
    x = torch.arange(12).reshape(3, 4)
    target = torch.zeros(3, 4)
    with batch_invariant(strict=True):
        assert x.sum().item() == 66
        assert torch.cumsum(x, 1)[2, 3].item() == 38
        assert (x @ x.t())[2, 2].item() == 366
        assert x.sum(dtype=torch.float32).item() == 66.0
        target[torch.tensor([0, 2])] = 1.0
        assert torch.tensor([2.0, 3.0]).max().item() == 3.0
    assert target.sum().item() == 8.0


def test_the_mode_ends_with_its_block_and_after_errors() -> None:
    x = tensor(8, K, device="cpu", dtype=torch.float32)
    before = x.prod(0)
    mode = batch_invariant(strict=True)
    for _ in range(2):
        with pytest.raises(BatchVarianceError), mode:
            x.prod(0)
    assert torch.equal(x.prod(0), before)
    with mode, pytest.raises(BatchVarianceError, match="active already"):
        mode.__enter__()


def test_another_word_for_other_threads_is_an_error() -> None:
    """A scope ignores threads only where a program says so."""
    with pytest.raises(BatchVarianceError, match="other_threads is 'covers'; give one of 'error', 'cover', 'ignore'"):
        batch_invariant(other_threads="covers")  # type: ignore[arg-type]


def test_other_threads_are_refused_or_covered() -> None:
    x = tensor(3, K, device="cpu")
    weight = fixed(K, N, like=x)
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(x @ weight)
        except InterceptionError as error:
            found.append(error)

    def in_a_thread() -> Any:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return found.pop()

    with batch_invariant():
        expected = x @ weight
        assert isinstance(in_a_thread(), InterceptionError)
    mode = batch_invariant().enable()
    try:
        assert torch.equal(in_a_thread(), expected)
    finally:
        mode.disable()
    assert not isinstance(in_a_thread(), InterceptionError)


@pytest.mark.parametrize("depth", [16, 64, 80])
def test_attention_agrees_in_prefill_chunks_decode_and_beside_padding(depth: int) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (tensor(1, 2, 9, depth, device="cpu", seed=seed) for seed in range(3))

    def beside(x: Any, left: bool) -> Any:
        padding = torch.full((1, 2, 3, depth), 7.0, dtype=x.dtype)
        return torch.cat([padding, x] if left else [x, padding], 2)

    causal = torch.ones(9, 9, dtype=torch.bool).tril()
    with batch_invariant(strict=True):
        whole = attention(q, k, v, is_causal=True)
        assert torch.equal(attention(q[:, :, 8:], k, v), whole[:, :, 8:])
        assert torch.equal(attention(q[:, :, 5:], k, v, attn_mask=causal[None, None, 5:]), whole[:, :, 5:])
        for left in (False, True):
            mask = torch.zeros(1, 1, 12, 12, dtype=torch.bool)
            rows = slice(3, 12) if left else slice(0, 9)
            mask[0, 0, rows, rows] = causal
            padded = attention(*(beside(each, left) for each in (q, k, v)), attn_mask=mask)
            assert torch.equal(padded[:, :, rows], whole)
            assert not padded[:, :, :3].any() or not left
        groups = attention(q, k[:, :1], v[:, :1], is_causal=True, enable_gqa=True)
        assert torch.equal(groups, attention(q, k[:, :1].expand_as(k), v[:, :1].expand_as(v), is_causal=True))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(3, 4, 2, 1, 700, 128), (2, 8, 2, 150, 900, 128), (2, 4, 4, 600, 600, 64)])
def test_padded_attention_has_the_bytes_of_each_sequence(shape: tuple[int, ...]) -> None:
    """Shapes are (batch, heads, groups, queries, keys, width); calls are repeated, and captured in a CUDA graph."""
    batch, heads, groups, queries, keys, width = shape
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (
        tensor(batch, heads, queries, width, device="cuda"),
        *(tensor(batch, groups, keys, width, device="cuda", seed=seed) for seed in (1, 2)),
    )
    first = torch.arange(batch, device="cuda") * (keys - queries) // batch
    place, row = torch.arange(keys, device="cuda"), torch.arange(queries, device="cuda")[:, None]
    mask = (place >= first.view(-1, 1, 1, 1)) & (place <= row + keys - queries)
    with torch.no_grad(), batch_invariant(strict=True):
        found = [attention(q, k, v, attn_mask=mask, enable_gqa=True) for _ in range(3)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = attention(q, k, v, attn_mask=mask, enable_gqa=True)
        for index, begin in enumerate(first.tolist()):
            rows = slice(index, index + 1)
            padding = torch.zeros(1, heads, keys - begin - queries, width, device="cuda", dtype=q.dtype)
            whole = torch.cat([padding, q[rows]], 2)
            alone = attention(whole, k[rows, :, begin:], v[rows, :, begin:], is_causal=True, enable_gqa=True)
            assert torch.equal(found[0][rows], alone[:, :, alone.shape[2] - queries :])
        assert torch.equal(found[0], found[1])
        assert torch.equal(found[0], found[2])
        mask[0, ..., -1] = False  # graphs read the mask of the replay
        graph.replay()
        assert torch.equal(captured, attention(q, k, v, attn_mask=mask, enable_gqa=True))
        assert not torch.equal(captured, found[0])


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 128])
def test_gradients_of_repeated_attention_have_its_bytes(width: int) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention

    def gradients(seed: int) -> list[Any]:
        q, k, v, slope = (
            tensor(2, count, 200, width, device="cuda", seed=seed + place).requires_grad_()
            for place, count in enumerate((4, 2, 2, 4))
        )
        out = attention(q, k, v, is_causal=True, enable_gqa=True)
        return [out.detach(), *torch.autograd.grad(out, (q, k, v), slope.detach())]

    with batch_invariant(strict=True):
        first = gradients(0)
        gradients(7)
        again = gradients(0)
        q = tensor(2, 4, 200, width, device="cuda")  # one tensor three times after three tensors, and the reverse
        same = attention(q, q, q, is_causal=True)
        assert torch.equal(same, attention(q, q.clone(), q.clone(), is_causal=True))
    assert all(map(torch.equal, first, again))


@pytest.mark.parametrize("depth", [16, 64, 80])
def test_a_mask_of_heads_serves_every_sequence(depth: int) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (tensor(3, 2, 7, depth, device="cpu", seed=seed) for seed in range(3))
    mask = torch.ones(2, 7, 7, dtype=torch.bool).tril()
    mask[1, 3, 1] = False
    with batch_invariant(strict=True):
        found = attention(q, k, v, attn_mask=mask)
        assert torch.equal(found, attention(q, k, v, attn_mask=mask[None].expand(3, 2, 7, 7)))
        assert torch.equal(found[2:], attention(q[2:], k[2:], v[2:], attn_mask=mask))


def window_of(queries: int, keys: int, seen: int, device: str = "cpu") -> Any:
    """Return the mask of the last queries of some keys, each of which sees that number of keys up to its own."""
    place = torch.arange(keys, device=device)
    behind = torch.arange(keys - queries, keys, device=device)[:, None] - place
    return (behind >= 0) & (behind < seen)


def blocks(*lengths: int, seen: int, device: str = "cpu") -> Any:
    """Return the mask of packed sequences of these lengths with a window."""
    return torch.block_diag(*(window_of(each, each, seen, device) for each in lengths)).bool()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("depth", [16, 64, 80])
def test_windows_and_packed_sequences_have_the_bytes_of_each_query(device: str, depth: int, narrow: bool) -> None:
    """Whole, in chunks, token by token with the window's keys alone, packed between others, and padded in a batch."""
    attention, pad = torch.nn.functional.scaled_dot_product_attention, torch.nn.functional.pad
    length, seen, heads = (18, 4, 2) if device == "cpu" else (900, 600, 8)
    seen = seen if narrow else length
    q = tensor(1, heads, length, depth, device=device)
    k, v = (tensor(1, heads // 2, length, depth, device=device, seed=seed) for seed in (1, 2))
    before, after = 7, 3
    masks: dict[str, Any] = {}
    with torch.no_grad(), batch_invariant(strict=True):

        def run(first: int, last: int, keys: slice, mask: Any) -> Any:
            given = q[:, :, first:last], k[:, :, keys], v[:, :, keys]
            return attention(*given, attn_mask=mask, enable_gqa=True)

        masks["whole"] = window_of(length, length, seen, device)
        whole = run(0, length, slice(None), masks["whole"])
        parts = [(0, 3), (3, length // 2), (length // 2, length)]
        chunks = [run(a, b, slice(b), window_of(b - a, b, seen, device)[None]) for a, b in parts]
        assert torch.equal(torch.cat(chunks, 2), whole)
        for place in (0, seen - 1, length // 2, length - 1):
            least = max(0, place + 1 - seen)
            assert torch.equal(run(place, place + 1, slice(least, place + 1), None), whole[:, :, place : place + 1])
        packed = blocks(before, length, after, seen=seen, device=device)[None, None]
        operands = [pad(each, (0, 0, before, after), value=0.5) for each in (q, k, v)]
        found = attention(*operands, attn_mask=packed, enable_gqa=True)
        assert torch.equal(found[:, :, before:-after], whole)
        padded = torch.stack([pad(masks["whole"], each) for each in ((5, 0, 5, 0), (0, 5, 0, 5), (2, 3, 2, 3))])
        batch = [torch.cat([pad(each, (0, 0, a, 5 - a)) for a in (5, 0, 2)]) for each in (q, k, v)]
        found = attention(*batch, attn_mask=padded[:, None], enable_gqa=True)
        for row, at in enumerate((5, 0, 2)):
            assert torch.equal(found[row, :, at : at + length], whole[0])
            assert not found[row, :, :at].any()


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("depth", [16, 64])
def test_gradients_of_packed_sequences_are_those_of_each(depth: int, sinks: bool) -> None:
    """With sinks and a soft cap, as a module of transformers calls attention."""
    lengths = (3, 9, 6)
    q, k, v, slope = (tensor(1, 2, sum(lengths), depth, device="cpu", seed=seed) for seed in range(4))
    scores = tensor(2, device="cpu", dtype=torch.float32).requires_grad_()

    def gradients(part: slice, mask: Any) -> list[Any]:
        leaves = [each[:, :, part].clone().requires_grad_() for each in (q, k, v)]
        if sinks:
            module, given = torch.nn.Module(), {"softcap": 3.0, "s_aux": scores, "scaling": 0.3}
            query, key, value = leaves
            out = attention_of_module(module, query, key, value, mask[None, None], **given)[0].transpose(1, 2)
        else:
            out = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=mask)
        found = torch.autograd.grad(out, [*leaves, *([scores] if sinks else [])], slope[:, :, part])
        assert all(bool(each.any()) for each in found)
        return [out.detach(), *found[:3]]

    for seen in (3, 100):
        with batch_invariant(strict=True):
            packed = gradients(slice(None), blocks(*lengths, seen=seen))
            begin = 0
            for each in lengths:
                part = slice(begin, begin + each)
                alone = gradients(part, window_of(each, each, seen))
                assert all(torch.equal(x[:, :, part], y) for x, y in zip(packed, alone, strict=True))
                begin += each


def test_causal_sequences_of_a_mask_are_found() -> None:
    def segments(mask: Any, sequences: int = 1) -> tuple[list[int], list[int] | None, int] | None:
        found = segments_of_mask(mask, sequences)
        if found is None:
            return None
        others = None if found.others is None else found.others.nonzero()[:, 0].tolist()
        return found.starts.tolist(), others, found.longest

    pad = torch.nn.functional.pad
    packed = blocks(3, 1, 4, seen=9)[None, None]
    assert segments(packed) == ([0, 3, 4, 8], None, 4)
    assert segments(packed, 2) == ([0, 3, 4, 8, 11, 12, 16], None, 4)
    assert segments(pad(packed, (2, 1, 2, 1))) == ([0, 2, 5, 6, 10, 11], [0, 1, 10], 4)
    window = window_of(6, 6, 2)[None, None]
    assert segments(window) == ([0, 2, 6], [2, 3, 4, 5], 4)
    gap = packed.clone()
    gap[..., 6, 5] = False
    assert segments(gap) == ([0, 3, 4, 6, 8], [6, 7], 3)
    assert segments(packed.expand(1, 2, 8, 8)) is None
    assert segments(packed[..., 1:, :]) is None


def test_a_module_of_transformers_attends_in_the_mode_of_its_thread() -> None:
    q, k, v = (tensor(1, 2, 5, 64, device="cpu", seed=seed) for seed in range(3))
    found = []

    def run() -> None:
        mask = window_of(5, 5, 3)[None, None]
        found.append(attention_of_module(torch.nn.Module(), q, k, v, mask)[0])

    with batch_invariant(strict=True):
        run()
    mode = batch_invariant(strict=True).enable()
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        mode.disable()
    last = attention_of_module(torch.nn.Module(), q[:, :, 4:], k[:, :, 2:], v[:, :, 2:], None)[0]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0][:, 4:], last)  # sums begin at the window


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_padded_sequences_are_those_of_each_without_a_mask(device: str) -> None:
    attention, pad = torch.nn.functional.scaled_dot_product_attention, torch.nn.functional.pad
    lengths, longest = ((5, 9, 7), 9) if device == "cpu" else ((130, 300, 257), 300)
    given = [[tensor(1, heads, each, 64, device=device, seed=seed) for each in lengths]
             for seed, heads in enumerate((4, 2, 2, 4))]  # fmt: skip
    pads = [(longest - each, 0) if place else (0, longest - each) for place, each in enumerate(lengths)]
    batch = [torch.cat([pad(one, (0, 0, *each)) for one, each in zip(some, pads, strict=True)]) for some in given]
    place = torch.arange(longest, device=device)
    causal = place[:, None] >= place
    mask = torch.stack([causal & (place >= left) & (place < longest - right) for left, right in pads])[:, None]

    def gradients(q: Any, k: Any, v: Any, slope: Any, mask: Any = None) -> list[Any]:
        leaves = [each.clone().requires_grad_() for each in (q, k, v)]
        out = attention(*leaves, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
        return [out.detach(), *torch.autograd.grad(out, leaves, slope)]

    with batch_invariant(strict=True):
        q, k, v, slope = batch
        found = gradients(q, k, v, slope, mask)
        for row, (left, right) in enumerate(pads):
            alone = gradients(*(each[row] for each in given))
            part = slice(left, longest - right)
            assert all(torch.equal(x[row : row + 1, :, part], y) for x, y in zip(found, alone, strict=True))
            assert not any(x[row, :, :left].any() or x[row, :, longest - right :].any() for x in found[1:])
        slope = slope.clone()
        slope[0, :, -1] = 1.0  # a query of padding that matters has the gradients of the plain form
        others = gradients(q, k, v, slope, mask)
        assert others[1][0, :, -1].any()
        assert torch.equal(others[0], found[0])


def test_a_bias_is_added_to_the_scores_of_a_window() -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (tensor(2, 3, 20, 16, device="cpu", dtype=torch.float32, seed=seed) for seed in range(3))
    bias = tensor(1, 3, 20, 20, device="cpu", dtype=torch.float32).masked_fill(~window_of(20, 20, 6), float("-inf"))
    with batch_invariant(strict=True):
        whole = attention(q, k, v, attn_mask=bias)
        last = attention(q[:, :, 19:], k[:, :, 14:], v[:, :, 14:], attn_mask=bias[:, :, 19:, 14:])
    assert torch.equal(last, whole[:, :, 19:])
    torch.testing.assert_close(whole, attention(q, k, v, attn_mask=bias))


@pytest.mark.parametrize("depth", [16, 64])
def test_a_mask_with_gaps_is_refused_or_warned_of(depth: int) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (tensor(1, 1, 12, depth, device="cpu", seed=seed) for seed in range(3))
    mask = window_of(12, 12, 6)
    mask[11, 8] = False
    with batch_invariant() as mode, pytest.warns(BatchVarianceWarning, match="under this mask have one order alone"):
        attention(q, k, v, attn_mask=mask)
    with mode, warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning comes once
        attention(q, k, v, attn_mask=mask)
    with batch_invariant(strict=True), pytest.raises(BatchVarianceError, match="under this mask have one order alone"):
        attention(q, k, v, attn_mask=mask)


@pytest.mark.gpu
@pytest.mark.parametrize("strict", [False, True])
def test_a_mask_of_a_captured_graph_has_no_window(strict: bool) -> None:
    """A window that was seen is refused; a mask that was not is warned of, or asserted on the device."""
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (tensor(1, 2, 64, 64, device="cuda", seed=seed) for seed in range(3))
    causal, window = (window_of(64, 64, seen, "cuda") for seen in (64, 9))

    def captured(mask: Any) -> Any:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = attention(q, k, v, attn_mask=mask.clone() if mask is causal else mask)
        graph.replay()
        torch.cuda.synchronize()
        return found

    with torch.no_grad(), batch_invariant(strict=strict), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        whole = attention(q, k, v, attn_mask=causal)
        assert not found
        assert torch.equal(captured(causal), whole)
        assert len(found) == (not strict)
        attention(q, k, v, attn_mask=window)
        if strict:
            with pytest.raises(BatchVarianceError, match="cannot be read in the capture"):
                captured(window)
        else:
            captured(window)


@pytest.mark.parametrize("inference", [False, True])
def test_a_mask_that_is_written_to_is_read_again(inference: bool) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (tensor(1, 1, 12, 64, device="cpu", seed=seed) for seed in range(3))
    with torch.inference_mode(inference), batch_invariant(strict=True):
        mask = window_of(12, 12, 12)
        for seen in (12, 5, 7):
            mask.copy_(window_of(12, 12, seen))
            assert torch.equal(attention(q, k, v, attn_mask=mask), attention(q, k, v, attn_mask=mask.clone()))


def test_the_first_keys_of_a_mask_whose_writes_are_not_counted_are_read_again() -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (tensor(2, 1, 12, 64, device="cpu", seed=seed) for seed in range(3))
    causal = torch.ones(12, 12, dtype=torch.bool).tril()
    with torch.inference_mode(), batch_invariant() as mode:
        mask = causal[None, None].repeat(2, 1, 1, 1)
        for padding in (0, 3, 1):
            mask.copy_(causal)
            mask[1, :, :, :padding] = False
            found = attention(q, k, v, attn_mask=mask)
            alone = attention(*(each[1:, :, padding:] for each in (q, k, v)), is_causal=True)
            assert torch.equal(found[1:, :, padding:], alone)
            known = mode._attention.masks.known(mask, q, k, False)
            assert known is not None
            assert known.first_keys.tolist() == [0, padding]


@pytest.mark.parametrize("width", [48, 64])
def test_a_mask_of_numbers_that_adds_nothing_is_one_of_booleans(width: int) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (tensor(2, 2, 12, width, device="cpu", seed=seed) for seed in range(3))
    hidden = ~torch.ones(12, 12, dtype=torch.bool).tril()
    with batch_invariant(strict=True):
        expected = attention(q, k, v, is_causal=True)
        for least in (float("-inf"), torch.finfo(q.dtype).min):
            mask = torch.zeros(12, 12, dtype=q.dtype).masked_fill(hidden, least)
            assert torch.equal(attention(q, k, v, attn_mask=mask), expected)
            mask[5, 3] = 1.0
            assert not torch.equal(attention(q, k, v, attn_mask=mask), expected)


@pytest.mark.parametrize("groups", [1, 2])
def test_rows_under_a_mask_that_adds_numbers_do_not_depend_on_their_batch(groups: int) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    q = tensor(2, 2, 12, 64, device="cpu")
    k, v = (tensor(2, groups, 12, 64, device="cpu", seed=seed) for seed in (1, 2))
    hidden = ~torch.ones(12, 12, dtype=torch.bool).tril()
    added = tensor(2, 12, 12, device="cpu", seed=3).masked_fill(hidden, -torch.inf)
    with batch_invariant(strict=True):
        whole = attention(q, k, v, attn_mask=added, enable_gqa=True)
        assert torch.equal(attention(q[1:], k[1:], v[1:], attn_mask=added, enable_gqa=True), whole[1:])
        for end in range(1, 13):  # token by token
            part = slice(end - 1, end)
            mask = added[:, part, :end].contiguous()
            found = attention(q[:, :, part], k[:, :, :end], v[:, :, :end], attn_mask=mask, enable_gqa=True)
            assert torch.equal(found, whole[:, :, part])
    plain = attention(*(each.float() for each in (q, k, v)), attn_mask=added.float(), enable_gqa=True)
    # The bytes are compared above; this tells the meaning of the mask from another one, in fp32 and another order.
    assert torch.allclose(whole.float(), plain, atol=0.05)


def test_a_mask_with_gradients_has_them_whatever_ran_before() -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (tensor(1, 1, 6, 64, device="cpu", seed=seed) for seed in range(3))
    with batch_invariant(strict=True):
        bias = torch.zeros(6, 6, dtype=q.dtype, requires_grad=True)
        with torch.no_grad():
            before = attention(q, k, v, attn_mask=bias)
        found = attention(q, k, v, attn_mask=bias)
        assert torch.equal(found, before)
        found.float().square().sum().backward()
    assert bias.grad is not None
    assert bias.grad.any()


def test_heads_of_keys_and_batches_of_one_broadcast() -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    q = tensor(3, 4, 5, 64, device="cpu")
    k, v = (tensor(1, 1, 9, 64, device="cpu", seed=seed) for seed in (1, 2))
    with batch_invariant(strict=True):
        found = attention(q, k, v)
        whole = attention(q, *(each.expand(3, 4, -1, -1).contiguous() for each in (k, v)))
        assert torch.equal(found, whole)
        assert torch.equal(attention(q[1:2, :, 2:3], k, v), whole[1:2, :, 2:3])


@pytest.mark.filterwarnings("ignore:.*nested tensor")
def test_layers_that_pytorch_fuses_run_operator_by_operator() -> None:
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(64, 2, 96, batch_first=True).bfloat16()
    model = torch.nn.TransformerEncoder(layer, 2).eval()
    attention = torch.nn.MultiheadAttention(64, 2, batch_first=True).bfloat16().eval()
    x = tensor(3, 7, 64, device="cpu")
    padding = torch.zeros(3, 7, dtype=torch.bool)
    padding[1, 5:] = True
    fused = torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad(), batch_invariant(strict=True):
        assert torch.equal(model(x, src_key_padding_mask=padding)[1, :5], model(x[1:2, :5])[0])
        found, alone = (attention(each, each, each, need_weights=False)[0] for each in (x, x[1:2]))
        assert torch.equal(found[1:2], alone)
    assert torch.backends.mha.get_fastpath_enabled() == fused


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_recurrent_layers_are_served_without_a_library_of_their_own() -> None:
    layers = [torch.nn.LSTM(16, 24, 2, batch_first=True), torch.nn.GRU(16, 24, batch_first=True)]
    x = tensor(3, 9, 16, device="cpu", dtype=torch.float32)
    with batch_invariant(strict=True), torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
        for each in layers:
            assert torch.equal(each(x)[0][1:2], each(x[1:2])[0])
        assert torch.equal(torch.addr(x[0], x[0, :, 0], x[1, 0])[2:4], torch.addr(x[0, 2:4], x[0, 2:4, 0], x[1, 0]))
    if torch.backends.mkldnn.is_available():
        with batch_invariant(strict=True), torch.no_grad(), pytest.raises(BatchVarianceError, match=r"mkldnn\.flags"):
            layers[0](x)


def test_gradients_of_transforms_are_refused_with_a_sentence() -> None:
    q, k, v = (tensor(1, 1, 6, 64, device="cpu", seed=seed) for seed in range(3))

    def total(x: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(x, k, v).sum()

    with batch_invariant(strict=True), pytest.raises(BatchVarianceError, match=r"a transform of torch\.func"):
        torch.func.grad(total)(q)
    with batch_invariant(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert torch.func.grad(total)(q).isfinite().all()
    assert any("a transform of torch.func" in str(each.message) for each in said)


def test_masks_with_different_first_keys_are_found() -> None:
    def differ(mask: Any) -> Any:
        return first_keys_differ(first_of_rows(mask), int(mask.shape[-1]))

    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    padded = causal.clone()[None].repeat(2, 1, 1)
    padded[1, :, :3] = False  # the first queries see no key
    assert not differ(causal)
    assert not differ(padded)
    assert differ(causal & ~causal.tril(-3))
    packed = causal.clone()
    packed[3:, :3] = False
    assert differ(packed)
    assert differ(torch.stack([causal, packed]))
    assert not differ(torch.zeros_like(causal))


def test_runs_cover_each_query_that_sees_another_first_key() -> None:
    generator = torch.Generator().manual_seed(5)
    for _ in range(200):
        lengths = torch.randint(1, 9, (int(torch.randint(1, 6, (1,), generator=generator)),), generator=generator)
        seen = int(torch.randint(1, 12, (1,), generator=generator))
        mask = blocks(*lengths.tolist(), seen=seen)
        rows, keys = mask.shape
        empty = int(torch.randint(0, 3, (1,), generator=generator))
        mask = torch.nn.functional.pad(mask, (empty, 0, empty, 0))[None, None]
        first, extents = first_of_rows(mask), extents_of_rows(mask)
        runs, rest = runs_of_mask(extents.numpy(), int(mask.shape[-1]))
        assert runs is not None
        assert rest is not None
        drawn = torch.zeros_like(mask)
        others = (first[0, 0] > empty) & (first[0, 0] < keys + empty)
        for run in (*runs, *rest):
            for row in range(run.begin, run.end):
                begin = run.first + (row - run.begin if run.sliding else 0)
                end = run.last - (run.end - 1 - row)
                assert not run.sliding or end - begin == run.seen
                assert others[row] == (run in runs)
                assert not drawn[0, 0, row].any()
                drawn[0, 0, row, begin:end] = True
        assert torch.equal(drawn, mask)
        assert rows == keys


def test_queries_that_are_chunks_apart_are_the_rows_of_one_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    heads, groups, count, seen, chunk, width = 6, 2, 11, 7, 4, 8
    tokens, first = 30, 3
    source = torch.Generator().manual_seed(1)
    memory = (torch.randn(tokens, size, width, generator=source) for size in (heads, groups, groups))
    query, key, value = (each.transpose(0, 1) for each in memory)
    run = Run(None, 9, 9 + count, first, first + seen + count - 1, sliding=True)

    def computed(call: Any, form: Any, logarithms: bool) -> Any:
        rows, keys = int(call.query.shape[1]), int(call.key.shape[1])
        place = torch.arange(rows)[:, None] // call.query_share * call.query_step + call.first_position
        visible = (torch.arange(keys) <= place) & (torch.arange(keys) > place - form.window)
        assert (visible.sum(1) == seen).all()
        scores = torch.einsum("srgd,skgd->sgrk", call.query, call.key).masked_fill(~visible, -torch.inf)
        return torch.einsum("sgrk,skgd->srgd", scores.softmax(-1), call.value), None, None

    monkeypatch.setattr(attention_execution, "run", computed)
    form = AttentionForm("fp32", width, width, 1.0, causal=True, window=seen)
    out = torch.zeros(heads, tokens, width)
    rest = count % chunk
    for begin, end, queries in ((0, rest, count // chunk + 1), (rest, chunk, count // chunk)):
        assert attention_module._residues(run, begin, end, queries, chunk, query, key, value, form, out)
    expected = torch.zeros_like(out)
    for row in range(count):
        seen_keys = slice(first + row, first + row + seen)
        for head in range(heads):
            k, v = (each[head // (heads // groups), seen_keys] for each in (key, value))
            expected[head, run.begin + row] = torch.softmax(k @ query[head, run.begin + row], -1) @ v
    torch.testing.assert_close(out, expected)


@pytest.mark.gpu
@pytest.mark.parametrize(("depth", "seen", "heads", "groups"), [(128, 300, 6, 2), (96, 512, 2, 2), (256, 1000, 4, 1)])
def test_queries_of_a_window_have_the_bytes_of_each_alone(
    monkeypatch: pytest.MonkeyPatch, depth: int, seen: int, heads: int, groups: int
) -> None:
    together: list[bool] = []
    real = attention_module._residues

    def noted(*given: Any) -> bool:
        together.append(real(*given))
        return together[-1]

    monkeypatch.setattr(attention_module, "_residues", noted)
    monkeypatch.setattr(attention_module, "_STREAMED", 1.0)
    attention, tokens = torch.nn.functional.scaled_dot_product_attention, 1800
    q = tensor(1, heads, tokens, depth, device="cuda")
    k, v = (tensor(1, groups, tokens, depth, device="cuda", seed=seed) for seed in (1, 2))
    mask = window_of(tokens, tokens, seen, "cuda")
    with batch_invariant(strict=True):
        found = attention(q, k, v, attn_mask=mask, enable_gqa=True)
        for row in (0, seen - 1, seen, seen + 1, 900, 1311, 1312, 1799):
            keys = slice(max(0, row + 1 - seen), row + 1)
            alone = attention(q[:, :, row : row + 1], k[:, :, keys], v[:, :, keys], enable_gqa=True)
            assert torch.equal(alone, found[:, :, row : row + 1]), row
    assert together
    assert all(together)


def test_a_linear_layer_has_the_bytes_of_a_product_and_a_sum() -> None:
    """PyTorch's layers call either, which depends on the strides of their input, and these on the batch."""
    hidden = tensor(3, 4, K, device="cpu")
    layer = torch.nn.Linear(K, N, dtype=hidden.dtype)
    with batch_invariant(strict=True), torch.no_grad():
        last = layer(hidden[:, -1:])  # not contiguous
        assert torch.equal(last, layer(hidden[:, -1:].contiguous()))
        assert torch.equal(last[:1], layer(hidden[:1, -1:]))
        assert torch.equal(last, hidden[:, -1:] @ layer.weight.t() + layer.bias)


@pytest.mark.gpu
def test_a_cuda_graph_that_is_captured_in_the_mode_has_its_bytes() -> None:
    layer = torch.nn.Linear(K, N, device="cuda", dtype=torch.bfloat16)
    x = tensor(5, K, device="cuda")

    def run() -> Any:
        return torch.softmax(layer(x) @ layer.weight, -1).float().mean(-1, keepdim=True)

    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with batch_invariant(strict=True), torch.no_grad(), torch.cuda.stream(stream):
        wanted = run()
        assert torch.equal(run(), wanted)
        with torch.cuda.graph(graph, stream=stream):
            found = run()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(found, wanted)


def test_compiled_functions_run_eagerly_in_the_mode() -> None:
    """Kernels that a compiler generates have another order; modes of two threads end apart."""
    compiled = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    def softmax_by_mean(x: Any) -> Any:
        return torch.softmax(x, -1) / x.mean(-1, keepdim=True)

    normalised = torch.compile(softmax_by_mean, backend=backend, fullgraph=True)

    def other_thread() -> None:
        with batch_invariant(other_threads="ignore"):
            entered.set()
            ended.wait()

    x, entered, ended = torch.randn(3, 40), threading.Event(), threading.Event()
    thread = threading.Thread(target=other_thread)
    with batch_invariant(strict=True, other_threads="ignore"):
        thread.start()
        entered.wait()
        assert torch.equal(normalised(x)[:1], normalised(x[:1]))
    normalised(x)
    assert not compiled  # the other thread's mode is active
    ended.set()
    thread.join()
    normalised(x)
    assert len(compiled) == 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_no_byte_in_the_mode(reentrant: bool) -> None:
    def gradients(checkpointed: bool) -> list[Any]:
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.RMSNorm(24), torch.nn.Linear(24, 16)).bfloat16()
        x = torch.randn(5, 16, dtype=torch.bfloat16, requires_grad=True)
        run = torch.utils.checkpoint.checkpoint if checkpointed else lambda function, x, **_: function(x)
        y = run(layers, x, use_reentrant=reentrant)
        torch.nn.functional.cross_entropy(y.float(), torch.arange(5)).backward()
        return [x.grad, *(each.grad for each in layers.parameters())]

    with batch_invariant():
        plain, again = gradients(False), gradients(True)
    assert all(torch.equal(one, other) for one, other in zip(plain, again, strict=True))


def test_equal_numbers_are_chosen_in_the_order_of_their_places() -> None:
    with batch_invariant():
        values, places = torch.topk(torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0]]), 4)
    assert places.tolist() == [[1, 2, 4, 3]]
    assert values.tolist() == [[3.0, 3.0, 3.0, 2.0]]


def test_outputs_that_are_given_are_filled() -> None:
    x = tensor(4, K, device="cpu")
    weight, out = fixed(K, N, like=x), torch.empty(4, N, dtype=x.dtype)
    with batch_invariant(strict=True):
        assert torch.mm(x, weight, out=out) is out
        assert torch.equal(out, x @ weight)
        sums = torch.empty(4, dtype=x.dtype)
        assert torch.sum(x, -1, out=sums) is sums
        assert torch.equal(sums, x.sum(-1))
        squares = x[:, :4].clone()
        assert torch.equal(torch.mm(squares, squares, out=squares.clone()), squares @ squares)
