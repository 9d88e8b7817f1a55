"""One gfx942 kernel of many programs, each of which stores to elements of its own, and its launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from bitwise_bench.adversary.expressions import CONSTANT, LEAF, WIDTHS, Expression, constant_bits, leaves_of, nodes
from bitwise_bench.adversary.instruction_sets.gfx942_vocabulary import GFX942_WORDS
from bitwise_bench.adversary.kernels import KernelText, leaf_place, places_of
from bitwise_bench.adversary.programs import Program

THREADS = 64
"""The number of threads in a block: one wave."""

STORE_TEXTS = MappingProxyType(
    {
        **dict.fromkeys(("fp32", "u32", "fp16x2", "u16x2"), "global_store_dword &, $, #"),
        **dict.fromkeys(("fp16", "u16"), "global_store_short &, $, #"),
        **{
            f"{dtype} halves": "global_store_short &, $, #; global_store_short_d16_hi &, $, # offset:2"
            for dtype in ("fp16", "u16")
        },
    }
)
"""The instructions of each store: & is the offset, $ the value, # the pointer."""

HEAD = """\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
\t.amdhsa_code_object_version 5
\t.text
\t.globl\tkernel
\t.p2align\t8
\t.type\tkernel,@function
kernel:
"""
_TAIL = """\ts_endpgm
\t.section\t.rodata,"a",@progbits
\t.amdhsa_kernel kernel
\t\t.amdhsa_kernarg_size {size}
\t\t.amdhsa_user_sgpr_count 2
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_system_sgpr_workgroup_id_x 1
\t\t.amdhsa_next_free_vgpr {vectors}
\t\t.amdhsa_next_free_sgpr 100
\t\t.amdhsa_accum_offset {vectors}
\t\t.amdhsa_float_round_mode_32 0
\t\t.amdhsa_float_round_mode_16_64 0
\t\t.amdhsa_float_denorm_mode_32 3
\t\t.amdhsa_float_denorm_mode_16_64 3
\t\t.amdhsa_ieee_mode 1
\t.end_amdhsa_kernel
\t.text
.Lend:
\t.size\tkernel, .Lend-kernel
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
{arguments}    .group_segment_fixed_size: 0
    .kernarg_segment_align: 8
    .kernarg_segment_size: {size}
    .max_flat_workgroup_size: 128
    .name:           kernel
    .private_segment_fixed_size: 0
    .sgpr_count:     100
    .symbol:         kernel.kd
    .vgpr_count:     {vectors}
    .wavefront_size: 64
amdhsa.target:   amdgcn-amd-amdhsa--gfx942
amdhsa.version:
  - 1
  - 2
...

\t.end_amdgpu_metadata
"""
_FIRST_POINTER = 8
_FIRST_PREDICATE = 40
_LAST_PREDICATE = 98


def tail(buffers: int, vectors: int) -> str:
    """Return the end of a kernel with this number of buffers and of vector registers."""
    arguments = "".join(
        f"      - .address_space:  global\n        .offset:         {8 * number}\n        .size:           8\n"
        "        .value_kind:     global_buffer\n"
        for number in range(buffers)
    )
    return _TAIL.format(size=8 * buffers, arguments=arguments, vectors=vectors)


class _Registers:
    """Vector registers from v4 on, and pairs of scalar registers for predicates."""

    def __init__(self) -> None:
        self.vector, self.pair, self.most = 4, _FIRST_PREDICATE, 4

    def take(self, width: int) -> str:
        if width == 1:
            if self.pair > _LAST_PREDICATE:
                raise ValueError("a program has more predicates than there are scalar registers")
            self.pair += 2
            return f"s[{self.pair - 2}:{self.pair - 1}]"
        self.vector += 1
        self.most = max(self.most, self.vector)
        return f"v{self.vector - 1}"


def _lines(program: Program, known: Mapping[Expression, str], registers: _Registers) -> tuple[list[str], str]:
    names = dict(known)
    lines: list[str] = []

    def in_register(node: Expression) -> str:
        if node not in names:
            register = names[node] = registers.take(node.width)
            if node.width == 1:
                lines.append(f"s_mov_b64 {register}, {-constant_bits(node)}")
            else:
                lines.append(f"v_mov_b32_e32 {register}, 0x{constant_bits(node):x}")
        return names[node]

    for node in nodes(program.root):
        if node.opcode in (LEAF, CONSTANT):
            continue
        operands = [each if isinstance(each, str) else in_register(each) for each in node.operands]
        text = GFX942_WORDS.specs[node.opcode].text
        names[node] = registers.take(node.width)
        for number, operand in enumerate(operands):
            text = text.replace(f"${number}", operand)
        lines += text.replace("@", names[node]).split("; ")
    return lines, in_register(program.root)


def kernel_text(programs: Sequence[Program]) -> KernelText:
    """Return one kernel of all programs; a thread loads its values once."""
    leaves = leaves_of(program.root for program in programs)
    kinds = {leaf_place(str(node.operands[0]))[0] for node in leaves}
    loads = tuple(kind for kind in GFX942_WORDS.leaves if kind in kinds)
    places, counts = places_of(programs, GFX942_WORDS)
    names = [*(f"in_{kind}" for kind in loads), *counts]
    pointers = {
        name: f"s[{_FIRST_POINTER + 2 * number}:{_FIRST_POINTER + 2 * number + 1}]" for number, name in enumerate(names)
    }
    body = [f"s_load_dwordx2 {pointers[name]}, s[0:1], {hex(8 * number)}" for number, name in enumerate(names)]
    body += ["s_waitcnt lgkmcnt(0)", "s_lshl_b32 s3, s2, 6", "v_add_u32_e32 v1, s3, v0"]
    registers = _Registers()
    known: dict[Expression, str] = {}
    for kind in loads:
        width, count = WIDTHS[kind] // 8, GFX942_WORDS.leaves[kind][1]
        body.append(f"v_mul_u32_u24_e32 v2, {width * count}, v1")
        opcode = {2: "global_load_ushort", 4: "global_load_dword"}[width]
        for node in leaves:
            of, number = leaf_place(str(node.operands[0]))
            if of == kind:
                known[node] = registers.take(node.width)
                offset = f" offset:{width * number}" if number else ""
                body.append(f"{opcode} {known[node]}, v2, {pointers[f'in_{kind}']}{offset}")
    body.append("s_waitcnt vmcnt(0)")
    bases = {}
    sizes = {place.buffer: place.size for place in places}
    for name, count in counts.items():
        bases[name] = registers.take(32)
        body += [
            f"s_mul_i32 s3, s2, {count * THREADS * sizes[name]}",
            f"v_mul_u32_u24_e32 {bases[name]}, {sizes[name]}, v0",
            f"v_add_u32_e32 {bases[name]}, s3, {bases[name]}",
        ]
        if name.startswith("mixed"):
            body += [
                "v_mov_b32_e32 v3, 0",
                f"global_store_short {bases[name]}, v3, {pointers[name]}",
                f"global_store_short {bases[name]}, v3, {pointers[name]} offset:2",
            ]
    start = registers.vector
    for program, place in zip(programs, places, strict=True):
        registers.vector, registers.pair = start, _FIRST_PREDICATE
        lines, result = _lines(program, known, registers)
        body += lines
        body.append(f"v_add_u32_e32 v2, {hex(place.slot * THREADS * place.size)}, {bases[place.buffer]}")
        text = STORE_TEXTS[program.store].replace("&", "v2").replace("$", result)
        body += text.replace("#", pointers[place.buffer]).split("; ")
    vectors = min(256, -(-registers.most // 4) * 4)
    text = HEAD + "".join(f"\t{line}\n" for line in body) + tail(len(names), vectors)
    return KernelText(text, places, loads, counts, GFX942_WORDS.leaves, THREADS, "kernel.amdgcn")
