"""Times of launches on a GPU: consecutive launches in CUDA graphs, in microseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

_MILLISECONDS = 2.0
"""The time of the launches of a graph, unless their number is bounded."""
_FEWEST = 2
_TRIALS = 3
"""The launches of which the fastest decides how many a graph has."""
_REPLAYS = 3
"""The replays of which a time in turn is the median."""


@dataclass(frozen=True, slots=True)
class LaunchGraph:
    """A CUDA graph of `count` consecutive launches."""

    graph: Any
    count: int

    def microseconds(self, replays: int = _REPLAYS) -> float:
        """Return the time of one launch: the median over replays, after one more to warm up."""
        import torch

        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(replays)]
        self.graph.replay()
        for start, end in events:
            start.record()
            self.graph.replay()
            end.record()
        torch.cuda.synchronize()
        return float(sorted(start.elapsed_time(end) for start, end in events)[replays // 2] * 1000 / self.count)


def launch_graphs(launches: Mapping[str, Callable[[], Any]], most: int = 20) -> dict[str, LaunchGraph]:
    """Return the graphs of launches by name; see `launch_graph`.

    They allocate from the same memory, so that one at a time may run, and no launch may use what another one returned.
    """
    import torch

    pool = torch.cuda.graph_pool_handle()
    return {name: launch_graph(each, most, pool) for name, each in launches.items()}


def launch_graph(launch: Callable[[], Any], most: int = 20, pool: Any = None) -> LaunchGraph:
    """Return a CUDA graph of about two milliseconds, with at least two launches and at most `most`.

    It launches several times before, so that nothing is compiled while the graph is captured.  The fastest of these
    counts: a pause of the host would make a graph of few launches, whose own start would be a large part of its time.
    `pool` is the handle of memory that graphs share, by default the graph's own.
    """
    import torch

    launch()
    torch.cuda.synchronize()
    milliseconds = []
    for _ in range(_TRIALS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        launch()
        end.record()
        torch.cuda.synchronize()
        milliseconds.append(start.elapsed_time(end))
    count = max(_FEWEST, min(most, int(_MILLISECONDS / max(min(milliseconds), 1e-3))))
    return LaunchGraph(captured(launch, count, pool), count)


def captured(launch: Callable[[], Any], count: int, pool: Any = None) -> Any:
    """Return a CUDA graph of `count` launches, which allocates from `pool`, if given.

    `torch.cuda.graph` would return all memory that PyTorch keeps for later allocations to the device.
    """
    import torch

    found = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(_side_stream(torch.cuda.current_device())):
        shared = () if pool is None else (pool,)
        found.capture_begin(*shared, capture_error_mode="thread_local")  # other threads may allocate meanwhile
        try:
            for _ in range(count):
                launch()
        finally:
            found.capture_end()
    return found


@cache
def _side_stream(device: int) -> Any:
    """Return the stream on which graphs of a device are captured: the default one cannot be.

    Libraries have a workspace for each stream, so that there is one for all graphs.
    """
    import torch

    return torch.cuda.Stream(device)


def in_turn(launches: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the microseconds of launches timed in turn, so that thermal conditions are equal: medians over rounds."""
    return times_in_turn(launch_graphs(launches), rounds)


def times_in_turn(graphs: Mapping[str, LaunchGraph], rounds: int, replays: int = _REPLAYS) -> dict[str, float]:
    """Return the microseconds of a launch of each graph: medians over rounds, each of the median over replays.

    Every round starts at another graph: a device whose clocks fall under load would favour what always runs first.
    """
    names, times = list(graphs), {name: list[float]() for name in graphs}
    for number in range(rounds):
        first = number * len(names) // rounds
        for name in names[first:] + names[:first]:
            times[name].append(graphs[name].microseconds(replays))
    return {name: sorted(each)[rounds // 2] for name, each in times.items()}
