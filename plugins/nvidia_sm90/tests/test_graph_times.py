"""Times of graphs in turn: every graph is the first one of a round as often as another, and medians count."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_nvidia_sm90.gemm.graph_times import LaunchGraph, captured, times_in_turn


@dataclass
class Device:
    """A device whose clock falls with every replay of a round's first graphs, down to half."""

    order: list[str] = field(default_factory=list)

    def graph(self, name: str, given: float) -> LaunchGraph:
        device = self

        class Recorded(LaunchGraph):
            def microseconds(self, replays: int = 3) -> float:
                device.order.append(name)
                return given * len(device.order)

        return Recorded(None, 1)


@pytest.mark.parametrize("rounds", [1, 2, 3, 5])
def test_every_round_runs_every_graph_and_starts_at_another_one(rounds: int) -> None:
    device = Device()
    names = "abcde"
    found = times_in_turn({each: device.graph(each, 1.0) for each in names}, rounds)
    runs = ["".join(device.order[start : start + 5]) for start in range(0, 5 * rounds, 5)]
    assert [sorted(each) for each in runs] == [list(names)] * rounds
    assert len({each[0] for each in runs}) == rounds
    assert list(found) == list(names)
    ticks = {name: [place + 1 for place, each in enumerate(device.order) if each == name] for name in names}
    assert found == {name: sorted(each)[rounds // 2] for name, each in ticks.items()}


@dataclass
class FakeGPU:
    """What capturing a graph calls of PyTorch, in order."""

    calls: list[str] = field(default_factory=list)

    def graph(self) -> Any:
        return SimpleNamespace(
            capture_begin=lambda *pool, **given: self.calls.append(f"begin {given['capture_error_mode']} {pool}"),
            capture_end=lambda: self.calls.append("end"),
        )

    @contextmanager
    def stream(self, given: str) -> Iterator[None]:
        self.calls.append(f"on {given}")
        yield
        self.calls.append(f"off {given}")

    def module(self) -> Any:
        # No `empty_cache`: a call of it is an error.
        cuda = SimpleNamespace(
            CUDAGraph=self.graph, synchronize=lambda: self.calls.append("synchronize"), current_device=lambda: 7,
            stream=self.stream, Stream=lambda device: f"stream of {device}",
        )  # fmt: skip
        return SimpleNamespace(cuda=cuda)


def test_a_graph_is_captured_on_a_stream_of_its_own_and_nothing_else_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeGPU()
    monkeypatch.setitem(sys.modules, "torch", fake.module())
    for pool, shared in ((None, "()"), ("memory", "('memory',)")):
        fake.calls.clear()
        captured(lambda: fake.calls.append("launch"), 2, pool)
        wanted = ["synchronize", "on stream of 7", f"begin thread_local {shared}", "launch", "launch", "end"]
        assert fake.calls == [*wanted, "off stream of 7"]


def test_a_capture_ends_where_a_launch_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeGPU()
    monkeypatch.setitem(sys.modules, "torch", fake.module())

    def launch() -> None:
        raise RuntimeError("no launch")

    with pytest.raises(RuntimeError, match="no launch"):
        captured(launch, 2)
    assert fake.calls[-2:] == ["begin thread_local ()", "end"]
