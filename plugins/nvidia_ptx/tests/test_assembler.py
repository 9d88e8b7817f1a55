"""The assembler: its location, its options, and comparison of its machine code."""

from __future__ import annotations

import os
import re
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source
from bitwise_core.errors import InputError
from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound, audit_tools, candidates, disassemblers
from bitwise_nvidia_ptx.assembler.ptxas import AssemblyFailed, Ptxas, code_digest
from bitwise_nvidia_ptx.contraction.audit import audit
from bitwise_nvidia_ptx.machine_code.object_file import with_fewer_registers
from bitwise_nvidia_ptx.text.parser import parse
from contraction_kernels import ADD, MUL, STORE, kernel
from ptx_programs import ARCH

pytestmark = pytest.mark.usefixtures("cache")


def test_line_information_and_comments_do_not_change_the_digest(ptxas: Ptxas) -> None:
    plain = kernel(MUL, ADD, STORE)
    noted = plain.replace(MUL, f".loc 1 3 4\n// a note\n{MUL}").replace(".version", '.file 1 "a.py"\n.version', 1)
    noted = noted.replace('.file 1 "a.py"\n', "", 1)
    assert ptxas.digest(noted) == ptxas.digest(plain)


def test_cache_is_used_and_allows_concurrent_writers(
    ptxas: Ptxas, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = kernel(MUL, ADD, STORE)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(ptxas.digest(text))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (kept,) = (path for path in cache.rglob("*") if path.is_file())
    assert set(found) == {found[0]}
    monkeypatch.setattr("bitwise_nvidia_ptx.assembler.ptxas.code_digest", lambda _: "f" * 64)
    assert ptxas.digest(text) == found[0]
    for content in ("0" * 64, "\0" * 64, "torn"):
        kept.write_text(content)
        assert ptxas.digest(text) == "f" * 64


def test_object_files_are_cached_and_damaged_ones_are_made_again(
    ptxas: Ptxas, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    assemble = Ptxas._assemble

    def counted(self: Ptxas, text: str, flags: list[str]) -> bytes:
        made.append(text)
        return assemble(self, text, flags)

    monkeypatch.setattr(Ptxas, "_assemble", counted)
    text = kernel(MUL, ADD, STORE)
    code = ptxas.cached_assembly(text)
    assert code == ptxas.cached_assembly(text) == ptxas.cached_assembly(text.replace(MUL, f"// a note\n{MUL}"))
    assert (code[:4], len(made)) == (b"\x7fELF", 1)
    (entry,) = (path for path in cache.rglob("*") if path.is_file() and code in path.read_bytes())
    entry.write_bytes(entry.read_bytes().replace(code, code[:-1] + b"?"))
    assert ptxas.cached_assembly(text) == code
    assert len(made) == 2


def test_two_machine_codes_with_zeroed_entries_stay_different(ptxas: Ptxas, cache: Path) -> None:
    texts = [kernel(MUL, ADD, STORE), kernel(MUL, ADD.replace("add", "sub"), STORE)]
    first = [ptxas.digest(text) for text in texts]
    for path in cache.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\0" * 64)
    assert [ptxas.digest(text) for text in texts] == first
    assert first[0] != first[1]


def test_every_part_of_an_assembler_is_in_the_key(ptxas: Ptxas, cache: Path, tmp_path: Path) -> None:
    text = kernel(MUL, ADD, STORE).replace(".target sm_90a", ".target sm_80")
    tool = tmp_path / "ptxas"
    tool.write_text(f'#!/bin/sh\nexec {ptxas.path} "$@"\n')
    tool.chmod(0o755)

    def entries() -> int:
        return len([path for path in cache.rglob("*") if path.is_file()])

    made = 0
    for each in (ptxas, replace(ptxas, gpu="sm_80"), replace(ptxas, options=("-O1",)), replace(ptxas, path=str(tool))):
        each.digest(text)
        each.digest(text)
        made += 1
        assert entries() == made
    ptxas.digest(text, fuse=False)
    assert entries() == made + 1
    tool.write_text(f'#!/bin/sh\n# another file of the same version\nexec {ptxas.path} "$@"\n')
    replace(ptxas, path=str(tool)).digest(text)
    assert entries() == made + 2


def test_a_missing_assembler_raises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(PtxasNotFound, match="not an executable"):
        Ptxas.locate("sm_90", path=tmp_path / "absent")
    for name in ("BITWISE_PTXAS", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("_in_triton_wheel", "_toolkits", "_in_nvidia_wheels"):
        monkeypatch.setattr(f"bitwise_nvidia_ptx.assembler.installed.{name}", lambda *_: iter(()))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    text = kernel(MUL, ADD, STORE)
    module = parse(text, "kernel.ptx")
    with pytest.raises(PtxasNotFound, match="set BITWISE_PTXAS"):
        audit(module, text, ARCH.opcodes, arch="sm_90")
    with pytest.raises(ValueError, match="not of the form"):
        Ptxas.locate("hopper")
    with pytest.raises(ValueError, match="give the architecture"):
        audit(module, text, ARCH.opcodes)


def test_environment_variables_select_the_assembler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.93'\n")
    os.chmod(tool, tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("BITWISE_PTXAS", str(tool))
    found = Ptxas.locate("sm_90")
    assert (found.path, found.gpu, found.version) == (str(tool), "sm_90a", "12.8.93")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("absent", "does not exist"),
        ("folder", "is not an executable file"),
        ("text", "is not an executable file"),
        ("failing", "does not run or does not print its version"),
    ],
)
def test_a_named_assembler_is_never_replaced(
    name: str, fault: str, ptxas: Ptxas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("#!/bin/sh\n")
    (tmp_path / "failing").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "failing").chmod(0o755)
    path, text = str(tmp_path / name), kernel(MUL, ADD, STORE)
    monkeypatch.setenv("BITWISE_PTXAS", path)
    sentence = f"BITWISE_PTXAS: {path} {fault}; set BITWISE_PTXAS to the path of a ptxas, or unset it"
    for given in (None, text):
        with pytest.raises(InputError, match=re.escape(sentence)):
            Ptxas.locate("sm_90", text=given)
    assert Ptxas.locate("sm_90", path=ptxas.path).path == ptxas.path
    found = analyse(Source("kernel.ptx", text, None), ARCH, {}, Options(every_launch=True))
    assert (found.malformed, found.unknown) == (True, sentence)
    monkeypatch.delenv("BITWISE_PTXAS")
    monkeypatch.setenv("TRITON_PTXAS_PATH", path)
    assert Ptxas.locate("sm_90", text=text).path != path


@pytest.mark.parametrize(
    ("version", "arch", "tool", "options"),
    [
        ((3, 6, 0), "sm_90", "ptxas", ()),
        ((3, 6, 0), "sm_100", "ptxas-blackwell", ()),
        ((3, 7, 1), "sm_90", "ptxas", ("--regAllocOptLevel=2",)),
        ((3, 9, 0), "sm_90", "ptxas-blackwell", ("--regAllocOptLevel=2",)),
        ((3, 9, 0), "sm_80", "ptxas", ("--regAllocOptLevel=2",)),
    ],
)
def test_tool_and_options_are_those_of_triton(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    version: tuple[int, ...],
    arch: str,
    tool: str,
    options: tuple[str, ...],
) -> None:
    for name in ("BITWISE_PTXAS", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ptxas", "ptxas-blackwell"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr("bitwise_nvidia_ptx.assembler.installed.triton_version", lambda: version)
    monkeypatch.setattr(
        "bitwise_nvidia_ptx.assembler.installed._in_triton_wheel", lambda name: iter([str(tmp_path / name)])
    )
    found = Ptxas.locate(arch)
    assert (found.path, found.options) == (str(tmp_path / tool), options)


def test_code_digest_raises_for_bytes_that_are_not_elf() -> None:
    with pytest.raises(AssemblyFailed, match="64-bit ELF"):
        code_digest(b"")


SCALED = (
    "abs.f32 %r4, %r0;", "abs.f32 %r5, %r1;",
    "setp.gt.f32 %p1, %r4, 0f7E800000;", "setp.geu.f32 %p2, %r5, 0f00800000;",
    "selp.f32 %r6, %r2, %r3, %p1;", "@!%p2 mul.rn.f32 %r6, %r6, 0f4B800000;", "rcp.approx.ftz.f32 %r7, %r6;",
    "selp.f32 %r8, %r3, %r2, %p1;", "@!%p2 mul.rn.f32 %r8, %r8, 0f4B800000;", "mul.rn.f32 %r10, %r7, %r8;", STORE,
)  # fmt: skip


def same(ptxas: Ptxas, original: str | bytes, text: str, fuse: bool = True) -> bool:
    (found,) = ptxas.equal_dataflow(original, [(text, fuse)])
    return found


def test_names_of_registers_are_ignored(ptxas: Ptxas) -> None:
    text = kernel(*SCALED)
    other = kernel(*SCALED[:2], SCALED[3], SCALED[2], *SCALED[4:])
    assert ptxas.digest(text) != ptxas.digest(other)
    assert same(ptxas, text, other)
    assert same(ptxas, ptxas.assemble(text), other)
    assert same(ptxas, text, text)
    assert list(ptxas.equal_dataflow(text, [(kernel(STORE), True), (other, True)])) == [False, True]


def test_the_sign_of_a_product_may_be_in_its_constant(ptxas: Ptxas) -> None:
    minus = kernel("fma.rn.f32 %r10, %r0, 0fBC000000, %r1;", STORE)
    neg = kernel("neg.f32 %r4, %r0;", "fma.rn.f32 %r10, %r4, 0f3C000000, %r1;", STORE)
    apart = kernel("mul.rn.f32 %r4, %r0, 0fBC000000;", "add.rn.f32 %r10, %r4, %r1;", STORE)
    assert ptxas.digest(minus) != ptxas.digest(neg)
    plus = kernel("fma.rn.f32 %r10, %r0, 0f3C000000, %r1;", STORE)
    texts = [(each, True) for each in (neg, apart, neg.replace("0f3C000000", "0f3C000001"), plus)]
    assert list(ptxas.equal_dataflow(minus, texts)) == [True, False, False, False]


CHANGED_OPERANDS = [
    (0, "%r0", "%r1"),
    (2, "gt", "ge"),
    (2, "0f7E800000", "0f7E800001"),
    (2, "%p1", "%p2"),
    (4, "%p1", "%p2"),
    (4, "%r2", "%r3"),
    (5, "@!%p2", "@%p2"),
    (5, "@!%p2", "@!%p1"),
    (7, "%p1", "%p2"),
    (8, "@!%p2", "@!%p1"),
    (8, "@!%p2", ""),
    (9, "rn", "rz"),
    (10, "%r10", "%r8"),
]


def test_a_changed_operand_changes_the_machine_code(ptxas: Ptxas) -> None:
    """The original is disassembled once."""
    swapped = [*SCALED[:2], SCALED[3], SCALED[2], *SCALED[4:]]
    texts = []
    for place, old, new in CHANGED_OPERANDS:
        changed = [line.replace(old, new) if line == SCALED[place] else line for line in swapped]
        assert changed != swapped
        texts.append((kernel(*changed), True))
    found = ptxas.equal_dataflow(kernel(*SCALED), texts)
    assert [change for change, equal in zip(CHANGED_OPERANDS, found, strict=True) if equal] == []


DECLARED = """.extern .func free(.param .b64 x);
.extern .func (.param .b64 r) malloc(.param .b64 x);
.visible .entry"""
GUARDED = (
    "setp.gt.f32 %p1, %r0, %r1;", "@%p1 bra $valid;",
    "{ .param .b64 x; .param .b64 r; st.param.b64 [x], %rd3; call free, (x); }", "trap;", "$valid:",
    "mul.rn.f32 %r4, %r0, 0f3C000000;", "sub.rn.f32 %r10, %r2, %r4;", STORE,
)  # fmt: skip


CHANGED_CALLS = {
    ("%r0, 0f3C000000", "0f3C000000, %r0"): True,
    ("sub.rn.f32 %r10, %r2, %r4", "neg.f32 %r4, %r4; add.rn.f32 %r10, %r4, %r2"): True,
    ("call free", "call (r), malloc"): False,
    ("call free, (x);", ""): False,
    ("%r0, %r1;", "%r0, %r2;"): False,
    ("@%p1", "@!%p1"): False,
    ("%r2, %r4;", "%r4, %r2;"): False,
    ("0f3C000000", "0f3C000001"): False,
}


def test_functions_that_another_file_defines(ptxas: Ptxas) -> None:
    text = kernel(*GUARDED).replace(".visible .entry", DECLARED)
    changed = [text.replace(*each) for each in CHANGED_CALLS]
    assert text not in changed
    found = ptxas.equal_dataflow(text, [(each, True) for each in changed])
    assert dict(zip(CHANGED_CALLS, found, strict=True)) == CHANGED_CALLS


MANY = 256


def _many_registers(last: str) -> str:
    """Return the text of a kernel that needs more registers than there are."""
    count = MANY
    lines = [f".reg .b32 %v<{count + 1}>;", f"mov.b32 %v{count}, 0f00000000;"]
    lines += [f"ld.volatile.global.b32 %v{i}, [%rd1+{4 * i}];" for i in range(count)]
    lines += [f"add.rn.f32 %v{count}, %v{count}, %v{i};" for i in range(count)]
    lines += [f"fma.rn.f32 %v{i}, %v{i}, %v{count}, %v{i};" for i in range(count - 1)]
    lines += [last, *(f"st.volatile.global.b32 [%rd2+{4 * i}], %v{i};" for i in range(count))]
    return kernel(*lines)


def test_code_with_all_registers(ptxas: Ptxas) -> None:
    text = _many_registers("fma.rn.f32 %v255, %v255, 0f3C000000, %v256;")
    cubin = ptxas.assemble(text)
    changed = with_fewer_registers(cubin)
    assert changed is not None
    assert sum(one != other for one, other in zip(cubin, changed, strict=True)) == 1
    assert code_digest(changed) == code_digest(cubin)
    assert with_fewer_registers(changed) is None
    others = {
        "fma.rn.f32 %v255, 0f3C000000, %v255, %v256;": True,
        "neg.f32 %v255, %v255; fma.rn.f32 %v255, %v255, 0fBC000000, %v256;": True,
        "fma.rn.f32 %v255, %v255, 0f3C000000, %v254;": False,
        "mul.rn.f32 %v255, %v255, 0f3C000000; add.rn.f32 %v255, %v255, %v256;": False,
    }
    found = ptxas.equal_dataflow(cubin, [(_many_registers(each), True) for each in others])
    assert dict(zip(others, found, strict=True)) == others


def test_a_product_by_1_is_exact(ptxas: Ptxas) -> None:
    total = kernel("add.rn.f32 %r10, %r0, %r1;", STORE)
    fused = "rcp.approx.ftz.f32 %r4, 0f3F800000; fma.rn.f32 %r10, %r0, %r4, %r1;"
    assert ptxas.digest(total) != ptxas.digest(kernel(fused, STORE))
    by_2, to_another = fused.replace("0f3F800000", "0f40000000"), fused.replace("%r0, %r4, %r1", "%r0, %r4, %r2")
    texts = [(kernel(each, STORE), True) for each in (fused, by_2, to_another)]
    assert list(ptxas.equal_dataflow(total, texts)) == [True, False, False]


def test_without_a_disassembler_nothing_is_proved(ptxas: Ptxas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitwise_nvidia_ptx.assembler.installed.disassemblers", lambda _: ())
    assert not same(ptxas, kernel(*SCALED), kernel(*SCALED))
    assert not ptxas.rounds_exponentials(kernel(*SCALED))


def test_a_disassembler_that_lists_other_code_proves_nothing(
    ptxas: Ptxas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text("#!/bin/sh\necho nothing\n")
    tool.chmod(0o755)
    known = disassemblers(ptxas.path)
    monkeypatch.setattr("bitwise_nvidia_ptx.assembler.installed.disassemblers", lambda _: (str(tool),))
    assert not same(ptxas, kernel(*SCALED), kernel(*SCALED))
    # An old disassembler does not know a later architecture: the next one is asked.
    monkeypatch.setattr("bitwise_nvidia_ptx.assembler.installed.disassemblers", lambda _: (str(tool), *known))
    assert same(ptxas, kernel(*SCALED), kernel(*SCALED))


def _assembler(path: Path, ptxas: Ptxas, *versions: str) -> Path:
    """Write an assembler that accepts only these `.version`s, and prints the release of CUDA 13.7."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cases = "|".join(f"*'.version {each}'*" for each in versions)
    path.write_text(
        f"""#!/bin/sh
case "$*" in --version) echo 'Cuda compilation tools, release 13.7, V13.7.1'; exit;; esac
for each; do case "$each" in *.ptx) source="$each";; esac; done
case "$(cat "$source")" in {cases}) ;; *) echo "$source, line 1; fatal   : Unsupported .version" >&2; exit 1;; esac
sed -i 's/^[.]version .*/.version 8.7/' "$source"
exec {ptxas.path} "$@"
"""
    )
    path.chmod(0o755)
    return path


def test_the_first_assembler_that_accepts_the_text_is_taken(
    ptxas: Ptxas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CUDA_PATH", raising=False)
    old = _assembler(tmp_path / "old" / "ptxas", ptxas, "8.7")
    newer = _assembler(tmp_path / "cuda" / "bin" / "ptxas", ptxas, "8.7", "97.1")
    monkeypatch.setenv("BITWISE_PTXAS", str(old))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    text = kernel(MUL, ADD, STORE)
    found = Ptxas.locate("sm_90", text=text)
    assert (found.path, found.origin, found.preferred) == (str(old), "of BITWISE_PTXAS", "")
    newest = text.replace(".version 8.7", ".version 97.1")
    found = Ptxas.locate("sm_90", text=newest)
    assert (found.path, found.origin) == (str(newer), "of the CUDA toolkit")
    assert found.description.startswith("ptxas 13.7.1 of the CUDA toolkit, because ")
    assert "ptxas 13.7.1 of BITWISE_PTXAS rejects the text: Unsupported .version" in found.description
    module = parse(newest, "kernel.ptx")
    audited = audit(module, newest, ARCH.opcodes, arch="sm_90")
    assert audited.resolved
    assert audited.assembler == found.description
    with pytest.raises(PtxasNotFound, match="no ptxas accepts the text"):
        Ptxas.locate("sm_90", text=text.replace(".version 8.7", ".version 97.2"))


def test_every_assembler_that_may_be_chosen_identifies_the_tools(
    ptxas: Ptxas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    before = audit_tools()
    tool = _assembler(tmp_path / "bin" / "ptxas", ptxas, "8.7")
    added = audit_tools()
    tool.write_text(tool.read_text() + "# another file\n")
    assert len({before, added, audit_tools()}) == 3
    wheel = _assembler(tmp_path / "nvidia" / "cu99" / "bin" / "ptxas", ptxas, "8.7")
    assert str(wheel) not in [path for path, _ in candidates("ptxas")]
    monkeypatch.setattr("bitwise_nvidia_ptx.assembler.installed._in_nvidia_wheels", lambda: iter([str(wheel)]))
    assert (str(wheel), "of the wheel of nvcc") in list(candidates("ptxas"))
    assert len({before, added, audit_tools()}) == 3
