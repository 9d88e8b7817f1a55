"""Simulated bytes of one architecture that hold for another one: of kernels with one text and one meaning on both.

    python -m bitwise_bench.simulation.carried_bytes --from records/bytes-sm100-simulated-triton-3.6.0.json.gz \
        --target sm_103 --folder sm_103 --out bytes-sm103.json.gz

Where the compiler writes one text for both architectures, but for `.target`, both execute every instruction of it
alike, and the assembler fuses the same products, a simulation returns the same bytes.  Any other kernel is simulated.
`--folder` holds the compiled kernels.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.compilation.sources import stored_source
from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.corpus.cases import Case
from bitwise_bench.draws.inputs import DRAWS
from bitwise_bench.environment import analysis_environment
from bitwise_bench.recorded_bytes import CaseRecord, RecordError, Records, load_records, save_records
from bitwise_bench.simulation.recorder import FEWEST, ORDER, batches_of, simulate_case, with_surrogates
from bitwise_core.assembly.module import Instruction, Module, same_text
from bitwise_core.execution.architecture import Arch, BitSupport, Context, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import ManifestError
from bitwise_core.numerics.mma import BlockScaledSpec, MmaSpec
from bitwise_core.plugins import registry

_TARGET = re.compile(r"^\.target\s+\S+", re.MULTILINE)
_EVIDENCE: Mapping[str, Any] = {"architecture": "any", "status": "published only", "source": "https://any"}
"""One value for the fields of a row that do not decide its bits."""


def text_for(text: str, own: Arch, other: Arch) -> str:
    """Return a PTX text of an architecture with the `.target` of another one, such as sm_100a for sm_103a."""
    return _TARGET.sub(lambda found: found[0].replace(own.name, other.name), text, count=1)


def same_machine(left: Arch, right: Arch) -> bool:
    """Return whether two architectures share everything that decides bytes, but for their opcodes.

    That are the memory layout, the special registers and all else but names, audits and claims, and the functions and
    rows, except for those of integers: an integer sum is what the name of its row says.
    """
    own: dict[str, Any] = {"name": "", "targets": (), "opcodes": left.opcodes, "bits": None}
    own |= {"audit_contraction": None, "keeps_order": None}
    return replace(left, **own) == replace(right, **own) and _arithmetic(left) == _arithmetic(right)


def _arithmetic(arch: Arch) -> Mapping[str, Any]:
    """Return the own functions and rows of an architecture by their names without its name."""
    bits = arch.bits or BitSupport()
    found: dict[str, Any] = {name.removesuffix(arch.name): _parts(each) for name, each in bits.functions.items()}
    rows: tuple[MmaSpec | BlockScaledSpec, ...] = (*bits.matrix_units, *bits.block_scaled_units)
    for row in rows:
        if row.architecture == arch.name and getattr(row, "result", "") != "s32":
            found[row.name.removesuffix(arch.name)] = replace(row, **_EVIDENCE)
    return found


def _parts(function: Any) -> Any:
    """Return what two partial functions are compared by."""
    return (function.func, function.args, function.keywords) if isinstance(function, partial) else function


def same_instructions(module: Module, left: Arch, right: Arch) -> bool:
    """Return whether both architectures model every instruction of a module, by one builder each.

    A builder takes nothing from an architecture but its rows, and its name: in the names of functions and rows, and to
    refuse what the architecture lacks.
    """
    return all(
        _same_builder(instruction, Context(module, kernel, left), Context(module, kernel, right))
        for kernel in (*module.kernels, *module.functions.values())
        for instruction in {same_text(each): each for each in kernel.instructions}.values()
    )


def _same_builder(instruction: Instruction, left: Context, right: Context) -> bool:
    builders: list[Any] = []
    for context in (left, right):
        table = context.arch.opcodes
        try:
            table.build(instruction, context)
        except UnknownInstruction:
            return False
        builders.append(_parts(table.opcodes[table.name_of(instruction)].build))
    return bool(builders[0] == builders[1])


def same_audit(text: str, entry: str | None, left: Arch, right: Arch) -> bool:
    """Return whether the assembler fuses the same products of a text for two architectures."""
    return _audited(text_for(text, right, left), entry, left) == _audited(text, entry, right)


def _audited(text: str, entry: str | None, arch: Arch) -> object:
    module = arch.parse(text, "kernel")
    if arch.audit_contraction is None:
        return module.kernels, dict(module.functions)
    try:
        found = arch.audit_contraction(module, text, entry).module
    except Unsupported as error:
        return str(error)
    return found.kernels, dict(found.functions)


def carried(cases: Sequence[Case], folder: Path, records: Records) -> dict[str, CaseRecord]:
    """Return the recorded bytes that hold for configurations of another architecture, by id.

    `folder` holds the compiled kernels.  Raises RecordError for records without an architecture.
    """
    from bitwise_bench.corpus import catalogue

    loaded = registry.default()
    if "architecture" not in records.environment:
        raise RecordError("the recorded bytes name no architecture; record them again")
    left, right = (
        with_surrogates(loaded.arch(name)) for name in (records.environment["architecture"], cases[0].target)
    )
    if not same_machine(left, right):
        return {}
    recorded, found, others = records.by_id(), dict[str, CaseRecord](), catalogue.by_id(left.name)
    for case in cases:
        if (
            case.id not in recorded
            or not recorded[case.id].usable
            or replace(others[case.id], target=right.name) != case
        ):
            continue
        source = stored_source(case, folder)[0]
        text, entry = source.text, None if source.launch is None else source.launch.entry
        is_same = recorded[case.id].digest == normalised_digest(text_for(text, right, left))
        if (
            is_same
            and same_instructions(right.parse(text, case.id), left, right)
            and same_audit(text, entry, left, right)
        ):
            found[case.id] = recorded[case.id]
    return found


def kinds_of_groups(carried: Mapping[str, CaseRecord], draws: Sequence[str]) -> dict[str, int]:
    """Return how many kinds of input of ORDER all carried configurations of a group have, by group."""
    found: dict[str, int] = {}
    for case in carried.values():
        ran = {draw for draw, row in zip(draws, case.hashes, strict=True) if any(row)}
        count = next((number for number, draw in enumerate(ORDER) if draw not in ran), len(ORDER))
        group = f"{case.family}/{case.group}"
        found[group] = min(count, found.get(group, count))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the record; the exit status is 1 where a configuration could not be executed.

    Where the file exists already, what it holds is not executed again.
    """
    parser = command_parser("simulation.carried_bytes", __doc__)
    parser.add_argument("--from", dest="records", type=Path, required=True, help="simulated bytes of an architecture")
    parser.add_argument("--target", required=True, help="the other architecture")
    parser.add_argument("--folder", type=Path, required=True, help="the kernels compiled for it")
    parser.add_argument("--out", type=Path, required=True, help="where to write the record")
    parser.add_argument("--families", nargs="*", default=[], help="these families only")
    parser.add_argument("--sample", type=int, default=0, help="at most this many configurations of a family (0: all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of one configuration (default 300)")
    chosen = parser.parse_args(arguments)
    from bitwise_bench.corpus import catalogue
    from bitwise_bench.corpus.targets import sampled
    from bitwise_bench.worker_pool import run_all

    try:
        records = load_records(chosen.records)
        listed = sampled(catalogue.cases(chosen.target), chosen.sample)
        cases = [each for each in listed if not chosen.families or each.family in chosen.families]
        kept = carried(cases, chosen.folder, records)
    except (RecordError, ManifestError) as error:
        parser.error(str(error))
    print(f"the bytes of {len(kept)} of {len(cases)} configurations hold for {chosen.target}", flush=True)
    kinds = kinds_of_groups(kept, records.draws)
    answers: dict[str, Mapping[str, Any]] = {}
    if chosen.out.exists():  # an interrupted run
        before = load_records(chosen.out).by_id()
        answers = {name: _entry(each) for name, each in before.items() if name not in kept and each.error is None}
    groups: dict[str, list[str]] = {}
    for case in cases:
        if case.id not in kept and case.id not in answers:
            groups.setdefault(f"{case.family}/{case.group}", []).append(case.id)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread in each worker process
    parts = {group: (0, kinds.get(group, FEWEST)) for group in groups}
    settings = {"target": chosen.target, "parts": parts, "folder": str(chosen.folder)}
    limits: dict[str, Any] = {"processes": chosen.processes, "seconds": chosen.seconds}
    environment = {**analysis_environment(), "simulated": records.environment["simulated"]}
    environment |= {"architecture": chosen.target, "machine": platform.machine()}
    environment |= {"carried": f"{len(kept)} of {len(cases)} from {chosen.records.name}"}

    def save() -> None:
        results = []
        for case in cases:
            entry: dict[str, Any] = {"id": case.id, "family": case.family, "group": case.group}
            if case.id in kept:
                digest = normalised_digest(stored_source(case, chosen.folder)[0].text)
                hashes = _of_kinds(kept[case.id], records.draws, kinds[f"{case.family}/{case.group}"])
                results.append(
                    {**entry, **_entry(replace(kept[case.id], digest=digest, captured=digest, hashes=hashes))}
                )
            elif case.id in answers:
                results.append({**entry, **{key: each for key, each in answers[case.id].items() if key != "seconds"}})
        save_records(chosen.out, environment, DRAWS, results)

    def report(name: str, answer: Mapping[str, Any]) -> None:
        if answer.get("error"):
            print(f"FAILED {name}: {answer['error']}", file=sys.stderr, flush=True)
        answers[name] = answer
        if len(answers) % 25 == 0:
            save()

    run_all(simulate_case, batches_of(groups, {}), settings, report=report, **limits)
    save()
    return 1 if any(each.get("error") for each in answers.values()) else 0


def _entry(case: CaseRecord) -> dict[str, Any]:
    """Return a configuration as `save_records` takes it, without its name."""
    return {
        "outputs": case.outputs, "digest": case.digest, "captured": case.captured, "repeated": case.repeated,
        "hashes": case.hashes,
    }  # fmt: skip


def _of_kinds(case: CaseRecord, draws: Sequence[str], count: int) -> tuple[tuple[str, ...], ...]:
    """Return the hashes of a configuration on the first kinds of ORDER, in the order of DRAWS; others are empty."""
    of_draw = dict(zip(draws, case.hashes, strict=True))
    blank = ("",) * len(case.outputs)
    return tuple(of_draw[draw] if draw in ORDER[:count] else blank for draw in DRAWS)


if __name__ == "__main__":
    sys.exit(main())
