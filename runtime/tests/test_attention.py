"""Attention of tensors on a CPU: forms with one descriptor's bits, masks, refused arguments, traces."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_core.descriptors import (
    AttentionDesc,
    AttentionGradientDesc,
    DescriptorError,
    GEMMDesc,
    Instruction,
    index_bits,
)
from bitwise_core.descriptors.hardware import Hardware
from bitwise_core.numerics.mma import FusedSum, MmaSpec
from bitwise_core.plugins import registry
from bitwise_core.plugins.attention_calls import AttentionForm, AttentionGradientTensors, AttentionOperands
from bitwise_core.plugins.installed import evaluate
from bitwise_torch import (
    AttentionError,
    attention,
    attention_calls,
    attention_descriptor,
    attention_paged,
    attention_varlen,
    ready_launches,
    register_attention,
)
from bitwise_torch.ready_launches import ReadyLaunches

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


LOG2_E = 1.4426950408889634


def product(k: int) -> GEMMDesc:
    return GEMMDesc(k=k, left_dtype="fp16", right_dtype="fp16", output_dtype="fp32", path="fma")


class Toy:
    """A launcher of fp16 whose exponential is a negation, so that every operation is one of IEEE 754."""

    name = "toy_attention"

    def missing(self) -> str | None:
        return "it has no device"

    def launch(self, desc: Any, *operands: Any) -> Any:
        raise DescriptorError("it has no device")

    def attention_descriptor(self, form: AttentionForm) -> AttentionDesc:
        if form.dtype != "fp16":
            raise DescriptorError(f"toy has no kernel of {form.dtype}: convert to fp16")
        return AttentionDesc(
            key_block=4, masking="causal" if form.causal else "none", mask_value=-math.inf, window=form.window, chunk=8,
            sink=form.sink, scores=product(form.depth), score_scale=float(torch.tensor(form.scale * LOG2_E)),
            row_sum=index_bits(4), probabilities_dtype="fp16", values=product(4), exponential="toy_power",
            output_dtype="fp16", stored_dtype=form.stored,
            output_scale=None if form.stored is None else float(torch.tensor(form.output_scale)),
        )  # fmt: skip

    def attention_gradient_descriptor(self, form: AttentionForm) -> AttentionGradientDesc:
        return AttentionGradientDesc(
            dtype="fp16", masking="causal" if form.causal else "none", window=form.window, scores=product(form.depth),
            score_scale=float(torch.tensor(form.scale * LOG2_E)), exponential="toy_power", slopes=product(form.width),
            row_products=index_bits(form.width, padding="zero"), scale=float(torch.tensor(form.scale)),
            unit=Instruction(architecture="toy", family="mma", k=4),
        )  # fmt: skip

    def attend_gradients(
        self, desc: AttentionGradientDesc, operands: AttentionOperands, gradients: AttentionGradientTensors
    ) -> None:
        raise DescriptorError("it has no device")

    def serves_attention(self, desc: AttentionDesc, device: Any) -> bool:
        return False

    def attend(self, desc: AttentionDesc, operands: AttentionOperands) -> None:
        raise DescriptorError("it has no device")


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    def power(bits: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.exp2(bits.view(np.float32)).view(np.uint32)

    found = replace(registry.default(), launchers=(Toy(),))
    step = MmaSpec(
        "toy",
        "mma",
        "fp16",
        "fp16",
        "fp32",
        "fp32",
        4,
        FusedSum(4, 25, 23, "rz"),
        "published only",
        "https://example.org",
    )
    hardware = Hardware({step.name: step}, {"toy_power": power})
    monkeypatch.setattr(type(found), "hardware", property(lambda self: hardware))
    monkeypatch.setattr(registry, "default", lambda: found)


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


def operands() -> tuple[Any, Any, Any]:
    """Return queries (2, 4, 3, 8), keys (2, 2, 19, 8) and values (2, 2, 19, 6)."""
    return normal(2, 4, 3, 8), normal(2, 2, 19, 8, seed=1), normal(2, 2, 19, 6, seed=2)


def test_a_head_has_the_bytes_of_its_descriptor() -> None:
    q, k, v = operands()
    found = attention(q, k, v, enable_gqa=True)
    desc = attention_descriptor(q, k, v)
    expected = evaluate(desc, *(each.numpy() for each in (q[1, 3], k[1, 1], v[1, 1])))
    assert found.shape == (2, 4, 3, 6)
    assert found[1, 3].numpy().tobytes() == expected.tobytes()
    assert attention(q[1], k[1], v[1], enable_gqa=True).equal(found[1])


def test_causal_forms_agree() -> None:
    """A bias, a boolean mask, variable lengths and pages have the bits of one row each."""
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    q, k, v = operands()
    expected, logarithms = attention(q, k, v, causal_lower_right(3, 19), enable_gqa=True, logarithms=True)
    seen = torch.ones(3, 19, dtype=torch.bool).tril(16)
    assert attention(q, k, v, seen, enable_gqa=True).equal(expected)
    first = attention(q, k, v, is_causal=True, enable_gqa=True)
    assert attention(q, k, v, causal_upper_left(3, 19), enable_gqa=True).equal(first)
    assert not first.equal(expected)
    assert first.equal(attention(q, k[:, :, :3], v[:, :, :3], is_causal=True, enable_gqa=True))
    rows = [each.transpose(1, 2).flatten(0, 1) for each in (q, k, v)]
    starts = [torch.tensor([0, count, 2 * count], dtype=torch.int32) for count in (3, 19)]
    packed, found = attention_varlen(*rows, *starts, 3, 19, is_causal=True, logarithms=True)
    assert packed.unflatten(0, (2, 3)).transpose(1, 2).equal(expected)
    assert found.unflatten(0, (2, 3)).transpose(1, 2).equal(logarithms)
    table = torch.tensor([[2, 0], [3, 1]], dtype=torch.int32)
    pages = []
    for each in (k, v):
        padded = torch.nn.functional.pad(each, (0, 0, 0, 13)).unflatten(2, (2, 16)).permute(0, 2, 3, 1, 4)
        pool = torch.full((4, *padded.shape[2:]), math.nan, dtype=torch.float16)
        pool[table.long()] = padded
        pages.append(pool)
    lengths = torch.tensor([19, 19], dtype=torch.int32)
    assert attention_paged(q.transpose(1, 2), *pages, table, lengths).transpose(1, 2).equal(expected)
    ragged = attention_paged(rows[0], *pages, table, lengths, query_starts=starts[0], longest_queries=3)
    assert ragged.equal(packed)


def test_pages_of_fp8_have_the_bytes_of_their_numbers() -> None:
    """The scale of keys is part of that of scores, and that of values multiplies the output before it is rounded."""
    q = normal(2, 3, 4, 8)
    keys, values = (normal(4, 16, 2, width, seed=width).to(torch.float8_e4m3fn) for width in (8, 6))
    table = torch.tensor([[2, 0], [3, 1]], dtype=torch.int32)
    lengths = torch.tensor([19, 0], dtype=torch.int32)
    half = attention_paged(q, keys.half(), values.half(), table, lengths, scale=0.125)
    found = attention_paged(q, keys, values, table, lengths, scale=0.25, key_scale=0.5)
    assert found.equal(half)
    double, logarithms = attention_paged(q, keys, values, table, lengths, scale=0.125, value_scale=2.0, logarithms=True)
    assert double.equal(2 * half)
    assert (logarithms[1] == -math.inf).all()
    with pytest.raises(AttentionError, match=r"and torch\.float16: give one type, or pages of float8_e4m3"):
        attention_paged(q, keys, values.half(), table, lengths)
    with pytest.raises(AttentionError, match="key_scale is 'x': give a number"):
        attention_paged(q, keys, values, table, lengths, key_scale="x")  # type: ignore[arg-type]
    with pytest.raises(AttentionError, match=r"float8_e4m3fn: give one type$"):
        attention(q[0], keys[0], values[0], enable_gqa=True)


def test_sums_begin_after_the_first_keys() -> None:
    """Keys before the first one are no part of a sequence, whatever they hold."""
    q, k, v = operands()
    first = torch.tensor([3, 19], dtype=torch.int32)
    seen = torch.ones(2, 1, 3, 19, dtype=torch.bool).tril(16)
    k[0, :, :3], v[0, :, :3] = math.nan, math.inf
    found, logarithms = attention(q, k, v, seen, first_keys=first, enable_gqa=True, logarithms=True)
    alone = attention(q[:1], k[:1, :, 3:], v[:1, :, 3:], seen[:1, ..., 3:], enable_gqa=True)
    assert found[:1].equal(alone)
    assert not found[1].any()
    assert (logarithms[1] == -math.inf).all()
    with pytest.raises(AttentionError, match="gradients of attention with a boolean mask are not served"):
        attention(q.requires_grad_(), k, v, seen, first_keys=first, enable_gqa=True)


def test_rows_without_keys_are_zeros() -> None:
    q, k, v = operands()
    none = torch.zeros(1, 1, 3, 19, dtype=torch.bool)
    for out, logarithms in (
        attention(q, k, v, none, enable_gqa=True, logarithms=True),
        attention(q, k[:, :, :0], v[:, :, :0], enable_gqa=True, logarithms=True),
    ):
        assert out.eq(0).all()
        assert logarithms.eq(-math.inf).all()


def test_sinks_take_part_in_the_denominator() -> None:
    q, k, v = operands()
    sinks = torch.tensor([0.0, 1.0, -math.inf, 2.0])
    found = attention(q, k, v, is_causal=True, enable_gqa=True, sinks=sinks)
    plain = attention(q, k, v, is_causal=True, enable_gqa=True)
    assert found[:, 2].equal(plain[:, 2])
    assert (found[:, 0].abs() < plain[:, 0].abs()).all()
    assert attention(q, k[:, :, :0], v[:, :, :0], enable_gqa=True, sinks=sinks).eq(0).all()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dropout_p": 0.5}, r"dropout_p is 0\.5: give 0\.0"),
        ({"enable_gqa": False}, "query has 4 heads, and key has 2: give enable_gqa=True"),
        ({"attn_mask": torch.zeros(3, 19)}, "attn_mask is of torch.float32, and a bias that is added to scores"),
        ({"attn_mask": torch.zeros(4, 19, dtype=torch.bool)}, r"attn_mask has the shape \(4, 19\): give one that"),
        ({"attn_mask": torch.zeros(3, 19, dtype=torch.bool), "is_causal": True}, "are both given: give one"),
        ({"query": normal(2, 3, 3, 8)}, "query has 3 heads, key 2 and value 2: give key and value as many"),
        ({"query": normal(2, 4, 3, 7)}, "query has 7 components and key 8: give as many"),
        ({"query": normal(3, 4, 3, 8)}, "query has a batch of 3, and key one of 2"),
        ({"query": normal(2, 4, 3, 8).bfloat16()}, "are of torch.bfloat16, torch.float16 and torch.float16: give one"),
        ({"query": normal(3, 8)}, "query, key and value have 2, 4 and 4 axes"),
        ({"value": normal(2, 2, 18, 6)}, "there are 19 keys and 18 values"),
        ({"key": [1.0]}, "key is a list; give a tensor"),
        ({"key": torch._neg_view(normal(2, 2, 19, 8))}, r"key is a lazily negated view: give key\.resolve_neg\(\)"),
        ({"sinks": torch.zeros(3)}, r"sinks is of torch\.float32 \(3,\): give float32 \(4,\)"),
        (
            {"first_keys": torch.zeros(2).int()},
            "first_keys is given without a boolean attn_mask: give the mask as well",
        ),
        (
            {"first_keys": torch.zeros(3).int(), "attn_mask": torch.ones(3, 19, dtype=torch.bool)},
            "first_keys has 3 elements, and query a batch of 2",
        ),
        (
            {"first_keys": torch.zeros(2), "attn_mask": torch.ones(3, 19, dtype=torch.bool)},
            r"first_keys is of torch\.float32 with 1 axes: give int32 with 1",
        ),
        ({"window": 4}, "a window is the number of keys up to a causal query's own: give is_causal=True"),
        ({"window": 2.5, "is_causal": True}, r"window is 2\.5: give a number of keys, an integer"),
        ({"scale": "half"}, "scale is 'half': give a number"),
        ({"soft_cap": torch.ones(2)}, r"soft_cap is tensor\(\[1., 1.\]\): give a number"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(changes: dict[str, Any], sentence: str) -> None:
    query, key, value = operands()
    with pytest.raises(AttentionError, match=sentence):
        attention(**{"query": query, "key": key, "value": value, "enable_gqa": True, **changes})


def test_a_repeated_call_is_launched_by_the_addresses_of_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """All memory is aligned alike, as on a GPU."""
    launches: list[tuple[int, ...]] = []

    def aligned(shape: Any, dtype: Any) -> Any:
        memory = torch.zeros(math.prod(shape) + 256, dtype=dtype)
        start = -memory.data_ptr() % 512 // memory.element_size()
        return memory[start : start + math.prod(shape)].view(shape)

    def run(call: Any, form: Any, logarithms: bool = True) -> Any:
        out = aligned((*call.query.shape[:-1], form.width), call.query.dtype)
        return out, None, lambda *addresses: launches.append(addresses)

    monkeypatch.setattr(attention_calls, "run", run)
    monkeypatch.setattr(attention_calls, "READY", ReadyLaunches())
    monkeypatch.setattr(
        ready_launches, "output_allocator",
        lambda out: lambda _: aligned(out.transpose(1, 2).shape, out.dtype).transpose(1, 2),
    )  # fmt: skip

    def call(**options: Any) -> tuple[Any, tuple[int, ...]]:
        tensors = [aligned(each.shape, each.dtype) for each in operands()]
        out = attention(*tensors, enable_gqa=True, **options)
        return out, tuple(each.data_ptr() for each in (*tensors, out))

    first, _ = call()
    second, addresses = call()
    assert launches == [addresses]
    assert (second.shape, second.stride(), second.dtype) == (first.shape, first.stride(), first.dtype)
    # Other options, a number that may change in place and recorded tensors have launches of their own.
    call(is_causal=True)
    for _ in range(2):
        call(scale=torch.tensor(0.5))
    assert len(launches) == 1


def test_a_type_without_a_kernel_is_refused_with_the_sentence_of_its_plugin() -> None:
    with pytest.raises(AttentionError, match="toy has no kernel of bf16: convert to fp16"):
        attention(*(each.bfloat16() for each in operands()), enable_gqa=True)


def test_other_forms_refuse_what_does_not_fit() -> None:
    q, k, v = (each.transpose(1, 2) for each in operands())
    lengths, table = torch.tensor([19, 19], dtype=torch.int32), torch.zeros(2, 2, dtype=torch.int32)
    with pytest.raises(AttentionError, match="pages of 19 keys are not served: give pages of 16, 32"):
        attention_paged(q, k, v, table, lengths)
    with pytest.raises(AttentionError, match="page_table has 1 rows and key_lengths 2 elements"):
        attention_paged(q, k[:, :16], v[:, :16], table[:1], lengths)
    with pytest.raises(AttentionError, match=r"key_lengths is of torch\.int64 with 1 axes: give int32 with 1"):
        attention_paged(q, k[:, :16], v[:, :16], table, lengths.long())
    with pytest.raises(AttentionError, match="query_starts has 3 elements and key_starts 2"):
        attention_varlen(q[0], k[0], v[0], torch.zeros(3, dtype=torch.int32), torch.zeros(2, dtype=torch.int32), 3, 19)


def test_a_trace_has_one_operator() -> None:
    q, k, v = operands()
    graphs = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    def function(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, is_causal=True, enable_gqa=True)

    compiled = torch.compile(function, fullgraph=True, backend=keep)
    assert compiled(q, k, v).equal(function(q, k, v))
    assert sum("attention" in name for name in graphs[0]) == 1


def test_models_of_transformers_have_it_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The masks of "sdpa" are boolean, or None where causal or whole."""
    registered: dict[str, Any] = {}
    masks = SimpleNamespace(
        AttentionMaskInterface=SimpleNamespace(register=lambda name, each: registered.update(mask=each)),
        sdpa_mask="the masks of sdpa",
    )
    interface = SimpleNamespace(register=lambda name, each: registered.update({name: each}))
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AttentionInterface=interface))
    monkeypatch.setitem(sys.modules, "transformers.masking_utils", masks)
    register_attention()
    assert registered["mask"] == "the masks of sdpa"
    called, module = registered["bitwise"], SimpleNamespace(is_causal=True)
    q, k, v = operands()
    seen = torch.ones(2, 1, 3, 21, dtype=torch.bool).tril(16)
    out, weights = called(module, q, k, v, seen, scaling=0.25, sliding_window=None, position_ids=None)
    assert weights is None
    assert out.transpose(1, 2).equal(attention(q, k, v, seen[..., :19], scale=0.25, enable_gqa=True))
    out, _ = called(module, q, k, v, None)
    assert out.transpose(1, 2).equal(attention(q, k, v, is_causal=True, enable_gqa=True))
    out, _ = called(module, q[:, :, :1], k, v, None, s_aux=torch.ones(4).half())
    assert out.transpose(1, 2).equal(attention(q[:, :, :1], k, v, enable_gqa=True, sinks=torch.ones(4)))
    with pytest.raises(AttentionError, match=r"dropout_p is 0\.1: give 0\.0, or call eval\(\) on the model"):
        called(module, q, k, v, None, dropout=0.1)


def test_gradients_are_those_of_the_softmax() -> None:
    """They are near those of PyTorch in double precision; each row of the gradient of the query has its own bits."""
    q, k, v = (each.requires_grad_() for each in operands())
    slope = normal(2, 4, 3, 6, seed=3)
    attention(q, k, v, is_causal=True, enable_gqa=True).backward(slope)
    wide = [each.detach().double().requires_grad_() for each in (q, k, v)]
    torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True, enable_gqa=True).backward(slope.double())
    for each, other in zip((q, k, v), wide, strict=True):
        assert each.grad is not None
        assert other.grad is not None
        assert (each.grad - other.grad).abs().max() < 0.01
    one = [each.detach()[:, :2, 2:] if index == 0 else each.detach()[:, :1, :3] for index, each in enumerate((q, k, v))]
    one[0].requires_grad_()
    attention(*one, enable_gqa=True).backward(slope[:, :2, 2:])
    assert one[0].grad is not None
    assert one[0].grad.equal(q.grad[:, :2, 2:])


def test_gradients_of_variable_lengths_are_those_of_each_sequence() -> None:
    q, k, v = (each.transpose(1, 2).flatten(0, 1).requires_grad_() for each in operands())
    starts = [torch.tensor([0, count, 2 * count], dtype=torch.int32) for count in (3, 19)]
    slope = normal(6, 4, 6, seed=3)
    attention_varlen(q, k, v, *starts, 3, 19, is_causal=True).backward(slope)
    from torch.nn.attention.bias import causal_lower_right

    alone = [each[3:6] if each is q else each[19:] for each in (q, k, v)]
    alone = [each.detach()[None].transpose(1, 2).requires_grad_() for each in alone]
    out = attention(*alone, causal_lower_right(3, 19), enable_gqa=True)
    out.backward(slope[3:6][None].transpose(1, 2))
    for each, other, rows in zip((q, k, v), alone, (3, 19, 19), strict=True):
        assert each.grad[rows:].equal(other.grad[0].transpose(0, 1))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"attn_mask": torch.ones(3, 19, dtype=torch.bool)},
            "gradients of attention with a boolean mask are not served",
        ),
        ({"soft_cap": 2.0}, "gradients of attention with a soft cap are not served"),
        ({"sinks": torch.zeros(4, requires_grad=True)}, r"the gradient of sinks is not served: give sinks\.detach\(\)"),
    ],
)
def test_gradients_that_are_not_served_are_refused(changes: dict[str, Any], sentence: str) -> None:
    query, key, value = operands()
    with pytest.raises(AttentionError, match=sentence):
        attention(query.requires_grad_(), key, value, enable_gqa=True, **changes)


@pytest.mark.parametrize(("changed", "read"), [(None, 2), (1, 4), (3, 4)])
def test_repeated_heads_are_read_once_under_a_window(
    monkeypatch: pytest.MonkeyPatch, changed: int | None, read: int
) -> None:
    """As a module of transformers repeats them; heads that differ in a bit are read on their own."""
    from bitwise_torch.batch_invariance import attention as invariant

    length, seen = 14, 5
    q, k, v = normal(2, 4, length, 8), normal(2, 2, length, 8, seed=1), normal(2, 2, length, 6, seed=2)
    behind = torch.arange(length)[:, None] - torch.arange(length)
    window = (behind >= 0) & (behind < seen)
    keys, values = (each.repeat_interleave(2, 1) for each in (k, v))
    keys[0, :, 3, 2] = 0.0
    if changed is not None:
        keys[0, changed, 3, 2] = -0.0
    alone = [
        invariant.attention(q[:, h : h + 1], keys[:, h : h + 1], values[:, h : h + 1], attn_mask=window)
        for h in range(4)
    ]  # fmt: skip
    groups: set[int] = set()
    by_kernels = invariant._by_kernels

    def counted(query: Any, key: Any, *rest: Any) -> Any:
        groups.add(int(key.shape[1]))
        return by_kernels(query, key, *rest)

    monkeypatch.setattr(invariant, "_by_kernels", counted)
    found = invariant.attention(q, keys, values, attn_mask=window)
    assert groups == {read}
    assert torch.equal(found.view(torch.int16), torch.cat(alone, 1).view(torch.int16))
