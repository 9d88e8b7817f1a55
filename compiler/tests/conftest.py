"""Triton without a GPU: a driver that records launches and executes none."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the helpers beside the tests


@dataclass
class Recorded:
    """What the fake driver recorded: whether each compile hit the cache, and launches as (metadata, grid, PTX)."""

    compiles: list[bool] = field(default_factory=list)
    launches: list[tuple[Any, tuple[int, int, int], str]] = field(default_factory=list)


@pytest.fixture(autouse=True)
def choose_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.9 warns if this default is not set."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


@pytest.fixture
def triton_cache(tmp_path: Any) -> Iterator[Recorded]:
    """An empty Triton cache, and a count of the compiles of this process."""
    knobs = pytest.importorskip("triton").knobs
    recorded = Recorded()

    def listen(**event: Any) -> None:
        recorded.compiles.append(event["cache_hit"])

    before = knobs.compilation.listener
    knobs.compilation.listener = listen
    # The variable is reset before the fixtures end that this one follows: `assembly_only` sets it, too.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
        yield recorded
    knobs.compilation.listener = before


@pytest.fixture
def without_gpu(triton_cache: Recorded) -> Iterator[Recorded]:
    """A fake sm_90 driver that launches nothing; its benchmark calls each kernel once and prefers the last."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    def launcher(source: Any, metadata: Any) -> Callable[..., None]:
        def launch(*arguments: Any) -> None:
            triton_cache.launches.append((metadata, arguments[:3], source.name))

        return launch

    def benchmark(call: Callable[[], None], quantiles: Any) -> list[float]:
        call()
        return [1.0 / len(triton_cache.launches)] * 3

    utilities = SimpleNamespace(
        load_binary=lambda *_: (object(), object(), 32, 0, 1024),
        get_device_properties=lambda _: {"max_shared_mem": 232448},
        unload_module=lambda _: None,
    )
    before = driver._active
    # What is older than the test is not searched for its kernels below.
    gc.collect(0)
    gc.freeze()
    driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: 0,
            get_current_stream=lambda _: 0,
            get_current_target=lambda: GPUTarget("cuda", 90, 32),
            get_benchmarker=lambda: benchmark,
            launcher_cls=launcher,
            utils=utilities,
        )
    )
    yield triton_cache
    # Kernels are unloaded by the driver that loaded them.
    gc.collect()
    driver._active = before


@pytest.fixture
def memory_of_this_process(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Reads the storage of a `fake_tensors.Tensor` instead of torch's; the result lists the bytes of each read."""
    from bitwise_triton import tensor_contents

    read: list[int] = []

    def read_storage(storage: Any, start: int, length: int) -> bytes:
        read.append(length)
        found: bytes = storage.memory[start : start + length].tobytes()
        return found

    monkeypatch.setattr(tensor_contents, "read_storage", read_storage)
    return read
