"""`bitwise cublas invariance`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitwise_core.cli.common import print_answer
from bitwise_cublas_profiles.invariance.row_limit import MAXIMUM_ROWS

if TYPE_CHECKING:
    from bitwise_cublas_profiles.invariance.answers import Answers, Key, Run
    from bitwise_cublas_profiles.invariance.certificate import Certificate, Verdict
    from bitwise_cublas_profiles.invariance.confirmation import Confirmation
    from bitwise_cublas_profiles.invariance.model_products import ModelProduct
    from bitwise_cublas_profiles.invariance.products import Operator, Product
    from bitwise_cublas_profiles.invariance.settings import Settings
    from bitwise_cublas_profiles.query import GemmQuery


ROWS = 16384
"""The largest M of a certificate by default."""


@dataclass(frozen=True)
class Source:
    """Where answers come from: a file, those of this distribution, or the library on this GPU."""

    file: Path | None = None
    live: bool = False
    library: Path | None = None
    device: str | None = None
    version: str | None = None
    record: Path | None = None


def invariance(
    n: Annotated[int | None, typer.Argument(metavar="N", min=1, help="The columns of the product.")] = None,
    k: Annotated[int | None, typer.Argument(metavar="K", min=1, help="The length of the sums.")] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="bf16, fp16, fp32 or tf32; by default that of the model, or bf16.")
    ] = None,
    operator: Annotated[
        str, typer.Option("--op", help="linear: x @ weight.t(); addmm: with a bias; mm: x @ weight.")
    ] = "linear",
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", metavar=":KIB:COUNT", help="CUBLAS_WORKSPACE_CONFIG; by default not set."),
    ] = None,
    lt_workspace: Annotated[
        int | None, typer.Option("--lt-workspace", metavar="KIB", help="CUBLASLT_WORKSPACE_SIZE; by default not set.")
    ] = None,
    full_precision: Annotated[
        bool, typer.Option("--no-reduced-precision", help="Slices of split K are added in fp32 only.")
    ] = False,
    no_split: Annotated[bool, typer.Option("--no-split-k", help="K is not split.")] = False,
    prefer: Annotated[
        bool, typer.Option("--prefer-cublaslt", help='preferred_blas_library("cublaslt"), as vLLM sets it.')
    ] = False,
    model: Annotated[
        Path | None, typer.Option("--model", metavar="CONFIG", help="All products of a transformers config.json.")
    ] = None,
    fused: Annotated[bool, typer.Option("--fused", help="With --model: q, k, v and gate, up are one product.")] = False,
    parallel: Annotated[
        int, typer.Option("--tensor-parallel", min=1, metavar="GPUS", help="With --model: the products of one GPU.")
    ] = 1,
    rows: Annotated[
        int, typer.Option("--rows", min=1, max=MAXIMUM_ROWS, metavar="M", help="The largest number of rows.")
    ] = ROWS,
    answers: Annotated[
        Path | None, typer.Option("--answers", metavar="FILE", help="Recorded answers; by default those shipped.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="A part of the GPU's name, where several are recorded; by default this machine's, or the first.",
        ),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(
            "--library-version",
            metavar="12.8",
            help="The version of cuBLASLt, where several are recorded; by default the latest.",
        ),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Ask the library on this GPU.")] = False,
    library: Annotated[
        Path | None, typer.Option("--library", metavar="PATH", help="With --live: a libcublasLt.so.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="With --live: write the answers to a file.")
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Compare bytes on this GPU, beside every boundary.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print for which numbers of rows a row of a product has the same bits, from the answers of cuBLASLt's heuristic.

    Exit status: 0 every product is invariant, 1 one is not, 2 an argument is wrong, 3 some numbers of rows have no
    descriptor, 4 descriptors differ and no operands with other bytes were found.
    """
    from bitwise_cublas_profiles.invariance.certificate import STATUS, Verdict, overall
    from bitwise_cublas_profiles.invariance.confirmation import confirm
    from bitwise_cublas_profiles.invariance.model_products import (
        ModelProduct,
        model_products,
        quantised,
        read_config,
    )
    from bitwise_cublas_profiles.invariance.products import OPERATORS, Product
    from bitwise_cublas_profiles.invariance.settings import Settings
    from bitwise_cublas_profiles.query import CublasError

    given: list[ModelProduct]
    notes: list[str] = []
    if model is not None and n is None:
        config, name = read_config(model), str(model)
        given, notes = model_products(config, name, dtype, fused=fused, parts=parallel), quantised(config, name)
    elif model is None and n is not None and k is not None:
        if operator not in OPERATORS:
            raise CublasError(f"--op: {operator!r} is not one of {', '.join(OPERATORS)}")
        known: Operator = next(each for each in OPERATORS if each == operator)
        given = [ModelProduct((), Product(n, k, dtype or "bf16", known))]
    else:
        raise CublasError("give one product, N K, or a config.json with --model")
    if (record is not None or library is not None) and not live:
        raise CublasError("--record and --library need --live")
    if live and answers is not None:
        raise CublasError("give --live or --answers, not both")
    settings = Settings(
        workspace, lt_workspace, "none" if no_split else "fp32" if full_precision else "all", prefer
    )  # fmt: skip
    if live and version is not None:
        raise CublasError("--library-version chooses among recorded answers: with --live give --library")
    source = Source(answers, live, library, device, version, record)
    report = certified([each.product for each in given], settings, source, rows)
    confirmed = confirm(report.certificates, settings, report.provenance) if run else None
    verdict = overall(each.verdict for each in report.certificates)
    if confirmed is not None and any(each.refuted for each in confirmed):
        verdict = Verdict.NOT_INVARIANT
    if as_json:
        print_answer("cublas-invariance", _as_json(given, settings, report, verdict, confirmed, notes))
    else:
        _show(given, settings, report, confirmed)
        for sentence in notes:
            typer.echo(f"note: {sentence}")
    raise typer.Exit(STATUS[verdict])


@dataclass(frozen=True)
class Report:
    """Certificates, the provenance of the answers and where they come from."""

    certificates: list[Certificate]
    provenance: Mapping[str, str]
    source: str


def certified(products: list[Product], settings: Settings, source: Source, rows: int) -> Report:
    """The certificates of products under settings, up to M = rows. Raises CublasError."""
    from bitwise_cublas_profiles.invariance import answers as recorded
    from bitwise_cublas_profiles.invariance.certificate import Certifier
    from bitwise_cublas_profiles.profile import profile

    queries = [each.query(1, settings.pytorch) for each in products]
    if source.live:
        found, runs = _asked(queries, rows, source.library)
        if source.record is not None:
            recorded.write(found, source.record)
        where = "asked on this GPU"
    else:
        found, others = _stored(source)
        runs = [found.runs(query, rows) for query in queries]
        where = f"recorded in {source.file or 'this distribution'}"
        if others:
            where += f" ({', '.join(others)})"
    certifier = Certifier(profile(found.provenance["library"], found.provenance["capability"]))
    made = [
        certifier.certificate(product, query, each)
        for product, query, each in zip(products, queries, runs, strict=True)
    ]
    return Report(made, found.provenance, where)


def _asked(queries: list[GemmQuery], rows: int, path: Path | None) -> tuple[Answers, list[tuple[Run, ...]]]:
    from bitwise_cublas_profiles.driver import gpu_provenance
    from bitwise_cublas_profiles.invariance.answers import Answers, Key, ask_library
    from bitwise_cublas_profiles.library import Library

    series: dict[Key, tuple[Run, ...]] = {}
    where = gpu_provenance()
    capability = _capability()
    with Library(path) as library:
        provenance = {"library": library.version, "capability": capability, **where}
        runs = []
        for query in queries:
            key = Key.of(query)
            if key not in series:
                series[key] = ask_library(library, query, rows)
            runs.append(series[key])
    return Answers(provenance, series), runs


def _capability() -> str:
    from bitwise_cublas_profiles.query import CublasError

    try:
        import torch

        major, minor = torch.cuda.get_device_capability()
    except ImportError:
        raise CublasError("--live needs PyTorch, which is not installed") from None
    except (RuntimeError, AssertionError):
        raise CublasError("--live needs a GPU: the answers depend on its model, and there is none here") from None
    return f"{major}.{minor}"


def _stored(source: Source) -> tuple[Answers, list[str]]:
    """Return recorded answers, and what else is recorded for which no choice was given.

    Without a chosen GPU they are those of the GPU of this machine, else of the first; without a chosen version, those
    of the latest. Raises CublasError.
    """
    from bitwise_cublas_profiles.driver import gpu_provenance
    from bitwise_cublas_profiles.invariance import answers as recorded
    from bitwise_cublas_profiles.query import CublasError

    found = list(recorded.shipped()) if source.file is None else [recorded.read(source.file)]
    matching = [each for each in found if _matches(each, source)]
    devices = list(dict.fromkeys(each.provenance["device"] for each in matching))
    several = source.device is not None and len(devices) > 1
    if not matching or several:
        names = ", ".join(f"{each.provenance['device']} (cuBLASLt {each.provenance['library']})" for each in found)
        asked = " ".join(
            f"{option} {value}"
            for option, value in (("--device", source.device), ("--library-version", source.version))
            if value is not None
        )
        if several:
            wrong = f"--device {source.device!r} is a part of several names of GPUs; recorded are {names}"
        elif names:
            wrong = f"no answers for {asked} are recorded; recorded are {names}"
        else:
            wrong = "no answers are recorded"
        raise CublasError(f"{wrong}: give another name, a file with --answers, or --live on a GPU")
    here = gpu_provenance()["device"] if len(devices) > 1 else devices[0]
    device = here if here in devices else devices[0]
    of_device = [each for each in matching if each.provenance["device"] == device]
    chosen = max(of_device, key=lambda each: _numbers(each.provenance["library"]))
    others = [f"--device: those of {each}" for each in devices if each != device]
    others += [
        f"--library-version: those of cuBLASLt {each.provenance['library']}" for each in of_device if each is not chosen
    ]
    return chosen, others


def _matches(answers: Answers, source: Source) -> bool:
    """Return whether recorded answers are of the GPU and the version that were chosen."""
    device, version = (answers.provenance[name] for name in ("device", "library"))
    wanted = None if source.version is None else source.version.split(".")
    return (source.device is None or source.device in device) and (
        wanted is None or version.split(".")[: len(wanted)] == wanted
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version such as 13.1.0 as numbers, to be compared."""
    return tuple(int(each) for each in version.split(".") if each.isdecimal())


def _show(
    given: list[ModelProduct], settings: Settings, report: Report, confirmed: list[Confirmation] | None
) -> None:  # fmt: skip

    from bitwise_cublas_profiles.invariance import text

    origin = report.provenance
    typer.echo(f"cuBLASLt {origin['library']} on {origin['device']}, {settings.words}; answers {report.source}")
    for place, (each, certificate) in enumerate(zip(given, report.certificates, strict=True)):
        if each.layers:
            typer.echo(f"{', '.join(each.layers)}:")
        for line in text.lines(certificate):
            typer.echo(line)
        if confirmed is None:
            continue
        ran = confirmed[place]
        typer.echo(
            f"  {len(ran.samples)} numbers of rows ran: {len(ran.refuted)} contradict the classes; bytes differ at "
            f"{ran.different} of {ran.boundaries} boundaries"
        )
        for sentence in ran.refuted:
            typer.echo(f"  REFUTED: {sentence}")


def _as_json(
    given: list[ModelProduct], settings: Settings, report: Report, verdict: Verdict,
    confirmed: list[Confirmation] | None, notes: list[str],
) -> dict[str, Any]:  # fmt: skip

    from bitwise_cublas_profiles.invariance import text

    return {
        "verdict": verdict.value, "claim": text.CLAIM, "scope": [*text.SCOPE, *notes],
        "assumptions": list(text.ASSUMPTIONS),
        "provenance": dict(report.provenance), "answers": report.source, "settings": settings.record(),
        "products": [
            {
                "layers": list(each.layers), **text.as_json(certificate),
                **({} if confirmed is None else {"confirmation": confirmed[place].record()}),
            }
            for place, (each, certificate) in enumerate(zip(given, report.certificates, strict=True))
        ],
    }  # fmt: skip
