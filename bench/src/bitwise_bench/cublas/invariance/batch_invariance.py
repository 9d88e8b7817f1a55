"""Batch invariance of cuBLASLt under settings that serving and training frameworks use.

    python -m bitwise_bench.cublas.invariance.batch_invariance record --answers answers.json.xz
    python -m bitwise_bench.cublas.invariance.batch_invariance table --answers answers.json.xz --out invariance.json
    python -m bitwise_bench.cublas.invariance.batch_invariance check --out check.json --products 100 --seed 1

`record` asks PyTorch's library, or the one of `--library PATH`, for the products of public models for every M, `table`
makes certificates from what was recorded, without a GPU, and `check` compares certificates of drawn products, of any
widths or of those recorded, with the bytes of PyTorch's products.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache, partial
from multiprocessing import TimeoutError as NoResult
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.public_models import CONFIGS
from bitwise_cublas_profiles.driver import gpu_provenance
from bitwise_cublas_profiles.invariance.answers import Answers, Key, Run, ask_library, read, write
from bitwise_cublas_profiles.invariance.certificate import Certificate, Certifier
from bitwise_cublas_profiles.invariance.confirmation import compared, run_job
from bitwise_cublas_profiles.invariance.model_products import ModelProduct, model_products
from bitwise_cublas_profiles.invariance.products import Operator, Product
from bitwise_cublas_profiles.invariance.settings import Settings
from bitwise_cublas_profiles.library import Library
from bitwise_cublas_profiles.profile import profile
from bitwise_cublas_profiles.query import CublasError, GemmQuery

ROWS = 16384

SETTINGS = {
    "defaults, `:4096:8`": Settings(":4096:8"),
    "no reductions in reduced precision": Settings(reductions="fp32"),
    "`:16:8`": Settings(":16:8"),
    "`:16:8`, `CUBLASLT_WORKSPACE_SIZE=1`": Settings(":16:8", 1),
    "the same, no split K, cuBLASLt preferred": Settings(":16:8", 1, "none", True),
    "`:0:0`, `CUBLASLT_WORKSPACE_SIZE=0`": Settings(":0:0", 0),
}
"""Settings by the words of the table. vLLM sets the fourth and, from PyTorch 2.10, the fifth; Megatron requires one of
the first and third for determinism and sets the sixth for batch invariance."""

FUSED = (False, True)

_WRITING_INTERVAL = 10
"""The seconds between two writes of a file of answers while a library is asked."""


@cache
def _library(path: Path | None) -> Library:
    return Library(path)


def _ask(query: GemmQuery, path: Path | None = None) -> tuple[Run, ...]:
    return ask_library(_library(path), query, ROWS)


def _provenance(path: Path | None = None) -> dict[str, str]:
    """The library, the GPU, and the PyTorch that calls the library: none for a library that is given by its path."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    with Library(path) as library:
        version = library.version
    caller = {"torch": torch.__version__} if path is None else {}
    return {"library": version, "capability": f"{major}.{minor}", **gpu_provenance(), **caller}


def ask_all(
    queries: Sequence[GemmQuery], processes: int, deadline: float, path: Path | None = None
) -> Iterator[tuple[Key, tuple[Run, ...]]]:
    """The runs of distinct queries, asked by several processes in order, until a time of the clock `time.time`."""
    distinct = {Key.of(each): each for each in queries}
    with get_context("spawn").Pool(processes) as pool:  # leaving the block ends the processes
        asked = pool.imap(partial(_ask, path=path), distinct.values())
        for key in distinct:
            try:
                yield key, asked.next(timeout=max(0.0, deadline - time.time()))
            except NoResult:
                return


def public_products(fused: bool = False) -> dict[str, list[ModelProduct]]:
    """The products of every public model."""
    return {name: model_products(config, name, fused=fused) for name, config in CONFIGS.items()}


def _queries(products: Sequence[Product]) -> list[GemmQuery]:
    """The queries of products under every setting, those of the first product first."""
    return [query for each in products for settings in SETTINGS.values() for query in _queries_under(each, settings)]


def _queries_under(product: Product, settings: Settings) -> list[GemmQuery]:
    """The query of a product under a setting, if it is one product of matrices for the library."""
    try:
        return [product.query(1, settings.pytorch)]
    except CublasError:
        return []


def record(given: argparse.Namespace) -> int:
    """Write the answers for all products of the public models under all settings, with those that the file has."""
    started = time.time()
    origin = _provenance(given.library)
    known = _recorded(given.answers, origin)
    products = [
        each.product for model in CONFIGS for fused in FUSED for each in public_products(fused)[model]
    ]  # fmt: skip
    queries, series, written = _queries(products), dict(known), started
    unknown = [each for each in queries if Key.of(each) not in known]
    for key, found in ask_all(unknown, given.processes, started + given.seconds, given.library):
        series[key] = found
        if time.time() - written > _WRITING_INTERVAL:
            write(Answers(origin, series), given.answers)
            written = time.time()
    write(Answers(origin, series), given.answers)
    runs = sum(map(len, series.values()))
    of = len({*known, *(Key.of(each) for each in queries)})
    size, seconds = given.answers.stat().st_size, time.time() - started
    print(f"{len(series)} of {of} series, {runs} runs, {size} bytes, {seconds:.0f} s")
    return 0


def _recorded(path: Path, origin: Mapping[str, str]) -> Mapping[Key, tuple[Run, ...]]:
    """The series of an existing file. Raises CublasError if they are those of another library or machine."""
    if not path.exists():
        return {}
    found = read(path)
    if dict(found.provenance) != dict(origin):
        raise CublasError(
            f"{path}: was recorded with {dict(found.provenance)}, and this machine has {dict(origin)}: write to "
            "another file"
        )
    return found.series


def table(given: argparse.Namespace) -> int:
    """Write verdicts of all products of the public models under all settings, from recorded answers."""
    answers = read(given.answers)
    certifier = Certifier(profile(answers.provenance["library"], answers.provenance["capability"]))
    found: list[dict[str, Any]] = []
    made: dict[tuple[Product, GemmQuery], dict[str, Any]] = {}
    for words, settings in SETTINGS.items():
        for fused in FUSED:
            for model, products in public_products(fused).items():
                for each in products:
                    head = {"setting": words, "model": model, "fused": fused, "layers": list(each.layers)}
                    try:
                        query = each.product.query(1, settings.pytorch)
                    except CublasError as error:
                        found.append({**head, "n": each.product.n, "k": each.product.k, "verdict": "unknown",
                                      "reason": str(error)})  # fmt: skip
                        continue
                    key = each.product, query
                    if Key.of(query) not in answers.series:
                        continue
                    if key not in made:
                        runs = answers.runs(query, ROWS)
                        made[key] = summary(certifier.certificate(each.product, query, runs))
                    found.append({**head, **made[key]})
    given.out.write_text(json.dumps({"environment": dict(answers.provenance), "rows": ROWS, "products": found},
                                    indent=0) + "\n", encoding="utf-8")  # fmt: skip
    counts = Counter((each["setting"], each["verdict"]) for each in found)
    for words in SETTINGS:
        print(words, {verdict: count for (name, verdict), count in counts.items() if name == words})
    return 0


def summary(certificate: Certificate) -> dict[str, Any]:
    """The verdict on a product with its classes and the numbers of rows at which the class changes."""
    shown = [each for each in certificate.boundaries if each.witness is not None]
    return {
        "operator": certificate.product.operator, "dtype": certificate.product.dtype, "n": certificate.product.n,
        "k": certificate.product.k, "verdict": certificate.verdict.value, "classes": len(certificate.classes),
        "boundaries": len(certificate.boundaries), "breaks_at": [each.right.first for each in shown[:16]],
        "one_class_from": _last_break(certificate), "without_descriptor": sum(
            each.last - each.first + 1 for each in certificate.declined
        ),
    }  # fmt: skip


def _last_break(certificate: Certificate) -> int | None:
    """The least M from which all numbers of rows are one class, None if the last one has no descriptor."""
    last = certificate.intervals[-1]
    return None if last.bits is None else last.first


def drawn_products(seed: int, count: int) -> list[Product]:
    """Products of random widths, a half of them multiples of 64, each with a kind of call and a type."""
    source = random.Random(seed)
    found: dict[Product, None] = {}
    while len(found) < count:
        n, k = (int(2 ** source.uniform(5, 14.5)) for _ in range(2))
        unit = source.choice((8, 64, 64, 256, 1)) if source.random() < 0.9 else 1
        n, k = max(2, n // unit * unit), max(2, k // unit * unit)
        if n * k > 1 << 27:
            continue
        operator: Operator = source.choice(("linear", "linear", "addmm", "mm"))
        found[Product(n, k, source.choice(("bf16", "bf16", "fp16")), operator)] = None
    return list(found)


def _certified(task: tuple[Product, GemmQuery, tuple[str, str]]) -> Certificate:
    product, query, key = task
    return _certifier(key).certificate(product, query, _ask(query))


@cache
def _certifier(key: tuple[str, str]) -> Certifier:
    return Certifier(profile(*key))


def drawn_certificates(given: argparse.Namespace, key: tuple[str, str]) -> dict[str, list[Certificate]]:
    """The certificates of drawn products under each setting, for which the library is asked."""
    products = drawn_products(given.seed, given.products)
    tasks = [
        (words, (each, each.query(1, settings.pytorch), key))
        for words, settings in SETTINGS.items() for each in products
    ]  # fmt: skip
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        certificates = list(pool.map(_certified, [task for _, task in tasks], chunksize=4))
    found: dict[str, list[Certificate]] = {words: [] for words in SETTINGS}
    for (words, _), certificate in zip(tasks, certificates, strict=True):
        found[words].append(certificate)
    return found


def recorded_certificates(
    answers: Mapping[Key, tuple[Run, ...]], seed: int, count: int, key: tuple[str, str]
) -> dict[str, list[Certificate]]:
    """The certificates of drawn products of the public models under each setting, from recorded answers."""
    source = random.Random(seed)
    products = list(dict.fromkeys(
        each.product for fused in FUSED for found in public_products(fused).values() for each in found
    ))  # fmt: skip
    certificates: dict[str, list[Certificate]] = {}
    for words, settings in SETTINGS.items():
        queries = [(each, query) for each in products for query in _queries_under(each, settings)]
        known = [(each, query) for each, query in queries if Key.of(query) in answers]
        certificates[words] = [
            _certifier(key).certificate(each, query, answers[Key.of(query)])
            for each, query in source.sample(known, min(count, len(known)))
        ]
    return certificates


def check(given: argparse.Namespace) -> int:
    """Compare certificates of drawn products with bytes, under every setting. The exit status is 1 if they differ."""
    started = time.time()
    origin = _provenance()
    key = origin["library"], origin["capability"]
    if given.answers is None:
        by_setting = drawn_certificates(given, key)
    else:
        by_setting = recorded_certificates(_recorded(given.answers, origin), given.seed, given.products, key)
    print(f"{sum(map(len, by_setting.values()))} certificates in {time.time() - started:.0f} s", flush=True)
    with ThreadPoolExecutor(len(SETTINGS)) as threads:
        results = list(threads.map(lambda words: _checked(words, by_setting[words], given), SETTINGS))
    kind = {} if given.answers is None else {"drawn from": "recorded products"}
    content = {
        "environment": {**origin, "seed": given.seed, "products": given.products, "rows": ROWS, **kind},
        "settings": dict(zip(SETTINGS, results, strict=True)),
    }  # fmt: skip
    given.out.write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")
    total: Counter[str] = Counter()
    for words, each in content["settings"].items():
        print(words, each["counts"])
        total.update(each["counts"])
    print(f"all: {dict(total)}, {time.time() - started:.0f} s")
    return 1 if total["refuted"] else 0


def _checked(words: str, certificates: Sequence[Certificate], given: argparse.Namespace) -> dict[str, Any]:
    """The bytes of each product at drawn numbers of rows, and beside one drawn boundary, against its certificate."""
    source = random.Random(f"{given.seed} {words}")
    samples = []
    for each in certificates:
        chosen = {int(2 ** source.uniform(0, 14)) for _ in range(given.samples)}
        pairs = [(one.left.last, one.right.first) for one in each.boundaries
                 if one.left.bits is not None and one.right.bits is not None]  # fmt: skip
        if pairs:
            chosen |= set(source.choice(pairs))
        samples.append(sorted(m for m in chosen if each.bits_at(m) is not None))
    job = {"settings": SETTINGS[words].record(), "seed": given.seed, "products": [
        [each.product.n, each.product.k, each.product.dtype, each.product.operator, rows]
        for each, rows in zip(certificates, samples, strict=True)
    ]}  # fmt: skip
    found = run_job(job, SETTINGS[words])
    counts: Counter[str] = Counter()
    refuted: list[Any] = []
    for each, rows, digests in zip(certificates, samples, found["digests"], strict=True):
        result = compared(each, dict(zip(rows, digests, strict=True)))
        patterns = {each.bits_at(m): digest[0] for m, digest in zip(rows, digests, strict=True)}
        counts["products"] += 1
        counts[each.verdict.value] += 1
        counts["samples"] += len(rows)
        counts["refuted"] += len(result.refuted)
        counts["boundaries run"] += result.boundaries
        counts["boundaries with other bytes"] += result.different
        counts["pairs of classes run"] += len(patterns) * (len(patterns) - 1) // 2
        counts["pairs of classes with equal bytes"] += len(patterns) - len(set(patterns.values()))
        counts["numbers of rows without a descriptor"] += sum(one.last - one.first + 1 for one in each.declined)
        if result.refuted:
            refuted.append([each.product.words, list(result.refuted)])
    return {"counts": dict(counts), "refuted": refuted}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands `record`, `table` and `check`."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.invariance.batch_invariance", description=(__doc__ or "").split("\n")[0]
    )
    commands = parser.add_subparsers(required=True)
    for name, function in (("record", record), ("table", table), ("check", check)):
        one = commands.add_parser(name, help=(function.__doc__ or "").split("\n")[0])
        one.set_defaults(function=function)
        one.add_argument(
            "--answers", type=Path, required=name != "check",
            help="the file of answers" if name != "check" else "draw from the products of this file of answers",
        )  # fmt: skip
        if name != "record":
            one.add_argument("--out", type=Path, required=True, help="where to write the record (JSON)")
        if name != "table":
            one.add_argument("--processes", type=int, default=14, help="processes that ask the library (default 14)")
        if name == "record":
            one.add_argument("--seconds", type=float, default=3600, help="time limit (default 3600)")
            one.add_argument("--library", type=Path, metavar="PATH", help="a libcublasLt.so (default: PyTorch's)")
        if name == "check":
            one.add_argument("--products", type=int, default=100, help="number of drawn products (default 100)")
            one.add_argument("--samples", type=int, default=4, help="drawn numbers of rows of each (default 4)")
            one.add_argument("--seed", type=int, default=1, help="seed of products and rows (default 1)")
    given = parser.parse_args(arguments)
    try:
        result: int = given.function(given)
    except CublasError as error:
        print(error, file=sys.stderr)
        return 2
    return result


if __name__ == "__main__":
    sys.exit(main())
