"""Test settings that all distributions share."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A check must give the same answer twice, and what a tool answers on drawn texts is recorded: the same examples are
# drawn every time.  `--hypothesis-profile random` draws others.  Time limits on single examples, and on drawing them,
# only measure how busy the machine is.
_WITHOUT_TIMES: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, database=None, **_WITHOUT_TIMES)
settings.register_profile("random", derandomize=False, **_WITHOUT_TIMES)
settings.load_profile("same")
# What a test changes in this process is not part of the key of a kept reading.  The tests of the cache turn it on.
os.environ["BITWISE_NO_CACHE"] = "1"


OBJECTS_BETWEEN_COLLECTIONS = (200_000, 20, 50)
"""Thresholds of the garbage collector: analyses make few cycles."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Switch the garbage collector off while tests are collected, and let it ignore them afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*OBJECTS_BETWEEN_COLLECTIONS)
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Let every second worker collect from the end: in a fresh clone, each compiles half of the test modules."""
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0").endswith(("1", "3", "5", "7", "9")):
        config.args.reverse()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests the same order in all workers: by file."""
    items.sort(key=lambda item: item.nodeid.partition("::")[0])


UNRECORDED: Counter[str] = Counter()
"""What all processes used and asked that is not recorded."""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Count what this process used and asked; a worker sends it to the process that started it."""
    import recorded_kernels
    import recorded_tools

    UNRECORDED.update({f"kernels {name}": count for name, count in recorded_kernels.UNRECORDED.items()})
    UNRECORDED.update({f"answers of {name}": count for name, count in recorded_tools.UNRECORDED.items()})
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["unrecorded"] = dict(UNRECORDED)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a worker used and asked."""
    UNRECORDED.update(getattr(node, "workeroutput", {}).get("unrecorded", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what a fresh machine compiles or asks since it is not recorded; CONTRIBUTING.md says how to record it."""
    if UNRECORDED:
        listed = ", ".join(f"{count} {name}" for name, count in sorted(UNRECORDED.items()))
        terminalreporter.write_line(f"not recorded, so that a fresh machine runs compilers and tools: {listed}")


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The cache of `bitwise` is empty at the start of a session, and is shared by its workers.

    What an earlier session learnt from tools would otherwise not be asked, and so not be recorded.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(shared / "bitwise-cache"))
        yield


@pytest.fixture(scope="session", autouse=True)
def recorded_answers_of_tools() -> Iterator[None]:
    """An assembler or a disassembler is not run where its answer is recorded; see `recorded_tools`."""
    import recorded_tools

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("subprocess.run", recorded_tools.run)
        yield


@pytest.fixture(scope="session", autouse=True)
def keys_of_kernels() -> Iterator[None]:
    """Keys of Triton's cache do not depend on what was compiled before; see `recorded_kernels`."""
    if "triton" not in sys.modules:  # the modules of tests that compile import it
        yield
        return
    from recorded_kernels import complete_keys

    with complete_keys():
        yield


@pytest.fixture
def without_machine_code() -> Iterator[None]:
    """Kernels that Triton compiles have assembly only; see `assembly_only`."""
    pytest.importorskip("triton")
    from assembly_only import assembly_only

    with assembly_only(lines=True):
        yield
