"""Long integer arithmetic on a byte is one function: its signature states which bits it returns for each value."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_conformance.suite.tree_evaluation import value_of
from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source
from bitwise_core.cli.tree_command import tree_of
from bitwise_core.execution import byte_functions, byte_tables, instruction_cones
from bitwise_core.execution.architecture import infos_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.program import build
from gfx942_kernels import Array, launch_of, reading, run, text_of

DECODED = [0, 0x1800, 0x1C00, 0x1E00, 0x2000, 0x2100, 0x2200, 0x2300]
"""The fp16 patterns of the fp8e4nv numbers 0 to 7 * 2**-9, which are subnormal there."""


def decode_e4m3(byte: int) -> int:
    """Return the fp16 pattern of an fp8e4nv number, with arithmetic of numbers."""
    sign, exponent, fraction = byte >> 7, byte >> 3 & 15, byte & 7
    if exponent == 15 and fraction == 7:
        return sign << 15 | 0x7E00
    number = (fraction / 8 if exponent == 0 else 1 + fraction / 8) * 2.0 ** (max(exponent, 1) - 7)
    return sign << 15 | int(np.float16(number).view(np.uint16))


def decoder(source: str, result: int, order: str = "01234567", first: int = 10, mask: int = 0x3F80) -> str:
    """Return instructions that convert the byte in the low bits of `source` to fp16, as LLVM emits them.

    `order` lists the subnormal numbers in the order of their comparisons; `first` is the first of four registers.
    """
    a, b, c = (f"v{first + each}" for each in range(3))
    lines = [
        f"v_lshlrev_b16_e32 {a}, 7, {source}",
        f"v_and_b32_e32 {a}, {mask:#x}, {a}",
        f"v_add_u16_e32 {a}, 0x2000, {a}",
        f"v_and_b32_e32 {b}, 0x7f, {source}",
        f"v_mov_b32_e32 v{first + 3}, 0x7e00",
        "s_movk_i32 s20, 0x7f",
        f"v_cmp_ne_u16_e64 s[22:23], s20, {b}",
        f"v_cndmask_b32_e64 {a}, v{first + 3}, {a}, s[22:23]",
    ]
    for digit in order:
        lines += [
            f"v_mov_b32_e32 v{first + 3}, {DECODED[int(digit)]:#x}",
            f"v_cmp_ne_u16_e32 vcc, {digit}, {b}",
            f"v_cndmask_b32_e32 {a}, v{first + 3}, {a}, vcc",
        ]
    lines += [
        f"v_lshlrev_b16_e32 {c}, 8, {source}",
        f"v_and_b32_e32 {c}, 0xffff8000, {c}",
        f"v_or_b32_e32 v{result}, {a}, {c}",
    ]
    return "\n".join(lines)


def both(first: str, second: str) -> str:
    """Return instructions that pack the results in v6 and v7 into v5."""
    return f"{first}\n{second}\ns_mov_b32 s24, 0x5040100\nv_perm_b32 v5, v7, v6, s24"


ALL = np.arange(256, dtype=np.uint64)
EXPECTED = np.array([decode_e4m3(each) for each in range(256)], dtype=np.uint32)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[byte_tables.Function | None]:
    """The functions that cones compute, in the order in which they are found; none is cached."""
    kept: list[byte_tables.Function | None] = []
    make = byte_tables._function

    def noted(*arguments: object) -> byte_tables.Function | None:
        kept.append(make(*arguments))  # type: ignore[arg-type]
        return kept[-1]

    monkeypatch.setattr(byte_tables, "_function", noted)
    byte_tables._FUNCTIONS.clear()
    return kept


def test_the_table_of_a_conversion_is_that_of_the_numbers(found: list[byte_tables.Function | None]) -> None:
    random = np.random.default_rng(4)
    body = decoder("v2", 5)
    words = ALL | random.integers(0, 1 << 24, 256, dtype=np.uint64) << np.uint64(8)
    assert (run(body, words, threads=256) == EXPECTED).all()
    assert reading(body).signature is not None
    (function,) = found
    assert function is not None
    bytes_of_parts = [(part.low, part.bits, [byte for _, byte in part.atoms]) for part in function]
    assert bytes_of_parts == [(0, 16, [0]), (16, 16, [])]
    assert (function[0].table == EXPECTED).all()
    assert int(function[1].table) == 0


def test_one_function_has_one_signature() -> None:
    """Registers, the order of comparisons and that of independent instructions do not matter; every bit does."""
    plain = decoder("v2", 5)
    same = [
        decoder("v2", 5, order="76543210"),
        decoder("v2", 5, order="31742065", first=20),
        f"v_mov_b32_e32 v30, v2\n{decoder('v30', 5)}",
        decoder("v2", 5).replace(
            "v_add_u16_e32 v10, 0x2000, v10", "v_or_b32_e32 v10, 0, v10\nv_add_u16_e32 v10, 0x2000, v10"
        ),
    ]
    signature = reading(plain).signature
    assert signature is not None
    assert {reading(each).signature for each in same} == {signature}
    others = [
        plain.replace("0x7e00", "0x7e01"),
        plain.replace("0x2000", "0x2001"),
        plain.replace("0x1800", "0x1801"),
        plain.replace("0x3f80", "0x3f00"),
        decoder("v3", 5),
        f"v_lshrrev_b32_e32 v30, 8, v2\n{decoder('v30', 5)}",
    ]
    assert len({signature, *(reading(each).signature for each in others), None}) == len(others) + 2


def test_halves_of_one_register_are_functions_of_their_own_bytes(found: list[byte_tables.Function | None]) -> None:
    one, other = decoder("v2", 6), "v_lshrrev_b32_e32 v30, 8, v2\n" + decoder("v30", 7, first=20)
    random = np.random.default_rng(5)
    words = random.integers(0, 1 << 32, 1024, dtype=np.uint64)
    low, high = (EXPECTED[(words >> np.uint64(shift) & np.uint64(255)).astype(int)] for shift in (0, 8))
    assert (run(both(one, other), words, threads=1024) == low | high << np.uint32(16)).all()
    together = reading(both(one, other)).signature
    assert found[-1] is not None
    assert [[byte for _, byte in part.atoms] for part in found[-1]] == [[0], [1]]
    assert len({number for part in found[-1] for number, _ in part.atoms}) == 1
    # Through memory, each half is a cone of its own.
    apart = (
        f"{one}\n{other}\nds_write_b16 v1, v6\nds_write_b16 v1, v7 offset:2\ns_waitcnt lgkmcnt(0)\nds_read_b32 v5, v1"
    )
    assert reading(apart).signature == together is not None
    swapped = both(
        one.replace("v2", "v30"), other.replace("v_lshrrev_b32_e32 v30, 8, v2", "v_lshrrev_b32_e32 v30, 8, v2")
    )
    assert reading(f"v_lshrrev_b32_e32 v30, 8, v2\n{swapped}").signature not in (together, None)


def drawn_program(random: np.random.Generator) -> list[str]:
    """Return twenty instructions that compute v5 from one or two bytes of v2."""
    place = int(random.integers(4))
    lines = [f"v_bfe_u32 v10, v2, {8 * place}, 8", "v_mov_b32_e32 v11, v10"]
    if random.random() < 0.3:
        lines[1] = f"v_bfe_u32 v11, v2, {8 * int(random.integers(4))}, 8"
    for _ in range(18):
        number = int(random.integers(1, 200))
        old = f"v{random.choice([10, 11])}"
        lines.append(
            str(
                random.choice(
                    [
                        f"v_add_u32_e32 v10, {number}, v10",
                        f"v_xor_b32_e32 v10, v10, {old}\nv_add_u32_e32 v10, {number}, v10",
                        f"v_and_b32_e32 v11, {number:#x}, v11\nv_or_b32_e32 v10, v10, v11",
                        f"v_lshlrev_b32_e32 v11, {number % 9}, v10\nv_xor_b32_e32 v10, v11, v10",
                        "v_lshrrev_b32_e32 v10, 1, v10\nv_sub_u32_e32 v10, v11, v10",
                        f"v_cmp_gt_u32_e32 vcc, {number}, {old}\nv_cndmask_b32_e32 v10, v10, v11, vcc\n"
                        f"v_add_u32_e32 v10, {number}, v10",
                        f"v_cmp_ne_u16_e64 s[22:23], {number % 64}, v10\nv_cndmask_b32_e64 v11, 0, v11, s[22:23]\n"
                        "v_add_u32_e32 v10, v11, v10",
                        f"v_perm_b32 v10, v11, v10, s20\nv_min_u32_e32 v10, {number:#x}, v10",
                    ]
                )
            )
        )
    return ["s_mov_b32 s20, 0x07020100", *lines, "v_mov_b32_e32 v5, v10"]


def mutated(random: np.random.Generator, program: list[str]) -> list[str]:
    """Return the program with one number of one instruction changed."""
    place = int(random.integers(3, len(program) - 1))
    head, _, number = program[place].partition(", ")
    first, *rest = number.split(", ", 1)
    if first.lstrip("0x").isalnum() and not first.startswith(("v", "s")) and first not in ("0", "1"):
        first = str(int(first, 0) ^ int(random.choice([1, 2, 4])))
    else:
        head, first = f"v_xor_b32_e32 v10, {int(random.integers(0, 2))}, v10\n{head}", first
    return [*program[:place], ", ".join([f"{head}, {first}", *rest]), *program[place + 1 :]]


WORDS = np.concatenate(
    [ALL << np.uint64(8 * place) | np.uint64(0x5A3C96E1 & ~(255 << 8 * place)) for place in range(4)]
    + [np.random.default_rng(8).integers(0, 1 << 32, 3072, dtype=np.uint64)]
)
"""All values of each byte, and words of which each pair of bytes has many values."""


def results(program: list[str]) -> bytes:
    """Return what a program computes of many words."""
    return b"".join(run("\n".join(program), part, threads=1024).tobytes() for part in np.split(WORDS, 4))


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_equal_where_they_compute_the_same(
    seed: int, found: list[byte_tables.Function | None]
) -> None:
    random = np.random.default_rng([17, seed])
    program = drawn_program(random)
    whole, bits = reading("\n".join(program)), results(program)
    assert whole.signature is not None
    for _ in range(4):
        other = mutated(random, program)
        assert (reading("\n".join(other)).signature == whole.signature) == (results(other) == bits)
    assert found
    assert all(function is not None for function in found)


def test_what_a_tree_evaluates_to() -> None:
    """The tree of a result of a table is that of the instructions, and evaluates to their bits."""
    body, threads = decoder("v2", 5), 64
    source = Source("kernel.amdgcn", text_of(body), launch_of(threads))
    words: Array = np.random.default_rng(3).integers(0, 1 << 32, threads, dtype=np.uint64).astype(np.uint32)
    expected = run(body, words, threads=threads).view(np.uint16)
    for thread in (0, 5, 63):
        root = tree_of(source, GFX942, Options(), f"out[{thread}]", None)[0].root
        assert value_of(root, {"a": words.view(np.uint8)}, {}) == int(expected[2 * thread])


INACTIVE = "v_mov_b32_e32 v5, v3\nv_cmp_gt_u32_e64 s[30:31], 20, v0\ns_mov_b64 exec, s[30:31]\n{}\ns_mov_b64 exec, -1"


def test_inactive_lanes_keep_their_registers() -> None:
    random = np.random.default_rng(6)
    words, kept = (random.integers(0, 1 << 32, 64, dtype=np.uint64) for _ in range(2))
    expected = np.where(np.arange(64) < 20, EXPECTED[(words & np.uint64(255)).astype(int)], kept.astype(np.uint32))
    assert (run(INACTIVE.format(decoder("v2", 5)), words, kept) == expected).all()
    partly = reading(INACTIVE.format(decoder("v2", 5)))
    wholly = reading(decoder("v2", 5))
    assert partly.unknown is wholly.unknown is None
    other = reading(INACTIVE.format(decoder("v2", 5)).replace("v5, v3", "v5, v4"))
    assert len({partly.signature, wholly.signature, other.signature}) == 3


def test_what_a_later_write_leaves_in_inactive_lanes() -> None:
    """An instruction of a cone is executed where a later one, in some lanes only, keeps its result in the others."""
    kept = "s_mov_b64 exec, s[30:31]\nv_mov_b32_e32 v10, v3\ns_mov_b64 exec, -1\nv_mov_b32_e32 v5, v10"

    def read(order: str, change: tuple[str, str] = ("", "")) -> bytes | None:
        decoded = f"{decoder('v2', 5, order).replace(*change)}\nds_write_b32 v1, v5\ns_waitcnt lgkmcnt(0)"
        return reading(f"v_cmp_gt_u32_e64 s[30:31], 20, v0\n{decoded}\n{kept}").signature

    # The magnitude that stays in v10 is the same function of the byte in any order of the comparisons.
    found = read("01234567")
    assert found == read("76543210") is not None
    assert found != read("01234567", ("v_and_b32_e32 v10, 0x3f80, v10", "v_and_b32_e32 v10, 0x3f00, v10"))
    assert found != read("01234567", ("0x7e00", "0x7c00"))


def read_instruction_by_instruction(body: str, monkeypatch: pytest.MonkeyPatch) -> AnalysisResult:
    with monkeypatch.context() as patch:
        patch.setattr(instruction_cones, "MINIMUM_INSTRUCTIONS", 1 << 30)
        return reading(body)


ADD = "v_add_u16_e32 v10, 0x2000, v10"

CHANGES = {
    "a kept part": "v_mov_b32_sdwa v10, v3 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0",
    "each lane has another number": "v_add_u32_e32 v10, v10, v0",
    "the number of the lane": "v_mbcnt_lo_u32_b32 v10, -1, v10",
    "another lane": "v_mov_b32_dpp v10, v10 row_shr:1 row_mask:0xf bank_mask:0xf",
    "another lane by memory": "ds_bpermute_b32 v10, v1, v10\ns_waitcnt lgkmcnt(0)",
    "four bytes": "v_add_u32_e32 v10, v10, v2",
    "other data": "v_add_u32_e32 v10, v10, v3",
    "an input that is overwritten": "v_mov_b32_e32 v30, v10\nds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)",
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_no_function_of_one_byte_differs(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The changed kernels are read, and differ from the plain one, as they do instruction by instruction."""
    plain = decoder("v2", 5, order="0123456701234567")
    body = f"ds_write_b32 v1, v4\ns_waitcnt lgkmcnt(0)\n{plain.replace(ADD, CHANGES[change])}"
    slow = read_instruction_by_instruction(body, monkeypatch)
    quick = reading(body)
    assert (quick.unknown, slow.unknown) == (None, None)
    assert quick.signature not in (
        reading(plain).signature,
        read_instruction_by_instruction(plain, monkeypatch).signature,
    )


def test_a_result_that_is_read_within_its_instructions_is_computed() -> None:
    """A register that another instruction reads has its value, also where a cone computes it as well."""
    body = decoder("v2", 6).replace(
        "v_add_u16_e32 v10, 0x2000, v10", "v_add_u16_e32 v10, 0x2000, v10\nds_write_b32 v1, v10"
    )
    body += "\ns_waitcnt lgkmcnt(0)\nds_read_b32 v7, v1\ns_waitcnt lgkmcnt(0)\nv_lshl_or_b32 v5, v7, 16, v6"
    random = np.random.default_rng(7)
    words = random.integers(0, 1 << 32, 64, dtype=np.uint64)
    inner = (((words << np.uint64(7)) & np.uint64(0x3F80)) + np.uint64(0x2000)).astype(np.uint32)
    expected = inner << np.uint32(16) | EXPECTED[(words & np.uint64(255)).astype(int)]
    assert (run(body, words) == expected).all()
    assert reading(body).signature not in (None, reading(body.replace("0x2000", "0x2080")).signature)


def lanewise_instructions() -> list[str]:
    """Return one or more instructions of each opcode that is declared to compute each lane by itself."""
    found = []
    for name in sorted(GFX942.opcodes.opcodes):
        compares = name.startswith("v_cmp")
        sources = ("v2", "v3", "v4") if not name.endswith(("b64", "u64", "i64")) else ("v[2:3]", "v[2:3]", "v[2:3]")
        for count in (1, 2, 3):
            target = "vcc" if compares else "v5" if sources[0] == "v2" else "v[4:5]"
            line = f"{name} {', '.join((target, *sources[:count]))}" + (", vcc" if name == "v_cndmask_b32" else "")
            if compares:
                line += "\nv_cndmask_b32_e64 v5, v3, v4, vcc"
            try:
                kernel = GFX942.parse(text_of(line), "kernel.amdgcn").kernel(None)
                info = infos_of(kernel, GFX942.opcodes)[7]
                if info.effects.overlaps(Effect.LANEWISE) and not info.effects.overlaps(Effect.CROSS_LANE):
                    run(line)
                    found.append(line)
            except (AssemblyError, Unsupported, ValueError):
                continue
    return found


def test_what_is_declared_lanewise_follows_a_permutation_of_the_lanes() -> None:
    random = np.random.default_rng(12)
    order = random.permutation(64)
    words = [random.integers(0, 1 << 32, 64, dtype=np.uint64) for _ in range(3)]
    words[1][::3] &= np.uint64(31)
    lines = lanewise_instructions()
    assert len({line.split()[0] for line in lines}) > 60
    assert not any(line.startswith(("v_cmp_lt_f32", "v_cmp_class_f32")) for line in lines), "these depend on a mode"
    for line in lines:
        assert (run(line, *(each[order] for each in words)) == run(line, *words)[order]).all(), line
    assert (
        run("v_mbcnt_lo_u32_b32 v5, -1, v2", words[0][order]) != run("v_mbcnt_lo_u32_b32 v5, -1, v2", words[0])[order]
    ).any()


PARTIAL_WRITES = [
    "v_add_i16 v5, v3, v4",
    "v_min3_i16 v5, v3, v4, v3",
    "v_mad_u16 v5, v3, v4, v3",
    "v_fma_f16 v5, v3, v4, v3",
    "v_fma_mixlo_f16 v5, v3, v4, v3",
    "v_cvt_pk_fp8_f32 v5, v3, v4",
    "v_mov_b32_dpp v5, v3 row_shr:1 row_mask:0xf bank_mask:0xf",
    "v_mov_b32_dpp v5, v3 quad_perm:[0,1,2,3] row_mask:0x5 bank_mask:0xf bound_ctrl:1",
]
"""Instructions that leave a part of v5 unchanged while all lanes are active."""


@pytest.mark.parametrize("write", PARTIAL_WRITES)
def test_what_an_instruction_leaves_unchanged_is_computed(write: str) -> None:
    """The value in v5 before the write is also used inside of a computation of a byte, which does not depend on it."""

    def kernel(shift: int) -> str:
        mixed = [f"v_add_u32_e32 v10, {each}, v10\nv_xor_b32_e32 v10, {3 * each}, v10" for each in range(1, 9)]
        first = ["v_mov_b32_e32 v5, 0", "v_and_b32_e32 v10, 0xff, v2", *mixed, f"v_lshlrev_b32_e32 v5, {shift}, v10"]
        last = ["v_xor_b32_e32 v11, v5, v5", "v_xor_b32_e32 v10, v11, v10", write, "v_xor_b32_e32 v5, v10, v5"]
        return "\n".join([*first, *last])

    one, other = kernel(16), kernel(17)
    words = np.arange(64)
    assert (run(one, words, words, words) != run(other, words, words, words)).any()
    assert reading(one).signature is not None
    assert reading(one).signature != reading(other).signature


SEVERAL = [
    ("v2", "01234567"),
    ("v3", "01234567"),
    ("v4", "76543210"),
    ("v2", "76543210"),
    ("v30", "01234567"),
    ("v31", "01234567"),
]
"""The source and the order of the comparisons of conversions in one block."""


def several(changes: dict[int, tuple[str, str]], *, mixed: bool = False) -> str:
    """Return conversions whose results are joined, with replacements by number; `mixed`: the first two alternate."""
    bodies = [
        decoder(source, 40 + number, order, first=50 + 4 * number).replace(*changes.get(number, ("", "")))
        for number, (source, order) in enumerate(SEVERAL)
    ]
    lines = [body.split("\n") for body in bodies]
    for source, result, line in (("v3", "v90", 1), ("v2", "v91", 0)):
        place = next((n for n, each in enumerate(lines[line]) if each.endswith(result)), None)
        if place is not None:
            lines[line].insert(place, f"v_and_b32_e32 {result}, 0x7f, {source}")
    if mixed and len(lines[0]) == len(lines[1]):
        # A pair of registers that both use holds the condition of one comparison after the other.
        pairs = zip(lines[0], [each.replace("vcc", "s[26:27]") for each in lines[1]], strict=True)
        lines[:2] = [[each.replace("cndmask_b32_e32", "cndmask_b32_e64").replace("u16_e32 s", "u16_e64 s")
                      for pair in pairs for each in pair]]  # fmt: skip
    moved = [
        "v_lshrrev_b32_e32 v30, 8, v2",
        "v_lshrrev_b32_e32 v31, 8, v3",
        *(each for body in lines for each in body),
    ]
    joined = [f"v_add_f32_e32 v5, v5, v{40 + number}" for number in range(len(SEVERAL))]
    return "\n".join(["v_mov_b32_e32 v5, 0", *moved, *joined])


CHANGED_FORMS: list[dict[int, tuple[str, str]]] = [
    {},
    {1: ("0x1800", "0x1801")},
    {1: ("v_and_b32_e32 v55, 0x7f, v3", "v_and_b32_e32 v55, 0x7f, v2")},
    {1: ("v_cndmask_b32_e64 v54, v57, v54", "v_cndmask_b32_e64 v54, v54, v57")},
    {4: ("v_or_b32_e32 v44, v66, v68", "v_or_b32_e32 v44, v66, v66")},
    {5: ("v_and_b32_e32 v72, 0xffff8000, v72", "v_and_b32_e32 v72, 0xffff8000, v54")},
    {1: ("vcc, 3, v55", "vcc, 3, v90")},
    {0: ("vcc, 3, v51", "vcc, 3, v91")},
    {0: ("v_lshlrev_b16_e32 v52, 8, v2", "v_lshlrev_b16_e32 v52, 8, v3")},
]
"""Among these, a comparison of a number that another instruction computes as well, and two inputs in place of one."""


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("changes", CHANGED_FORMS)
def test_cones_of_one_form_are_those_that_are_found_alone(
    changes: dict[int, tuple[str, str]], mixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cones that are found together are those of a search for each one; the changed ones have other forms."""
    module = GFX942.parse(text_of(several(changes, mixed=mixed)), "kernel.amdgcn")
    program = build(module, module.kernel(None), GFX942)
    blocks = list(instruction_cones.blocks_of(program))
    together = [instruction_cones.cones_of_block(program, *each) for each in blocks]
    with monkeypatch.context() as patch:
        patch.setattr(instruction_cones, "_cones_like", lambda _, __, roots: (np.zeros(len(roots), dtype=bool), []))
        alone = [instruction_cones.cones_of_block(program, *each) for each in blocks]

    def facts(found: instruction_cones.BlockCones) -> list[object]:
        cones = [
            (each.members, each.inputs, each.captured, each.consumed, each.result, each.form, each.definitions)
            for each in found.cones
        ]
        return [cones, found.skipped, found.in_some_lanes, found.skipped_in_some_lanes]

    assert [facts(each) for each in together] == [facts(each) for each in alone]
    assert sum(len(each.cones) for each in together) >= 5


@pytest.mark.parametrize("changes", CHANGED_FORMS)
def test_results_that_are_looked_up_together_are_those_of_each(
    changes: dict[int, tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results that wait have the values of results that are computed at once, of which one may be a constant."""
    for first in ("", "v_mov_b32_e32 v3, 0x1234\n", "v_cmp_gt_u32_e32 vcc, 7, v0\nv_cndmask_b32_e32 v3, 9, v3, vcc\n"):
        body = first + several(changes)
        found = reading(body)
        with monkeypatch.context() as patch:
            patch.setattr(byte_functions, "may_be_deferred", lambda *_: False)
            assert reading(body).signature == found.signature is not None
        if not changes and not first:
            assert found.signature != reading(first + several(CHANGED_FORMS[1])).signature


def test_functions_of_numbers_are_those_of_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes whose numbers are known are looked up in a table that was found for others, and only there."""
    made: list[Array] = []
    look_up = byte_functions.of_numbers

    def noted(*arguments: object) -> Array:
        found = look_up(*arguments)  # type: ignore[arg-type]
        assert isinstance(found, np.ndarray)
        made.append(found)
        return found

    monkeypatch.setattr(byte_functions, "of_numbers", noted)
    numbers = "v_mul_u32_u24_e32 v30, 3, v0\n"
    one, other = decoder("v2", 6), decoder("v30", 7, first=20)
    stored = "ds_write_b16 v1, v6\nds_write_b16 v1, v7 offset:2\ns_waitcnt lgkmcnt(0)\nds_read_b32 v5, v1"
    body = f"{numbers}{one}\n{other}\n{stored}"
    found = reading(body, threads=256)
    with monkeypatch.context() as patch:
        patch.setattr(byte_functions, "of_numbers", lambda *_: None)  # the instructions are executed
        assert reading(body, threads=256).signature == found.signature is not None
    assert len(made) == 1
    assert (made[0] == EXPECTED[np.arange(256) * 3 & 255]).all()
    made.clear()
    assert reading(numbers + decoder("v30", 5), threads=256).signature is not None
    assert not made


def test_sums_in_a_chain_are_no_cones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sum of a chain is stored, so that little is saved; the search for such cones finds none."""
    chain = "\n".join(f"v_add_u32_e32 v{20 + each}, v{19 + each}, v2\nds_write_b32 v1, v{20 + each} offset:{4 * each}"
                       for each in range(1, 60))  # fmt: skip
    body = f"v_mov_b32_e32 v20, v3\n{chain.replace('v19,', 'v3,')}\n{decoder('v3', 5, first=90)}"
    module = GFX942.parse(text_of(body), "kernel.amdgcn")
    program = build(module, module.kernel(None), GFX942)
    searched: list[Array] = []
    search = instruction_cones._cones_of_roots

    def noted(flow: instruction_cones._BlockFlow, roots: Array) -> list[instruction_cones.Cone]:
        searched.append(roots)
        return search(flow, roots)

    monkeypatch.setattr(instruction_cones, "_cones_of_roots", noted)
    blocks = list(instruction_cones.blocks_of(program))
    found = [instruction_cones.cones_of_block(program, *each) for each in blocks]
    kept = [cone.members for each in found for cone in each.cones]
    assert sum(map(len, searched)) == len(kept) == 1
    monkeypatch.setattr(instruction_cones, "_saving_roots", lambda _, roots, __: roots)
    searched.clear()
    again = [instruction_cones.cones_of_block(program, *each) for each in blocks]
    assert sum(map(len, searched)) > 40
    assert kept == [cone.members for each in again for cone in each.cones]
    assert [each.skipped for each in found] == [each.skipped for each in again]


@pytest.mark.parametrize("seed", range(6))
def test_roots_that_are_searched_for_are_those_that_save(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random programs whose results are read inside have the cones of a search for all roots."""
    random = np.random.default_rng([23, seed])
    lines = [each for _ in range(3) for each in drawn_program(random)]
    for _ in range(int(random.integers(1, 6))):
        lines.insert(int(random.integers(5, len(lines))), f"ds_write_b32 v1, v{random.choice([10, 11])}")
    module = GFX942.parse(text_of("\n".join(lines)), "kernel.amdgcn")
    program = build(module, module.kernel(None), GFX942)
    blocks = list(instruction_cones.blocks_of(program))
    found = [instruction_cones.cones_of_block(program, *each) for each in blocks]
    monkeypatch.setattr(instruction_cones, "_saving_roots", lambda _, roots, __: roots)
    again = [instruction_cones.cones_of_block(program, *each) for each in blocks]
    assert [[cone.members for cone in each.cones] for each in found] == [
        [cone.members for cone in each.cones] for each in again
    ]
    assert [each.skipped for each in found] == [each.skipped for each in again]
