"""The commands on kernels: partition, determinism, diff, tree and run.

These are their options.  What answers a command is imported when it runs.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bitwise_core.cli.common import as_errors, assumptions, kept_readings, kernels
from bitwise_core.limits import READING_SECONDS

if TYPE_CHECKING:
    from bitwise_core.checker.sources import Options

Target = Annotated[
    str | None,
    typer.Option("--target", metavar="ARCH", help="The architecture; by default the one that the files state."),
]
EveryLaunch = Annotated[
    bool, typer.Option("--every-launch", help="Prove for every launch, not only for the launches of the manifest.")
]
Assume = Annotated[
    list[str] | None,
    typer.Option(
        "--assume",
        metavar="CONDITION",
        help="A condition that proofs may assume: finite, lowest-lane, matrix-arithmetic, pipeline-in-order, "
        "proxies-together, warp-order, work-stealing; or any-lane, proxies-apart or units-apart, which take a default "
        "away.",
    ),
]
NoContractionAudit = Annotated[
    bool,
    typer.Option(
        "--no-contraction-audit",
        help="Do not check which products the assembler fuses into sums; a note of the verdict says so.",
    ),
]
ManifestFile = Annotated[
    Path | None,
    typer.Option("--manifest", metavar="FILE", help="The launches; by default manifest.json in each file's folder."),
]
Entry = Annotated[
    str | None, typer.Option("--entry", metavar="NAME", help="The kernel's name, where a file has several entries.")
]
TimeLimit = Annotated[
    float,
    typer.Option("--time-limit", metavar="SECONDS", min=0, help="The maximum time for one kernel; 0 sets none."),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Do not use results of earlier runs, and keep none of this run.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="The number of processes; by default one for each CPU core.")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="ADDRESS", help="Read the kernels on the workers of this dask scheduler (tcp://...)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class TreeFormat(StrEnum):
    """The output formats of `bitwise tree`."""

    TEXT = "text"
    JSON = "json"
    SVG = "svg"


def _options(every_launch: bool, assume: list[str] | None, no_audit: bool, time_limit: float = 0) -> Options:
    from bitwise_core.checker.sources import Options

    return Options(
        every_launch=every_launch,
        assume=assumptions(assume or ()),
        audit_contraction=not no_audit,
        time_limit=time_limit or None,
    )


def partition(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A folder of assembly files, with or without manifest.json.")
    ],
    target: Target = None,
    every_launch: EveryLaunch = False,
    assume: Assume = None,
    no_contraction_audit: NoContractionAudit = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    time_limit: TimeLimit = READING_SECONDS,
    no_cache: NoCache = False,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write an HTML report to this file.")
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--source", metavar="FILE",
            help="With --html: show this source of the kernels; sources beside the kernels are found.",
        ),
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option("--sarif", metavar="FILE", help="Also write the findings as a SARIF log.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Also write a JUnit report, a test for each kernel.")
    ] = None,
    expected: Annotated[
        Path | None,
        typer.Option("--expected", metavar="FILE", help="Compare the classes with the expected ones of this file."),
    ] = None,
    update_expected: Annotated[
        bool, typer.Option("--update-expected", help="Write the classes to the file of --expected instead.")
    ] = False,
) -> None:  # fmt: skip
    """Partition the kernels of a folder by equal bits.

    Kernels of one class are proved to return the same bits.  Without manifest.json this holds for every launch.

    Exit status: 0 done (each Unknown kernel is a class by itself), 1 the classes are not the expected ones, 2 a file or
    an argument is wrong.
    """
    with as_errors():
        from bitwise_core.cli import answered_questions, partition_command

        options = _options(every_launch, assume, no_contraction_audit, time_limit)
        with kept_readings(not no_cache) as cache:
            readers = answered_questions.ReaderSettings(workers, scheduler, cache)
            outputs = partition_command.Outputs(
                as_json, html, sarif, junit, expected, update_expected, tuple(source or ())
            )
            status = partition_command.run(path, target, options, readers, outputs)
    raise typer.Exit(status)


def determinism(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Folders of assembly files, or assembly files.")
    ],
    target: Target = None,
    every_launch: EveryLaunch = False,
    assume: Assume = None,
    no_contraction_audit: NoContractionAudit = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    time_limit: TimeLimit = READING_SECONDS,
    no_cache: NoCache = False,
    as_json: AsJson = False,
) -> None:
    """Prove that kernels return the same bits in every run.

    Otherwise name the places that make their results depend on the order of threads.

    Exit status: 0 all are deterministic, 1 a kernel is nondeterministic (two orders of threads leave different bytes),
    2 a file or an argument is wrong, 3 unknown (neither is proved of a kernel).
    """
    with as_errors():
        from bitwise_core.cli import answered_questions, determinism_command

        options = _options(every_launch, assume, no_contraction_audit, time_limit)
        with kept_readings(not no_cache) as cache:
            readers = answered_questions.ReaderSettings(workers, scheduler, cache)
            status = determinism_command.run(paths, target, options, readers, as_json)
    raise typer.Exit(status)


def diff(
    left: Annotated[str, typer.Argument(metavar="A", help="An assembly file, or FILE#2 for its second launch.")],
    right: Annotated[str, typer.Argument(metavar="B", help="The assembly file to compare it with.")],
    manifest: ManifestFile = None,
    entry: Entry = None,
    target: Target = None,
    every_launch: EveryLaunch = False,
    assume: Assume = None,
    no_contraction_audit: NoContractionAudit = False,
    search: Annotated[
        bool, typer.Option("--search/--no-search", help="Search for a counterexample where no proof is found.")
    ] = True,
    search_seconds: Annotated[
        float, typer.Option("--search-seconds", min=1, help="The maximum time of the search, in seconds.")
    ] = 5.0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.npz", help="Write the input of a counterexample to this file.")
    ] = None,
    time_limit: TimeLimit = READING_SECONDS,
    no_cache: NoCache = False,
    as_json: AsJson = False,
) -> None:
    """Prove that two kernels return the same bits.

    Otherwise show where they diverge, and search for an input on which their bytes differ.

    Exit status: 0 equal, 1 different (both kernels were run on a counterexample), 2 a file or an argument is wrong,
    3 unknown (a kernel could not be analysed), 4 unproved (the canonical forms differ).
    """
    with as_errors():
        from bitwise_core.cli import diff_command

        options = _options(every_launch, assume, no_contraction_audit, time_limit)
        settings = diff_command.SearchSettings(search_seconds, out) if search else None
        with kept_readings(not no_cache) as cache:
            status = diff_command.run(left, right, manifest, entry, target, options, as_json, settings, cache)
    raise typer.Exit(status)


def tree(
    kernel: Annotated[str, typer.Argument(metavar="A", help="An assembly file, or FILE#2 for its second launch.")],
    element: Annotated[
        str, typer.Option("--element", metavar="BUFFER[INDEX]", help="The output element, such as 'Y[0]'.")
    ],
    manifest: ManifestFile = None,
    entry: Entry = None,
    target: Target = None,
    assume: Assume = None,
    no_contraction_audit: NoContractionAudit = False,
    output_format: Annotated[TreeFormat, typer.Option("--format", help="The output format.")] = TreeFormat.TEXT,
    whole: Annotated[bool, typer.Option("--whole", help="Print the whole tree, however large it is.")] = False,
) -> None:
    """Print how one output element is computed.

    The output is the element's dependence tree over the initial content of memory.

    Exit status: 0 printed, 2 a file or an argument is wrong, 3 the kernel cannot be analysed.
    """
    with as_errors():
        options = _options(False, assume, no_contraction_audit)
        (source,), arch, options = kernels((kernel,), manifest, entry, target, options)
        from bitwise_core.cli import tree_command
        from bitwise_core.plugins import registry

        status = tree_command.run(
            source, registry.default().arch(arch.name), options, element, output_format.value, whole
        )
    raise typer.Exit(status)


def run(
    kernel: Annotated[str, typer.Argument(metavar="A", help="An assembly file, or FILE#2 for its second launch.")],
    inputs: Annotated[Path, typer.Option("--inputs", metavar="FILE.npz", help="The buffers before the launch.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE.npz", help="Write the buffers after the launch to this file.")
    ],
    manifest: ManifestFile = None,
    entry: Entry = None,
    target: Target = None,
    no_contraction_audit: NoContractionAudit = False,
    as_json: AsJson = False,
) -> None:
    """Run a kernel on the CPU with the GPU's exact bits.

    The arrays have the names of the manifest's buffers; types that NumPy lacks (bf16, fp8) are unsigned integers.

    Exit status: 0 written, 2 a file or an argument is wrong, 3 the kernel cannot be run exactly.
    """
    with as_errors():
        options = _options(False, None, no_contraction_audit)
        (source,), arch, options = kernels((kernel,), manifest, entry, target, options)
        from bitwise_core.cli import run_command
        from bitwise_core.plugins import registry

        status = run_command.run(source, registry.default().arch(arch.name), options, inputs, out, as_json)
    raise typer.Exit(status)
