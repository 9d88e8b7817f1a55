"""Loads and stores of tensor memory: every shape against the figures of the ISA, and what they may not do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_nvidia_ptx.assembler.installed import installed_assemblers
from bitwise_nvidia_ptx.machine_code.registers import parse_listing
from tcgen05_kernels import Text, executed, reading

SHAPES = {"32x32b": (32, 1), "16x64b": (16, 2), "16x128b": (16, 4), "16x256b": (16, 8), "16x32bx2": (16, 1)}
"""The lanes and the columns of 32 bits of one access of each shape."""
REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}


def figure(shape: str, lane: int, column: int) -> list[tuple[int, int]]:
    """Return the threads and their registers that hold a cell, as the figures of the ISA list it.

    In the figures of 16 lanes, a row of lanes 0 to 7 belongs to four threads, and that of 8 lanes further as well.
    """
    four = [4 * (lane % 8) + each for each in range(4)]
    if shape == "32x32b":
        return [(lane, column)]
    if shape == "16x32bx2":
        return [(lane, column), (lane + 16, column)]
    if shape == "16x64b":
        return [(four[2 * (column % 2) + (lane >= 8)], column // 2)]
    if shape == "16x128b":
        return [(four[column % 4], 2 * (column // 4) + (lane >= 8))]
    return [(four[column % 8 // 2], 4 * (column // 8) + 2 * (lane >= 8) + column % 2)]


CASES = [
    (shape, count)
    for shape, most in (("32x32b", 32), ("16x64b", 32), ("16x128b", 16), ("16x256b", 8), ("16x32bx2", 32))
    for count in (1, 2, 4, 8, 16, 32)
    if count <= most
]


def content(columns: int) -> npt.NDArray[np.uint32]:
    """Return distinct words by lane and column."""
    return (np.arange(128)[:, None] * 1000003 + np.arange(columns)[None] * 7919 + 5).astype(np.uint32)


@pytest.mark.parametrize(("shape", "count"), CASES)
@pytest.mark.parametrize("half", [0, 16])
def test_loads_follow_the_figures(shape: str, count: int, half: int) -> None:
    lanes, width = SHAPES[shape]
    if half and lanes == 32:
        half = 0
    columns, registers, split = width * count, REGISTERS[shape] * count, 64 if shape == "16x32bx2" else 0
    table = content(128)
    text = Text(256).read_in(100, 128).store("32x32b", 128, 100, 128)
    address = f"[%r7+{half << 16}]" + (", 64" if split else "")
    text.load(shape, count, 400, registers, address).write_out(400, registers)
    found = executed(text.whole(), table.view(np.uint8).ravel(), 512 * registers).reshape(128, registers)
    expected = np.zeros((128, registers), dtype=np.uint32)
    for warp in range(4):
        for lane in range(lanes):
            for column in range(columns):
                for thread, register in figure(shape, lane, column):
                    shift = split if thread >= 16 else 0
                    expected[32 * warp + thread, register] = table[32 * warp + half + lane, column + shift]
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(("shape", "count"), CASES)
def test_stores_follow_the_figures(shape: str, count: int) -> None:
    lanes, width = SHAPES[shape]
    columns, registers, split = width * count, REGISTERS[shape] * count, 64 if shape == "16x32bx2" else 0
    values, before = content(registers), content(128) + 1
    text = Text(256).read_in(100, 128, 512 * registers).store("32x32b", 128, 100, 128)
    text.read_in(400, registers)
    text.store(shape, count, 400, registers, "[%r7]" + (", 64" if split else ""))
    text.load("32x32b", 128, 600, 128).write_out(600, 128)
    image = np.concatenate([values.ravel(), before.ravel()]).view(np.uint8)
    found = executed(text.whole(), image, 512 * 128).reshape(128, 128)
    expected = before.copy()
    for warp in range(4):
        for lane in range(lanes):
            for column in range(columns):
                for thread, register in figure(shape, lane, column):
                    shift = split if thread >= 16 else 0
                    expected[32 * warp + lane, column + shift] = values[32 * warp + thread, register]
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("shape", "count"), [("32x32b", 8), ("16x64b", 8), ("16x128b", 4), ("16x256b", 2), ("16x32bx2", 8)]
)
def test_packed_registers_are_the_low_halves_of_two_columns(shape: str, count: int) -> None:
    lanes, width = SHAPES[shape]
    registers, split = REGISTERS[shape] * count, 64 if shape == "16x32bx2" else 0
    table = content(128)
    text = Text(256).read_in(100, 128).store("32x32b", 128, 100, 128)
    address = "[%r7]" + (", 64" if split else "")
    text.load(shape, count, 400, registers, address, ".pack::16b").write_out(400, registers)
    found = executed(text.whole(), table.view(np.uint8).ravel(), 512 * registers).reshape(128, registers)
    for warp in range(4):
        for lane in range(lanes):
            for column in range(width * count):
                for thread, register in figure(shape, lane, column):
                    place = 2 * column + (split if thread >= 16 else 0)
                    low, high = (int(table[32 * warp + lane, place + each]) & 0xFFFF for each in (0, 1))
                    assert found[32 * warp + thread, register] == low | high << 16


@pytest.mark.parametrize(
    ("shape", "count"), [("32x32b", 8), ("16x64b", 8), ("16x128b", 4), ("16x256b", 2), ("16x32bx2", 8)]
)
def test_what_is_stored_unpacked_is_loaded_packed(shape: str, count: int) -> None:
    registers, split = REGISTERS[shape] * count, ", 64" if shape == "16x32bx2" else ""
    values = content(registers)
    text = Text(256).read_in(100, registers).store(shape, count, 100, registers, f"[%r7]{split}", ".unpack::16b")
    text.load(shape, count, 400, registers, f"[%r7]{split}", ".pack::16b").write_out(400, registers)
    found = executed(text.whole(), values.view(np.uint8).ravel(), 512 * registers)
    assert found.tolist() == values.ravel().tolist()


def moved() -> Text:
    return Text().read_in(100, 8).store("32x32b", 8, 100, 8).load("32x32b", 8, 200, 8).write_out(200, 8)


def test_a_store_and_a_load_return_what_was_stored() -> None:
    found = reading(moved().whole())
    copied = reading(Text().read_in(100, 8).write_out(100, 8).whole())
    assert found.unknown is None
    assert found.signature == copied.signature


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("tcgen05.wait::st.sync.aligned;", "", "before conflicting work on it is known to be complete"),
        ("tcgen05.wait::ld.sync.aligned;", "", "before conflicting work on it is known to be complete"),
        ("tcgen05.wait::ld.sync.aligned;", "@%p1 tcgen05.wait::ld.sync.aligned;", "before conflicting work on it"),
        ("ld.sync.aligned.32x32b.x8.b32 ", "ld.sync.aligned.32x32b.x16.b32 ", "needs 16 registers"),
        ("add.s32 %r7, %r3, %r6;", "mov.b32 %r7, %r3;", "outside of its quarter"),
        ("[%r7];", "[%r7+1048576];", "begins at lane 112"),
        ("[%r7];", "[%r7+124];", "outside of what the block has allocated"),
        ("[%r7],", "[%r7+600],", "outside tensor memory"),
        ("shared::cta.b32 [%r2], 128", "shared::cta.b32 [%r2], 48", "48 columns"),
        ("b32 %r3, 128", "b32 %r3, 64", "not allocated in this size"),
        ("@%p1 tcgen05.alloc", "tcgen05.alloc", "several warps"),
    ],
)  # fmt: skip
def test_what_is_undefined_is_unknown(old: str, new: str, reason: str) -> None:
    text = moved().whole()
    assert text.count(old) == 1
    found = reading(text.replace(old, new))
    assert found.signature is None
    assert found.unknown is not None
    assert reason in found.unknown
    assert "line" in found.unknown


@pytest.mark.parametrize(("split", "is_unknown"), [(8, False), (7, True), (0, True)])
def test_halves_of_a_warp_that_store_to_one_place_are_unknown(split: int, is_unknown: bool) -> None:
    address = f"[%r7], {split}"
    text = Text().read_in(40, 8).store("16x32bx2", 8, 40, 8, address).load("16x32bx2", 8, 60, 8, address)
    found = reading(text.write_out(60, 8).whole())
    assert (found.signature is None) == is_unknown
    assert not is_unknown or "two threads of a warp store to one place" in (found.unknown or "")


PAIRS = "cvt.u64.u32 %rd40, %r200; cvt.u64.u32 %rd41, %r201; shl.b64 %rd41, %rd41, 32; or.b64 %rd40, %rd40, %rd41;"


def test_registers_that_are_read_before_the_wait_are_noted() -> None:
    wait, split = "tcgen05.wait::ld.sync.aligned;", "mov.b64 {%r210, %r211}, %rd40;"
    text = moved().whole()
    early = text.replace(wait, f"{PAIRS} {wait} {split}").replace("], %r200;", "], %r210;")
    assert reading(early).signature == reading(text).signature
    assert not any("before tcgen05.wait::ld" in note for note in (*reading(early).notes, *reading(text).notes))
    for use in ("add.rn.f32 %r210, %r200, %r200;", f"add.rn.f32x2 %rd40, %rd40, %rd40; {split}"):
        found = reading(text.replace(wait, f"{PAIRS} {use} {wait}").replace("], %r200;", "], %r210;"))
        late = reading(text.replace(wait, f"{PAIRS} {wait} {use}").replace("], %r200;", "], %r210;"))
        assert found.unknown is None
        assert found.signature == late.signature
        assert any("before tcgen05.wait::ld" in note for note in found.notes)
        assert not any("before tcgen05.wait::ld" in note for note in late.notes)


def test_the_assembler_waits_for_loaded_registers(tmp_path: Path) -> None:
    """Bits 110 to 112 of an instruction number the scoreboard that it sets, bits 116 to 121 those that it waits for."""
    tools = [each for name in ("ptxas-blackwell", "ptxas") for each in installed_assemblers(name) if each.disassembler]
    if not tools:
        pytest.skip("no ptxas with its disassembler is installed")
    text, binary = tmp_path / "k.ptx", tmp_path / "k.cubin"
    use = "add.rn.f32 %r210, %r200, %r201; st.global.b32 [%rd2], %r210;"
    kernel = moved().whole().replace("tcgen05.wait::ld.sync.aligned;", use)
    text.write_text(kernel.replace(".version 8.8", ".version 8.7"))
    subprocess.run([tools[0].path, "--gpu-name=sm_100a", text, "-o", binary], check=True)
    listing = [str(tools[0].disassembler), "-c", "-hex", "-plr", "-lrm", "narrow", binary]
    shown = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    code = parse_listing(shown)["k"].instructions
    (place,) = (index for index, each in enumerate(code) if each.opcode == "LDTM")
    loaded = code[place].writes
    reader = next(index for index in range(place + 1, len(code)) if not loaded.isdisjoint(code[index].reads))
    board = code[place].bits >> 110 & 7
    assert loaded
    assert board < 6
    assert any(each.bits >> 116 >> board & 1 for each in code[place + 1 : reader + 1])


def test_what_nothing_has_written_is_undefined() -> None:
    found = reading(Text().load("32x32b", 8, 200, 8).write_out(200, 8).whole())
    assert found.signature is None


def test_the_halves_that_an_unpacking_store_does_not_write_are_undefined() -> None:
    text = Text().read_in(100, 8).store("32x32b", 8, 100, 8, packing=".unpack::16b")
    assert reading(text.load("32x32b", 8, 200, 8).write_out(200, 8).whole()).signature is None


def test_tensor_memory_is_followed_for_a_given_launch_only() -> None:
    found = reading(moved().whole(), every_launch=True)
    assert found.signature is None
    assert found.unknown is not None
    assert "for a given launch only" in found.unknown


def test_another_column_is_another_value() -> None:
    base = Text().read_in(100, 16).store("32x32b", 16, 100, 16)
    first = reading(base.load("32x32b", 8, 200, 8).write_out(200, 8).whole())
    base.lines = [each.replace("{%r200", "{%r200").replace("[%r7];", "[%r7+1];") for each in base.lines]
    second = reading(base.whole())
    assert first.signature is not None
    assert second.signature is not None
    assert first.signature != second.signature


def test_tensor_memory_is_released_once_and_allocated_again() -> None:
    again = "@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 512;"
    text = moved().add("bar.sync 0;", again).whole()
    found = reading(text)
    assert found.signature is None
    assert found.unknown is not None
    assert "permit" in found.unknown
    found = reading(text.replace("@%p1 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", ""))
    assert found.unknown is not None
    assert "more tensor memory than there is" in found.unknown


def stores_of_two_warpgroups(index: str = "and.b32 %r8, %r1, 127;") -> str:
    """Return a kernel in which warps 4 to 7 store to the lanes of warps 0 to 3; `index` chooses what each loads."""
    text = Text(64, threads=256).add(index, "mad.wide.u32 %rd11, %r8, 16, %rd1;")
    text.add(*(f"ld.global.b32 %r{100 + each}, [%rd11+{4 * each}];" for each in range(4)))
    text.store("32x32b", 4, 100, 4).add("bar.sync 0;").load("32x32b", 4, 200, 4).write_out(200, 4)
    return text.whole()


def test_warps_that_store_the_same_values_to_the_same_lanes_do_not_race() -> None:
    text = stores_of_two_warpgroups()
    content = np.random.default_rng(4).integers(0, 256, 2048).astype(np.uint8)
    assert reading(text).unknown is None
    assert executed(text, content, 4096).view(np.uint8).tolist() == [*content.tolist(), *content.tolist()]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("and.b32 %r8, %r1, 127;", "mov.b32 %r8, %r1;"),
        ("and.b32 %r8, %r1, 127;", "and.b32 %r8, %r1, 127; min.u32 %r8, %r8, 126; @%p1 mov.b32 %r8, 3;"),
        ("tcgen05.wait::st.sync.aligned;", ""),
        ("tcgen05.wait::st.sync.aligned;\n  bar.sync 0;", "tcgen05.wait::st.sync.aligned;"),
    ],
)
def test_warps_that_store_other_values_or_do_not_wait_race(old: str, new: str) -> None:
    text = stores_of_two_warpgroups()
    assert old in text
    found = reading(text.replace(old, new))
    assert found.unknown is not None
    assert "before conflicting work on it is known to be complete" in found.unknown


def reduced(options: str, steps: str, target: str = "sm_103") -> str:
    """Return a kernel that stores 8 loaded registers and their extremum, found by the load or by these steps."""
    text = Text(32, target=target).read_in(100, 8).store("32x32b", 8, 100, 8)
    if steps:
        text.load("32x32b", 8, 200, 8).add(steps)
    else:
        opcode = f"tcgen05.ld.red.sync.aligned.32x32b.x8.{options}.f32"
        registers = ", ".join(f"%r{200 + each}" for each in range(8))
        text.add(f"{opcode} {{{registers}}}, {{%r208}}, [%r7];", "tcgen05.wait::ld.sync.aligned;")
    return text.write_out(200, 9).whole()


def chain(opcode: str, magnitudes: bool = False) -> str:
    """Return the extremum in %r208 of %r200 to %r207, last register first."""
    sources = 300 if magnitudes else 200
    made = "".join(f"abs.f32 %r{300 + each}, %r{200 + each};" for each in range(8)) if magnitudes else ""
    more = "".join(f"{opcode} %r208, %r208, %r{sources + each};" for each in range(6, -1, -1))
    return f"{made} mov.b32 %r208, %r{sources + 7}; {more}"


@pytest.mark.parametrize(
    ("options", "opcode"), [("max", "max.f32"), ("min", "min.f32"), ("max.NaN", "max.NaN.f32"), ("min.abs", "min.f32")]
)
def test_a_load_finds_the_extremum_of_its_registers(options: str, opcode: str) -> None:
    found = reading(reduced(options, ""), "sm_103")
    assert found.unknown is None
    assert found.signature == reading(reduced("", chain(opcode, "abs" in options)), "sm_103").signature
    assert found.signature != reading(reduced("", chain("add.f32")), "sm_103").signature


@pytest.mark.parametrize(("options", "target"), [("max", "sm_100"), ("add", "sm_103"), ("max.ftz", "sm_103")])
def test_a_load_that_finds_no_such_extremum_is_unknown(options: str, target: str) -> None:
    unknown = reading(reduced(options, "", target), target).unknown
    assert unknown is not None
    assert "tcgen05.ld.red" in unknown


SHIFT = "@%p2 tcgen05.shift.cta_group::1.down [%r3+8];"


def shifted(*instructions: str, waits: bool = True) -> str:
    """Return a kernel that stores 24 columns, shifts, and loads them."""
    text = Text(32).barrier().read_in(100, 24)
    for first in (0, 8, 16):
        text.store("32x32b", 8, 100 + first, 8, f"[%r7+{first}]")
    text.add("bar.sync 0;", *instructions)
    if waits:
        text.commit()
    for first in (0, 8, 16):
        text.load("32x32b", 8, 400 + first, 8, f"[%r7+{first}]")
    return text.write_out(400, 24).whole()


@pytest.mark.parametrize("count", [1, 3])
def test_a_shift_moves_eight_columns_of_each_quarter_of_the_lanes(count: int) -> None:
    """As the public readback on a B200: 1 to 31, 31, then 33 to 63, 63, and so on."""
    table = content(24)
    found = executed(shifted(*[SHIFT] * count), table.view(np.uint8).ravel(), 512 * 24).reshape(128, 24)
    lane = np.arange(128)
    rows = lane // 32 * 32 + np.minimum(lane % 32 + count, 31)
    expected = table.copy()
    expected[:, 8:16] = table[rows, 8:16]
    assert found.tolist() == expected.tolist()
    assert "public readback on a B200" in " ".join(reading(shifted(SHIFT)).notes)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (shifted(SHIFT, waits=False), "known to be complete"),
        (shifted(SHIFT.replace("[%r3+8]", "[%r3+2097152]")), "from lane 32"),
        (shifted(SHIFT.replace("[%r3+8]", "[%r3+28]")), "outside of what the block has allocated"),
        (shifted(SHIFT.replace(".down", ".up")), "is not modelled"),
        (shifted(SHIFT.replace("@%p2 ", "")), "several threads"),
    ],
)  # fmt: skip
def test_a_shift_that_is_not_defined_is_unknown(text: str, reason: str) -> None:
    found = reading(text)
    assert found.signature is None
    assert found.unknown is not None
    assert reason in found.unknown
