"""Simulation of several launches in one batch: the same bytes as each launch alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from toy_texts import launch, row_sum

from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.concrete import LANES_PER_BATCH, PreparedLaunch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate, simulate_batch
from bitwise_core.plugins import registry

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")


def kernel() -> PreparedLaunch:
    source = Source("a", row_sum(), Launch.model_validate(launch("a.ptx")))
    return prepare(source, registry.default().arch("sm_90"), Options(audit_contraction=False))


def random_contents(seed: int, rows: int = 4) -> dict[str, npt.NDArray[np.uint8]]:
    generator = np.random.default_rng(seed)
    return {name: generator.integers(0, 256, rows * size, dtype=np.uint8) for name, size in (("X", 256), ("Y", 4))}


@pytest.mark.parametrize("lanes", [LANES_PER_BATCH, 96])
def test_a_batch_of_launches_returns_the_bytes_of_each_launch(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # With 96 lanes a batch has three blocks, so batches mix launches and split one.
    monkeypatch.setattr("bitwise_core.execution.concrete.LANES_PER_BATCH", lanes)
    contents = [random_contents(seed) for seed in range(5)]
    batched = [dict(one.after) for one in simulate_batch(kernel(), contents)]
    alone = [dict(simulate(kernel(), one).after) for one in contents]
    assert [{name: bits.tobytes() for name, bits in one.items()} for one in batched] == [
        {name: bits.tobytes() for name, bits in one.items()} for one in alone
    ]
    assert len({one["Y"].tobytes() for one in batched}) == 5


def test_selected_blocks_run_in_every_launch() -> None:
    contents = [random_contents(seed) for seed in range(3)]
    for found, before in zip(simulate_batch(kernel(), contents, blocks=[2]), contents, strict=True):
        changed = found.after["Y"].view(np.uint32) != before["Y"].view(np.uint32)
        assert changed.tolist() == [False, False, True, False]


def test_an_access_out_of_bounds_does_not_reach_the_next_launch() -> None:
    contents = [random_contents(seed, rows=3) for seed in range(3)]
    with pytest.raises(Unsupported, match="holds 768 bytes and is read at byte"):
        simulate_batch(kernel(), contents)
    extended = simulate_batch(kernel(), contents, open_ended=True)
    nothing = np.zeros(64, dtype=np.float32)
    for found, before in zip(extended, contents, strict=True):
        sizes = {name: bits.size for name, bits in found.after.items()}
        assert sizes == {"X": 1024, "Y": 16}
        assert found.after["X"][:768].tobytes() == before["X"].tobytes()
        assert found.after["Y"].view(np.float32)[3] == nothing.sum()


def test_launches_with_different_buffer_sizes_are_rejected() -> None:
    with pytest.raises(ValueError, match="must have buffers of the same sizes"):
        simulate_batch(kernel(), [random_contents(1), random_contents(2, rows=5)])


def test_a_launch_with_too_many_blocks_is_unsupported() -> None:
    source = Source("a", row_sum(), Launch.model_validate({**launch("a.ptx"), "grid": [2**31 - 1, 2**31 - 1]}))
    ready = prepare(source, registry.default().arch("sm_90"), Options(audit_contraction=False))
    with pytest.raises(Unsupported, match="a launch of more than 67108864 blocks is not simulated"):
        simulate(ready, random_contents(0))


STORES = """.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
.reqntid 64
{{
.reg .pred %p<3>; .reg .b64 %d<9>; .reg .b32 %r<9>; .shared .align 16 .b8 room[512];
ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 4; add.s64 %d4, %d2, %d3;
xor.b32 %r2, %r1, 32; mul.wide.u32 %d5, %r2, 4; add.s64 %d6, %d2, %d5;
{body}
ret;
}}
"""
RACES = {
    "two threads store different numbers": ("and.b32 %r3, %r1, 31; mad.wide.u32 %d4, %r3, 4, %d2;", "store different"),
    "a thread stores a half of what another stores": ("st.global.u16 [%d6+2], 99;", "store different"),
    "a thread reads what another stores": ("ld.global.u32 %r4, [%d6]; mov.u32 %r1, %r4;", "reads global memory"),
    "a number that nothing wrote": (
        "mov.u64 %d7, room; add.s64 %d7, %d7, %d3; ld.shared.u32 %r1, [%d7];", "that nothing wrote"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_what_a_launch_leaves_is_checked(name: str) -> None:
    arguments = [{"buffer": each, "dtype": "u32"} for each in "XY"]
    given = {"file": "k.ptx", "entry": "k", "grid": [1], "block": [64], "args": arguments}
    contents = {each: np.zeros(256, dtype=np.uint8) for each in "XY"}
    before, reason = RACES[name]

    def run(body: str) -> bytes:
        source = Source("k", STORES.format(body=body), Launch.model_validate(given))
        ready = prepare(source, registry.default().arch("sm_90"), Options(audit_contraction=False))
        return simulate(ready, contents).after["Y"].tobytes()

    store = "st.global.u32 [%d4], %r1;"
    assert run(store) == np.arange(64, dtype=np.uint32).tobytes()
    with pytest.raises(Unsupported, match=reason):
        run(f"{before}\n{store}")
