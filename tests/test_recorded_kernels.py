"""Recorded kernels are what the compiler returns, and are found under their keys alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

import recorded_kernels as R  # noqa: E402
from assembly_only import assembly_only  # noqa: E402
from bitwise_bench.compilation.capture import compile_case  # noqa: E402
from bitwise_bench.corpus.kernels.cross_architecture import pairs  # noqa: E402
from bitwise_triton import Buffer, CaptureError, compile_configuration  # noqa: E402

HITS = list[bool]


@pytest.fixture(autouse=True)
def uncounted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What these tests compile and ask by intention; the summary of a session does not list it."""
    count: Counter[str] = Counter()
    monkeypatch.setattr(R, "UNRECORDED", count)
    monkeypatch.setattr(R, "_COUNTED", set())
    return count


@pytest.fixture
def hits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HITS:
    """Whether each kernel was found; Triton's cache is empty."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    found: HITS = []

    def listen(**event: Any) -> None:
        found.append(event["cache_hit"])

    monkeypatch.setattr(triton.knobs.compilation, "listener", listen)
    return found


def texts() -> list[str]:
    """Compile two kernels, for sm_90 and gfx942."""
    pair = next(each for each in pairs() if each.name == "norm-layer-fp16")
    with assembly_only(lines=True):
        return [compile_case(case).assembly for case in (pair.left, pair.right)]


def test_recorded_kernels_are_those_of_the_compiler(
    hits: HITS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uncounted: Counter[str]
) -> None:
    known = texts()
    if not all(hits):
        pytest.skip("the kernels are recorded with another build of Triton")
    monkeypatch.setattr(R, "kernels_named", lambda name: {})
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "another"))
    assert [R.portable(each) for each in texts()] == known
    assert hits == [True, True, False, False]
    assert sum(uncounted.values()) == 2


@triton.jit
def refused(y):  # type: ignore[no-untyped-def]
    tl.static_assert(y is None)


def test_a_kernel_that_is_refused_is_not_counted(uncounted: Counter[str], without_machine_code: None) -> None:
    with pytest.raises(CaptureError):
        compile_configuration(refused, {"y": Buffer("Y", "fp32")}, {}, grid=(1,))
    assert not uncounted


def test_a_kernel_of_other_code_is_compiled(hits: HITS, monkeypatch: pytest.MonkeyPatch) -> None:
    R.kernels_named.cache_clear()
    monkeypatch.setattr(R, "code_digest", lambda: "other")
    try:
        texts()
    finally:
        R.kernels_named.cache_clear()
    assert hits == [False, False]


def test_a_key_has_the_content_of_a_library_and_not_its_folder(tmp_path: Path) -> None:
    from triton.backends.amd.compiler import HIPOptions

    def key(folder: str, content: str) -> str:
        library = tmp_path / folder / "lib.bc"
        library.parent.mkdir()
        library.write_text(content)
        options = HIPOptions(arch="gfx942")
        object.__setattr__(options, "extern_libs", (("lib", str(library)),))
        found: str = options.hash()
        return found

    with R.keys_of_any_folder():
        first, second, third = key("one", "code"), key("another", "code"), key("third", "other code")
    assert first == second != third
    assert key("fourth", "code") != first


def test_a_key_does_not_depend_on_what_was_hashed_before() -> None:
    from bitwise_bench.pinned_reductions.kernels import benchmark
    from bitwise_triton.reductions.kernels import functions

    hashed = [each for module in (benchmark, functions) for each in vars(module).values() if hasattr(each, "cache_key")]

    def keys(order: list[Any]) -> set[str]:
        for each in hashed:
            each.hash, each.used_global_vals = None, {}
        return {f"{each.fn.__name__} {each.cache_key}" for each in order}

    assert len(hashed) > 20
    assert keys(hashed) == keys(hashed[::-1])


def test_a_cache_folder_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(R, "FOLDER", tmp_path / "recorded")
    place = tmp_path / "cache" / "KEY"
    place.mkdir(parents=True)
    library = {"extern_libs": [["libdevice", "/opt/me/triton/backends/nvidia/lib/libdevice.10.bc"]]}
    files = {
        "__grp__k.json": "{}", "k.json": json.dumps(library), "k.ttir": "module", "k.cubin": "binary",
        "k.ptx": '.version 8.7\n\t.file\t1 "/opt/me/k.py"\n\tret;\n\t.section\t.debug_info\n\t{\n.b8 1\n\t}\n',
        "k.amdgcn": '\t.file\t1 "/opt/me" "k.py"\n\t.section\t.debug_info,"",@progbits\n\t.byte 1\n\t.text\nend:\n',
    }  # fmt: skip
    for name, content in files.items():
        (place / name).write_text(content)
    (tmp_path / "recorded").mkdir()
    (tmp_path / "recorded" / "old.json.xz").write_text("")
    assert R.record(tmp_path / "cache") == 1
    assert [path.name for path in (tmp_path / "recorded").iterdir()] == ["k.json.xz"]
    R.kernels_named.cache_clear()
    found = R.kernels_named("k")
    R.kernels_named.cache_clear()
    assert found == {
        "KEY": {
            "k.json": '{"extern_libs": [["libdevice", "triton/backends/nvidia/lib/libdevice.10.bc"]]}', "k.cubin": "",
            "k.ptx": '.version 8.7\n\t.file\t1 "k.py"\n\tret;\n\n', "k.amdgcn": '\t.file\t1 "k.py"\n\t.text\nend:\n',
        }
    }  # fmt: skip


def test_one_folder_is_below_that_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        with assembly_only(), assembly_only():
            assert Path(triton.knobs.cache.dir) == tmp_path / "assembly-only"
    assert Path(triton.knobs.cache.dir) == tmp_path


def test_a_kernel_that_is_kept_and_not_recorded_is_counted(
    hits: HITS, monkeypatch: pytest.MonkeyPatch, uncounted: Counter[str]
) -> None:
    monkeypatch.setattr(R, "kernels_named", lambda name: {})
    known = texts()
    assert (hits, sum(uncounted.values())) == ([False, False], 2)
    monkeypatch.setattr(R, "_COUNTED", set())  # as in another process
    assert [texts(), texts()] == [known, known]
    assert (hits[2:], sum(uncounted.values())) == ([True] * 4, 4)
