"""Launches that run together leave what each leaves alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from toy_texts import launch, row_sum

from bitwise_core.checker.analysis import Options, Source, prepare
from bitwise_core.execution.concrete import LANES_PER_BATCH, PreparedLaunch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate, simulate_batch
from bitwise_core.plugins import registry

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")


def kernel() -> PreparedLaunch:
    source = Source("a", row_sum(), Launch.model_validate(launch("a.ptx")))
    return prepare(source, registry.default().arch("sm_90"), Options(audit_contraction=False))


def drawn(seed: int, rows: int = 4) -> dict[str, npt.NDArray[np.uint8]]:
    generator = np.random.default_rng(seed)
    return {name: generator.integers(0, 256, rows * size, dtype=np.uint8) for name, size in (("X", 256), ("Y", 4))}


@pytest.mark.parametrize("lanes", [LANES_PER_BATCH, 96])
def test_every_launch_leaves_what_it_leaves_alone(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Batches of three blocks hold blocks of several launches and cut others in two.
    monkeypatch.setattr("bitwise_core.execution.simulation.LANES_PER_BATCH", lanes)
    contents = [drawn(seed) for seed in range(5)]
    together = [dict(one.after) for one in simulate_batch(kernel(), contents)]
    alone = [dict(simulate(kernel(), one).after) for one in contents]
    assert [{name: bits.tobytes() for name, bits in one.items()} for one in together] == [
        {name: bits.tobytes() for name, bits in one.items()} for one in alone
    ]
    assert len({one["Y"].tobytes() for one in together}) == 5


def test_some_blocks_of_every_launch() -> None:
    contents = [drawn(seed) for seed in range(3)]
    for found, before in zip(simulate_batch(kernel(), contents, blocks=[2]), contents, strict=True):
        changed = found.after["Y"].view(np.uint32) != before["Y"].view(np.uint32)
        assert changed.tolist() == [False, False, True, False]


def test_an_access_beyond_a_buffer_is_none_of_the_next_launch() -> None:
    contents = [drawn(seed, rows=3) for seed in range(3)]
    with pytest.raises(Unsupported, match="holds 768 bytes and is read at byte"):
        simulate_batch(kernel(), contents)
    ends = simulate_batch(kernel(), contents, open_ended=True)
    nothing = np.zeros(64, dtype=np.float32)
    for found, before in zip(ends, contents, strict=True):
        sizes = {name: bits.size for name, bits in found.after.items()}
        assert sizes == {"X": 1024, "Y": 16}
        assert found.after["X"][:768].tobytes() == before["X"].tobytes()
        assert found.after["Y"].view(np.float32)[3] == nothing.sum()


def test_launches_of_other_buffers_do_not_run_together() -> None:
    with pytest.raises(ValueError, match="different sizes"):
        simulate_batch(kernel(), [drawn(1), drawn(2, rows=5)])


def test_a_launch_beyond_counting_is_not_run() -> None:
    source = Source("a", row_sum(), Launch.model_validate({**launch("a.ptx"), "grid": [2**31 - 1, 2**31 - 1]}))
    ready = prepare(source, registry.default().arch("sm_90"), Options(audit_contraction=False))
    with pytest.raises(Unsupported, match="a launch of more than 67108864 blocks is not run here"):
        simulate(ready, drawn(0))
