"""Laws of a plugin's texts: samples are there, parse, are written back, and every instruction is stated."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from bitwise_conformance.suite import cases
from bitwise_conformance.suite.cases import over
from bitwise_conformance.suite.expected import LAUNCHERS, PROFILES, Group, Kernel
from bitwise_conformance.suite.known import KNOWN_FAILURES, known_failures
from bitwise_conformance.suite.suite import Suite
from bitwise_core.asm import AssemblyError, Module
from bitwise_core.asm import Kernel as Entry
from bitwise_core.machine.arch import Arch, Context, UnknownInstruction


@over(cases.once)
def test_the_samples_are_the_plugins(suite: Suite, whole: Suite) -> None:
    """The plugin hands over something, and every folder of samples belongs to something that it does."""
    handed_over = (suite.arches, suite.matrix_units, suite.profiles, suite.launchers)
    assert any(handed_over), f"{suite.plugin.__name__} hands over nothing: name the module that implements the hooks"
    known = {arch.name for arch in suite.arches} | {unit.architecture for unit in suite.matrix_units}
    known |= {PROFILES, LAUNCHERS}
    folders = [each.name for each in suite.samples.iterdir() if each.is_dir()] if suite.samples.is_dir() else []
    stray = sorted(set(folders) - known)
    assert stray == [], f"the plugin hands over nothing that these are samples of; it knows {', '.join(sorted(known))}"


@over(cases.once)
def test_known_failures_name_cases(suite: Suite, whole: Suite) -> None:
    """Every id in the file of known failures is that of a case."""
    ids = cases.every_id(suite)
    stale = {each: get_close_matches(each, ids, n=1, cutoff=0.0) for each in known_failures(suite) if each not in ids}
    assert stale == {}, f"{KNOWN_FAILURES} names cases that do not exist (beside them the nearest that do)"


@over(cases.groups)
def test_a_group_can_be_read(suite: Suite, group: Group) -> None:
    """The manifest and what is expected fit each other, and every text is there."""
    assert group.expected.classes
    assert all(group.text(file) for file in group.launches)


@over(cases.kernels)
def test_a_text_is_parsed(suite: Suite, kernel: Kernel) -> None:
    """A text gives the same module every time, of a target that the architecture knows, with the lines of the text."""
    arch, text = suite.arch(kernel.group.arch), kernel.group.text(kernel.file)
    module = arch.parse(text, kernel.file)
    assert module == arch.parse(text, kernel.file), "the same text is parsed in two ways"
    assert module.target in arch.targets
    entry = module.kernel(kernel.group.launches[kernel.file].entry)
    assert entry.instructions
    lines = text.count("\n") + 1
    outside = [each for each in entry.instructions if not 1 <= each.line <= lines]
    assert outside == [], f"the text has {lines} lines"


@over(cases.kernels)
def test_a_cut_text_is_refused(suite: Suite, kernel: Kernel) -> None:
    """A text that ends too early is refused with its line, and so is one with a byte of another kind in it."""
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
                # Nothing is lost but what stands before or after a kernel, or in a comment.
                whole = [each.instructions for each in original.kernels]
                assert all(each.instructions in whole for each in found.kernels), f"damaged at character {place}"


def _parsed(arch: Arch, text: str, file: str) -> Module | AssemblyError:
    try:
        return arch.parse(text, file)
    except AssemblyError as error:
        return error


@over(cases.claimed("to write texts", lambda arch: arch.write is not None, lambda _: True, "add a kernel"))
def test_a_text_is_written(suite: Suite, kernel: Kernel) -> None:
    """What is written of a module is read back as that module, but for the numbers of lines."""
    arch = suite.arch(kernel.group.arch)
    assert arch.write is not None
    module = arch.parse(kernel.group.text(kernel.file), kernel.file)
    written = arch.write(module)
    again = arch.parse(written, kernel.file)
    assert _without_lines(again) == _without_lines(module), f"the written text is another kernel:\n{written}"
    assert arch.write(again) == written, "the written text is written otherwise"


def _without_lines(module: Module) -> Module:
    def bare(kernel: Entry) -> Entry:
        return replace(kernel, line=0, instructions=tuple(replace(each, line=0) for each in kernel.instructions))

    functions = {name: bare(each) for name, each in module.functions.items()}
    return replace(module, kernels=tuple(bare(each) for each in module.kernels), functions=functions)


@over(cases.kernels)
def test_every_instruction_is_stated(suite: Suite, kernel: Kernel) -> None:
    """The table of opcodes knows every instruction of a sample, with all its modifiers."""
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
