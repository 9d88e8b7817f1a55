"""The kernels that write tiles by threads and read them asynchronously: simulated, they return what is expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_bench.hardware_facts import proxy_fences
from bitwise_bench.hardware_facts.measured_forms import recorded_forms
from bitwise_bench.hardware_facts.proxy_fences import ORDERS, Form, expected, forms, given_bytes, text, tile_bytes
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.races.undetermined import Race
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_sm90.architecture import SM90
from workspace import ROOT

Array = npt.NDArray[Any]

FORMS = (
    Form("cp.async.cg 16", "second operand", "fence", 1),
    Form("cp.async.ca 8", "both operands", "no fence", 3, 64),
    Form("cp.async.ca 8", "bulk copy", "no fence", 2, barrier="cp.async.mbarrier"),
    Form("cp.async.ca 16", "second operand", "fence", 2, barrier="mbarrier"),
    Form("cp.async.ca 4", "bulk copy", "fence", 4),
    Form("st.shared.v4.b32", "second operand", "fence", 2, 128),
    Form("st.shared.b32", "bulk copy", "fence", 1, barrier="mbarrier"),
    Form("cp.async.ca 16", "both operands", "fence", 2, 32),
)


@pytest.fixture(autouse=True)
def few_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tiles of a simulation are few."""
    monkeypatch.setattr(proxy_fences, "TILES", 8)
    monkeypatch.setattr(proxy_fences, "STEP", 3)
    given_bytes.cache_clear()
    proxy_fences.products.cache_clear()
    yield
    given_bytes.cache_clear()
    proxy_fences.products.cache_clear()


def launched(form: Form) -> tuple[Source, dict[str, Array], Array]:
    """Return a small kernel of a form with its launch, its memory, and the results that are expected."""
    small = replace(form, blocks=2, turns=6)
    wanted = expected(small)
    arguments = (Argument(kind="buffer", buffer="given"), Argument(kind="buffer", buffer="found"))
    launch = Launch(file="k.ptx", entry="k", grid=(2, 1, 1), block=(128, 1, 1), args=arguments)
    memory = {"given": given_bytes(tile_bytes(small)), "found": np.zeros(wanted.nbytes, np.uint8)}
    return Source("k.ptx", text(small), launch), memory, wanted


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_simulated_kernel_returns_what_is_expected(form: Form) -> None:
    source, memory, wanted = launched(form)
    after = simulate(prepare(source, SM90, Options()), memory).after["found"]
    assert np.array_equal(np.asarray(after).view(wanted.dtype).reshape(wanted.shape), wanted)


def test_another_byte_of_a_tile_is_another_result() -> None:
    """A tile that comes late is found: every byte of the tiles that a block reads has an effect."""
    form = Form("cp.async.cg 16", "second operand", "fence", 2, 64)
    source, memory, wanted = launched(form)
    changed = memory["given"].copy()
    changed[-1] ^= 1
    after = simulate(prepare(source, SM90, Options()), {**memory, "given": changed}).after["found"]
    assert not np.array_equal(np.asarray(after).view(wanted.dtype).reshape(wanted.shape), wanted)


def test_stores_without_the_fence_and_copies_without_the_wait_are_refused() -> None:
    source, memory, _ = launched(Form("st.shared.b32", "second operand", "no fence"))
    with pytest.raises(Unsupported, match="no proxy fence"):
        simulate(prepare(source, SM90, Options()), memory)
    source, memory, _ = launched(Form("cp.async.cg 16", "bulk copy", "no wait"))
    with pytest.raises(Race):
        simulate(prepare(source, SM90, Options()), memory)


def test_each_form_is_measured_once_with_the_fence_and_without() -> None:
    every = list(forms())
    assert len(every) == len(set(every))
    fenced = {replace(each, order="no fence") for each in every if each.order == "fence"}
    assert fenced == {each for each in every if each.order == "no fence"}


FORMS_OF_THE_RECORD = frozenset(forms())
GPU, RECORDED = recorded_forms(ROOT / "records/proxy-fences-sm90-h200.json.xz", "forms", Form)


def test_stores_needed_the_fence_and_copies_did_not() -> None:
    """In the record, no tile of copies that were waited for had other bytes, and many tiles of stores had."""
    assert GPU == "NVIDIA H200"
    assert {form for form, _ in RECORDED} == FORMS_OF_THE_RECORD
    found = Counter({(order, stores): 0 for order in ORDERS for stores in (False, True)})
    tiles = Counter(found)
    for form, row in RECORDED:
        stores = form.writer.startswith("st.")
        found[form.order, stores] += row["other results"]
        tiles[form.order, stores] += row["tiles"]
        assert row["tiles"] == form.blocks * form.turns
    assert [found[each] for each in (("fence", False), ("fence", True), ("no fence", False))] == [0, 0, 0]
    assert tiles["no fence", False] == 32_440_320
    assert found["no fence", True] > 3_000_000
    assert found["no wait", False] > 100_000
