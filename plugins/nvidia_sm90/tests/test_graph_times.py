"""Times of graphs in turn: every graph is the first one of a round as often as another, and medians count."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from bitwise_nvidia_sm90.gemm.graph_times import LaunchGraph, times_in_turn


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
