"""Laws of samples and of parsing: the files are valid, texts parse and print, every instruction is modelled."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from bitwise_conformance.suite import cases
from bitwise_conformance.suite.cases import over
from bitwise_conformance.suite.known_failures import KNOWN_FAILURES, known_failures
from bitwise_conformance.suite.samples import LAUNCHERS, PROFILES, Group, Kernel
from bitwise_conformance.suite.suite import Suite
from bitwise_core.assembly.module import AssemblyError, Module
from bitwise_core.assembly.module import Kernel as Entry
from bitwise_core.execution.architecture import Arch, Context, UnknownInstruction


@over(cases.once)
def test_samples_belong_to_the_plugin(suite: Suite, whole: Suite) -> None:
    """The plugin provides something, and every folder of samples belongs to something that it provides."""
    provided = (suite.arches, suite.matrix_units, suite.profiles, suite.launchers)
    assert any(provided), (
        f"{suite.plugin.__name__} implements no hook with a result; give the module that the entry point names"
    )
    known = {arch.name for arch in suite.arches} | {unit.architecture for unit in suite.matrix_units}
    known |= {PROFILES, LAUNCHERS}
    folders = [each.name for each in suite.samples.iterdir() if each.is_dir()] if suite.samples.is_dir() else []
    stray = sorted(set(folders) - known)
    assert stray == [], f"rename or remove these folders; the plugin provides {', '.join(sorted(known))}"


@over(cases.once)
def test_known_failures_name_cases(suite: Suite, whole: Suite) -> None:
    """Every id in the file of known failures is the id of a case."""
    ids = cases.every_id(suite)
    stale = {each: get_close_matches(each, ids, n=1, cutoff=0.0) for each in known_failures(suite) if each not in ids}
    assert stale == {}, f"{KNOWN_FAILURES} lists cases that do not exist (with the closest existing ids)"


@over(cases.groups)
def test_group_files_are_valid(suite: Suite, group: Group) -> None:
    """The manifest and expected.json agree, and every text exists."""
    assert group.expected.classes
    assert all(group.text(file) for file in group.launches)


@over(cases.kernels)
def test_parsing_is_deterministic(suite: Suite, kernel: Kernel) -> None:
    """Parsing a text twice gives the same module, with a target of the architecture and valid line numbers."""
    arch, text = suite.arch(kernel.group.arch), kernel.group.text(kernel.file)
    module = arch.parse(text, kernel.file)
    assert module == arch.parse(text, kernel.file), "two parses give different modules"
    assert module.target in arch.targets
    entry = module.kernel(kernel.group.launches[kernel.file].entry)
    assert entry.instructions
    lines = text.count("\n") + 1
    outside = [each for each in entry.instructions if not 1 <= each.line <= lines]
    assert outside == [], f"the text has {lines} lines"


@over(cases.kernels)
def test_damaged_texts_are_rejected(suite: Suite, kernel: Kernel) -> None:
    """A truncated text, or one with invalid characters, is rejected with a line number."""
    arch, text = suite.arch(kernel.group.arch), kernel.group.text(kernel.file)
    original = arch.parse(text, kernel.file)
    for eighths in range(8):
        place = len(text) * eighths // 8
        for damaged in (text[:place], f"{text[:place]}\0\u20ac\0{text[place:]}"):
            found = _parsed(arch, damaged, kernel.file)
            if isinstance(found, AssemblyError):
                assert found.file == kernel.file
                assert 1 <= found.line <= damaged.count("\n") + 1
            else:
                # The damage affected only text outside kernels, or a comment.
                whole = [each.instructions for each in original.kernels]
                assert all(each.instructions in whole for each in found.kernels), f"damaged at character {place}"


def _parsed(arch: Arch, text: str, file: str) -> Module | AssemblyError:
    try:
        return arch.parse(text, file)
    except AssemblyError as error:
        return error


@over(cases.claimed("printing of modules", lambda arch: arch.write is not None, lambda _: True, "add a kernel"))
def test_written_texts_parse_back(suite: Suite, kernel: Kernel) -> None:
    """A printed module parses back to the same module, except for line numbers."""
    arch = suite.arch(kernel.group.arch)
    assert arch.write is not None
    module = arch.parse(kernel.group.text(kernel.file), kernel.file)
    written = arch.write(module)
    again = arch.parse(written, kernel.file)
    assert _without_lines(again) == _without_lines(module), f"the printed text parses to another module:\n{written}"
    assert arch.write(again) == written, "printing the parsed text again gives another text"


def _without_lines(module: Module) -> Module:
    def bare(kernel: Entry) -> Entry:
        return replace(kernel, line=0, instructions=tuple(replace(each, line=0) for each in kernel.instructions))

    functions = {name: bare(each) for name, each in module.functions.items()}
    return replace(module, kernels=tuple(bare(each) for each in module.kernels), functions=functions)


@over(cases.kernels)
def test_every_instruction_is_modelled(suite: Suite, kernel: Kernel) -> None:
    """The opcode table models every instruction of a sample with all its modifiers."""
    arch = suite.arch(kernel.group.arch)
    module = arch.parse(kernel.group.text(kernel.file), kernel.file)
    unknown = []
    for entry in (*module.kernels, *module.functions.values()):
        for instruction in entry.instructions:
            try:
                arch.opcodes.build(instruction, Context(module, entry, arch))
            except UnknownInstruction as error:
                unknown.append(f"line {instruction.line}: {error}")
    assert unknown == []
