"""Records of batch invariance from answers of a stand-in, and their page."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_bench.cublas.invariance import batch_invariance
from bitwise_bench.cublas.invariance.batch_invariance import SETTINGS, drawn_products, main, public_products
from bitwise_bench.cublas.invariance.batch_invariance_page import page
from bitwise_cublas_profiles.invariance.answers import Answers, Key, Run, read, shipped, write
from bitwise_cublas_profiles.invariance.settings import Settings
from bitwise_cublas_profiles.query import Answer, Configuration, CublasError, GemmQuery

ORIGIN = {"library": "13.1.0", "capability": "9.0", "device": "NVIDIA H100 80GB HBM3", "torch": "2.11.0"}


def answer(split: int) -> Answer:
    return Answer(Configuration(66, 0, 35, split, 2, 0, 0, 0, 0), 4096)


def runs_of(query: GemmQuery) -> tuple[Run, ...]:
    """Split K up to 16 rows where there is a workspace; products of fp32 have no answer."""
    if query.a == "fp32":
        return (Run(1, 16384, None),)
    return (Run(1, 16, answer(2)), Run(17, 16384, answer(1))) if query.workspace > 4096 else (Run(1, 16384, answer(1)),)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "model_type": "deepseek_v2", "dtype": "bfloat16", "hidden_size": 512, "intermediate_size": 1024,
        "num_attention_heads": 4, "vocab_size": 1024, "q_lora_rank": None, "kv_lora_rank": 128, "v_head_dim": 64,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "n_routed_experts": 8, "moe_intermediate_size": 256,
    }  # fmt: skip
    monkeypatch.setattr(batch_invariance, "CONFIGS", {"small": config})


def test_verdicts_are_recorded_and_shown(small: None, tmp_path: Path) -> None:
    series: dict[Key, tuple[Run, ...]] = {}
    for settings in SETTINGS.values():
        for fused in (False, True):
            for each in public_products(fused)["small"]:
                try:
                    query = each.product.query(1, settings.pytorch)
                except CublasError:
                    continue  # fp32 with cuBLASLt preferred
                series[Key.of(query)] = runs_of(query)
    write(Answers(ORIGIN, series), tmp_path / "answers.json.xz")
    out = tmp_path / "record.json"
    assert main(["table", "--answers", str(tmp_path / "answers.json.xz"), "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    text = page(record)
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ")}
    count = len({(each["n"], each["k"]) for each in record["products"]})
    assert rows["defaults, `:4096:8`"] == f"| defaults, `:4096:8` | {count} | 0 | {count - 1} | 1 | 0 |"
    starved = "`:0:0`, `CUBLASLT_WORKSPACE_SIZE=0`"
    assert rows[starved] == f"| {starved} | {count} | {count - 1} | 0 | 1 | 0 |"
    assert "| linear 384 x 512 | small: q_proj | 2 | 17 | 17 |" in text
    assert text.count("No product is shown to be not invariant.") == 2


@pytest.mark.parametrize("driver", ["1", "2"])
def test_a_recording_continues_on_the_same_machine_only(
    small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], driver: str
) -> None:
    asked: list[GemmQuery] = []

    def ask_all(queries: Sequence[GemmQuery], *_: Any) -> Iterator[tuple[Key, tuple[Run, ...]]]:
        asked.extend(queries)
        yield from ((Key.of(each), runs_of(each)) for each in queries[: len(queries) if known else 3])

    monkeypatch.setattr(batch_invariance, "ask_all", ask_all)
    path = tmp_path / "answers.json.xz"
    monkeypatch.setattr(batch_invariance, "_provenance", lambda library: {**ORIGIN, "driver": "1"})
    known: tuple[Key, ...] = ()
    assert main(["record", "--answers", str(path)]) == 0
    known, of = tuple(read(path).series), len({Key.of(each) for each in asked})
    asked.clear()
    monkeypatch.setattr(batch_invariance, "_provenance", lambda library: {**ORIGIN, "driver": driver})
    content = path.read_bytes()
    assert 0 < len(known) < of
    if driver == "1":
        assert main(["record", "--answers", str(path)]) == 0
        assert not {Key.of(each) for each in asked} & set(known)
        assert len(read(path).series) == of
    else:
        assert main(["record", "--answers", str(path)]) == 2
        assert "write to another file" in capsys.readouterr().err
        assert (asked, path.read_bytes()) == ([], content)


@pytest.mark.parametrize("path", [None, Path("lib/libcublasLt.so.12")])
def test_the_library_that_is_given_is_asked(
    small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: Path | None
) -> None:
    class Chosen:
        def __init__(self, path: Path | None) -> None:
            self.version = "13.1.0" if path is None else "12.8.4"

        def __enter__(self) -> Chosen:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    class Inline:
        def __init__(self, processes: int) -> None:
            self.processes = processes

        def __enter__(self) -> Inline:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def imap(self, function: Any, queries: Any) -> Any:
            results = map(function, queries)
            return SimpleNamespace(next=lambda timeout: next(results))

    def ask_library(library: Chosen, query: GemmQuery, last: int) -> tuple[Run, ...]:
        return (Run(1, last, answer(1 if library.version == "13.1.0" else 2)),)

    cuda = SimpleNamespace(get_device_capability=lambda: (9, 0))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, __version__="2"))
    monkeypatch.setattr(batch_invariance, "gpu_provenance", lambda: {"device": "GPU"})
    monkeypatch.setattr(batch_invariance, "get_context", lambda _: SimpleNamespace(Pool=Inline))
    monkeypatch.setattr(batch_invariance, "Library", Chosen)
    monkeypatch.setattr(batch_invariance, "ask_library", ask_library)
    batch_invariance._library.cache_clear()
    out = tmp_path / "answers.json.xz"
    assert main(["record", "--answers", str(out), *([] if path is None else ["--library", str(path)])]) == 0
    batch_invariance._library.cache_clear()
    found = read(out)
    assert found.provenance == {
        "library": "13.1.0" if path is None else "12.8.4", "capability": "9.0", "device": "GPU",
        **({"torch": "2"} if path is None else {}),
    }  # fmt: skip
    configurations = {run.answer for runs in found.series.values() for run in runs}
    assert configurations == {answer(1 if path is None else 2)}


def test_what_was_not_recorded_is_left_out(small: None, tmp_path: Path) -> None:
    write(Answers(ORIGIN, {}), tmp_path / "answers.json")
    out = tmp_path / "record.json"
    assert main(["table", "--answers", str(tmp_path / "answers.json"), "--out", str(out)]) == 0
    assert {each["verdict"] for each in json.loads(out.read_text())["products"]} <= {"unknown"}


@pytest.mark.parametrize("drawn", ["any widths", "recorded products"])
@pytest.mark.parametrize("wrong", [False, True])
def test_bytes_are_compared_with_every_certificate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: bool, drawn: str
) -> None:
    class Inline:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.map = lambda function, tasks, **_: map(function, tasks)

        def __enter__(self) -> Inline:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    def run_job(job: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
        limit = settings.pytorch.workspace > 4096
        return {"digests": [
            [[("x" if limit and m <= 16 else "y") + ("!" if wrong and m == rows[-1] else "")] for m in rows]
            for *_, rows in job["products"]
        ]}  # fmt: skip

    monkeypatch.setattr(batch_invariance, "ProcessPoolExecutor", Inline)
    monkeypatch.setattr(batch_invariance, "_provenance", lambda: ORIGIN)
    monkeypatch.setattr(batch_invariance, "_ask", lambda query: (
        (Run(1, 16, answer(2)), Run(17, 16384, answer(1))) if query.workspace > 4096 and query.epilogue == "none"
        else (Run(1, 16384, answer(1)),)
    ))  # fmt: skip
    monkeypatch.setattr(batch_invariance, "SETTINGS", {"large": Settings(), "none": Settings(":0:0", 0)})
    monkeypatch.setattr(
        batch_invariance, "drawn_products",
        lambda seed, count: [each for each in drawn_products(seed, 60) if each.operator == "linear" and each.k > 512],
    )  # fmt: skip
    monkeypatch.setattr(batch_invariance, "run_job", run_job)
    out = tmp_path / "check.json"
    recorded = []
    if drawn == "recorded products":
        path = tmp_path / "answers.json"
        widths = [each for each in public_products()["Llama-3.1-8B"] if each.product.k > 512]
        monkeypatch.setattr(batch_invariance, "public_products", lambda fused: {"model": widths})
        queries = [each.product.query(1, one.pytorch) for each in widths for one in batch_invariance.SETTINGS.values()]
        write(Answers(ORIGIN, {Key.of(each): batch_invariance._ask(each) for each in queries}), path)
        recorded = ["--answers", str(path)]
    assert main(["check", "--out", str(out), "--seed", "3", *recorded]) == int(wrong)
    content = json.loads(out.read_text())
    assert content["environment"].get("drawn from", "any widths") == drawn
    large, none = (content["settings"][name]["counts"] for name in ("large", "none"))
    assert large["products"] == none["products"] > 4
    assert (none["boundaries run"], none.get("not invariant", 0)) == (0, 0)
    assert large["boundaries run"] == large["boundaries with other bytes"] == large["products"]
    assert (large["refuted"] > 0) is wrong
    assert "## Against bytes" in page({"environment": ORIGIN, "rows": 16384, "products": []}, content)


def test_drawn_products_follow_from_the_seed() -> None:
    assert drawn_products(5, 20) == drawn_products(5, 30)[:20]
    assert drawn_products(5, 20) != drawn_products(6, 20)


def test_the_page_is_that_of_the_records_and_no_number_of_rows_contradicts_its_certificate() -> None:
    root = Path(__file__).parents[2]
    names = [f"{part}-sm90-{gpu}-13.1" for gpu in ("h100", "h200") for part in ("", "-bytes")] + ["-sm90-h200-12.8"]
    paths = [root / "records" / f"cublas-batch-invariance{name}.json" for name in names]
    if not paths[0].exists():
        pytest.skip("the records are in the source, not here")
    found = [json.loads(path.read_text()) for path in paths]
    shown = page(*found[:2], [(found[2], found[3]), (found[4], None)])
    assert (root / "docs" / "results" / "batch-invariance.md").read_text() == shown
    for check in (found[1], found[3]):
        assert set(check["settings"]) == set(SETTINGS)
        assert sum(each["counts"]["refuted"] for each in check["settings"].values()) == 0


def test_the_page_names_what_differs_on_another_gpu() -> None:
    def product(n: int, verdict: str, *breaks: int) -> dict[str, Any]:
        return {
            "setting": "none", "model": "m", "layers": ["l"], "n": n, "k": 64, "operator": "linear", "dtype": "bf16",
            "classes": 2, "verdict": verdict, "breaks_at": list(breaks), "one_class_from": 1,
        }  # fmt: skip

    origin = {**ORIGIN, "driver": "1"}
    first = {"environment": origin, "rows": 9, "products": [product(8, "invariant"), product(16, "not invariant", 2)]}
    second = {**first, "products": [product(8, "not invariant", 5), product(16, "not invariant", 2)]}
    h200 = {**second, "environment": {**origin, "device": "NVIDIA H200"}}
    older = {
        **second,
        "environment": {"library": "12.8.4", "capability": "9.0", "device": "NVIDIA H200", "driver": "1"},
    }
    check = {"environment": {**origin, "seed": 1}, "settings": {}}
    assert "| none | linear 8 x 64 | invariant | not invariant (5) |" in page(first, check, [(h200, check)])
    assert "None differs from those on an NVIDIA H100 80GB HBM3, cuBLASLt 13.1.0." in page(
        first, check, [(first, check)]
    )
    both = page(first, check, [(h200, check), (older, None)])
    assert "None differs from those on an NVIDIA H200, cuBLASLt 13.1.0." in both
    assert both.count("Against bytes") == 2
    assert "## NVIDIA H200, cuBLASLt 12.8.4" in both


def test_the_shipped_answers_hold_every_product_of_the_public_models() -> None:
    queries = set()
    for model in batch_invariance.CONFIGS:
        for fused in (False, True):
            for each in public_products(fused)[model]:
                for settings in SETTINGS.values():
                    if each.product.dtype == "fp32" and settings.pytorch.lt_products:
                        continue  # these answers were not recorded
                    with suppress(CublasError):
                        queries.add(Key.of(each.product.query(1, settings.pytorch)))
    recorded = list(shipped())
    assert recorded
    for answers in recorded:
        whole = answers.provenance["library"] == "13.1.0"
        assert queries >= answers.series.keys() or whole
        assert {answers.series[each][-1].last for each in queries if whole or each in answers.series} == {16384}
