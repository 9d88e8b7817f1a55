"""The PTX of matrix products by warpgroups: one producer of stages, consumers that multiply them.

The kernel is persistent: each cluster of blocks computes every `%nclusterid`-th job.  Job j is tile j modulo the number
of tiles, of slice j / the number of tiles, where a tile is that of a whole cluster.  The stages of all jobs of a block
form one sequence through a ring of buffers.  Each buffer has two barriers: `full`, which the bytes of its copies
complete, and `empty`, at which all warps of the cluster that read what a copy of this block replaces arrive.

The prefix of a register is its type: `%p_` predicate, `%h_` 16 bits, `%r_` 32 bits, `%d_` 64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from bitwise_nvidia_sm90.gemm.kernels.finish import OperandLayout, finished, with_registers
from bitwise_nvidia_sm90.gemm.kernels.gathering import LINE_PARAMETERS, gathering_producer, has_lines_of_zeros, zeros
from bitwise_nvidia_sm90.gemm.kernels.pipeline_text import Lines, ceiling_quotient, next_stage, wait
from bitwise_nvidia_sm90.gemm.kernels.text_kernel import TextKernel
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import (
    OUTPUT_BYTES,
    ROWS,
    STORE_BYTES,
    WARPGROUP,
    OperandTile,
    WarpgroupTiles,
)

PARAMETERS = ("A", "B", "C", "M", "N", "K", "slice_k", "slices", "stride_cs", "stride_cm", "stride_cn")
"""The parameters in order: tensor maps A and B, a tensor map or a pointer C, 32-bit integers, 64-bit strides."""
_MAPS, _INTEGERS = 2, 5
OPERAND_PARAMETERS = ("O{}", "o{}_row", "o{}_column")
"""The parameters of each operand of an epilogue, which follow: a pointer, and its strides in elements."""
_BATCH = 8
"""Blocks of 8 columns whose operands are loaded at once, where a tile is stored to pointers."""
_ELEMENTS = {"fp16": "f16", "bf16": "bf16", "e4m3": "e4m3", "e5m2": "e5m2"}
_TYPES = {"p": "pred", "h": "b16", "r": "b32", "d": "b64"}
_SWIZZLE_CODES = {128: 1, 64: 2, 32: 3}
_INSTRUCTION_BYTES = 32
"""The bytes of k of one instruction."""
_LOG2_SWIZZLE_PERIOD = 7
"""A swizzle depends on the address in units of 128 bytes."""
_ADDRESS_BITS = 14
"""The bits of an address in units of 16 bytes in a matrix descriptor."""


def warpgroup_kernel(tiles: WarpgroupTiles) -> TextKernel:
    """Return the kernel C[slice, m, n] = sum over the slice's k of A[m, k] B[k, n] of a configuration.

    A and B map operands over K values of k, padded with zeros.  Each slice except the last is `slice_k` values of k, a
    whole number of stages.  With a gathering, A and B are pointers, slices may have any length, and `kernels.gathering`
    loads the operands.  With the store "map", C is a tensor map and there is one slice; otherwise C is a pointer,
    with strides in elements.  Raises TileError.
    """
    tiles.check()
    name = _name(tiles)
    producer = gathering_producer(tiles, decoded=_decode(tiles)) if tiles.gathering else _producer(tiles)
    body = "\n".join((*_start(tiles), *producer, *_consumer(tiles), "END:", "ret;"))
    text = _module(tiles, name, body)
    return TextKernel(name, text, tiles.threads, tiles.shared_bytes, _parameters(tiles), (tiles.blocks, 1, 1))


def _parameters(tiles: WarpgroupTiles) -> tuple[str, ...]:
    operands = (each.format(index) for index, _ in _layouts(tiles) for each in OPERAND_PARAMETERS)
    return (*PARAMETERS, *operands, *(LINE_PARAMETERS if tiles.gathering else ()))


def _layouts(tiles: WarpgroupTiles) -> tuple[tuple[int, OperandLayout], ...]:
    """Return the operands of the epilogue, with their indices."""
    return () if tiles.finish is None else tuple(enumerate(tiles.finish.layouts))


def _name(tiles: WarpgroupTiles) -> str:
    layouts = "".join("t" if major else "n" for major in (tiles.a_k_major, not tiles.b_k_major))
    roles = "ping_pong" if tiles.ping_pong else f"{tiles.consumers}_consumers"
    cluster = "x".join(map(str, tiles.cluster))
    types = "_".join((*tiles.operands, tiles.output))
    return (
        f"product_{types}_{layouts}_{tiles.block_m}x{tiles.block_n}_{tiles.stages}_stages_{roles}_{cluster}_"
        f"group_{tiles.group}_{tiles.store}{f'_{tiles.resident}_resident' if tiles.resident > 1 else ''}"
        f"{'' if tiles.overlap else '_alone'}{_gathering_name(tiles)}"
        f"{'_epilogue' if tiles.finish else ''}"
    )


def _gathering_name(tiles: WarpgroupTiles) -> str:
    given = tiles.gathering
    if given is None:
        return ""
    pairs = "".join("12"[each] for each in given.pairs)
    return f"_gathers_{given.warpgroups}_{pairs}_{given.short_first}_{given.taken}"


def _module(tiles: WarpgroupTiles, name: str, body: str) -> str:
    """Return the whole text: the entry with its parameters, the registers that the body uses, the body."""
    parameters = []
    for index, each in enumerate(PARAMETERS):
        if index < _MAPS and tiles.gathering:
            parameters.append(f".param .u64 .ptr .global .align 2 {each}")
        elif index < _MAPS or (each == "C" and tiles.store == "map"):
            parameters.append(f".param .align 64 .b8 {each}[128]")
        elif each == "C":
            alignment = OUTPUT_BYTES[tiles.output] * (2 if tiles.store == "pairs" else 1)
            parameters.append(f".param .u64 .ptr .global .align {alignment} {each}")
        else:
            parameters.append(f".param .{'u32' if index <= _MAPS + _INTEGERS else 'u64'} {each}")
    mapped = None if tiles.mapped_operand is None else OPERAND_PARAMETERS[0].format(tiles.mapped_operand)
    parameters.extend(
        f".param .align 64 .b8 {each}[128]" if each == mapped else f".param .u64 {each}"
        for each in _parameters(tiles)[len(PARAMETERS) :]
    )
    registers = sorted(set(re.findall(r"%([phrd])_(\w+)", body)))
    declared = "\n".join(f".reg .{_TYPES[kind]} %{kind}_{rest};" for kind, rest in registers)
    cluster = f".reqnctapercluster {tiles.blocks}, 1, 1\n" if tiles.blocks > 1 else ""
    listed = ",\n".join(parameters)
    return (
        ".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 shared_memory[];\n"
        f".visible .entry {name}(\n{listed}\n)\n.reqntid {tiles.threads}, 1, 1\n.minnctapersm {tiles.resident}\n"
        f"{cluster}{{\n{declared}\n{body}\n}}\n"
    )


def _start(tiles: WarpgroupTiles) -> Lines:
    """Read the parameters, initialise the barriers, wait for the previous kernel, and part the roles."""
    yield "mov.u32 %r_thread, %tid.x;"
    yield "mov.u32 %r_shared, shared_memory;"
    yield f"add.u32 %r_full, %r_shared, {tiles.full_place};"
    yield f"add.u32 %r_empty, %r_shared, {tiles.empty_place};"
    yield f"shr.u32 %r_group, %r_thread, {WARPGROUP.bit_length() - 1};"
    yield "and.b32 %r_lane, %r_thread, 31;"
    for each in PARAMETERS[:_MAPS]:
        if tiles.gathering:
            yield f"ld.param.u64 %d_{each}, [{each}];\ncvta.to.global.u64 %d_{each}, %d_{each};"
        else:
            yield from _map_address(each)
    yield from _map_address("C") if tiles.store == "map" else ("ld.param.u64 %d_C, [C];",)
    for each in PARAMETERS[_MAPS + 1 : _MAPS + 1 + _INTEGERS]:
        yield f"ld.param.u32 %r_{each}, [{each}];"
    yield from _places(tiles)
    yield "setp.eq.u32 %p_first, %r_thread, 0;"
    arrivals = WARPGROUP // 32 * (1 if tiles.ping_pong else tiles.consumers) * tiles.blocks
    for stage in range(tiles.stages):
        yield f"@%p_first mbarrier.init.shared::cta.b64 [%r_full+{8 * stage}], {WARPGROUP if tiles.gathering else 1};"
        yield f"@%p_first mbarrier.init.shared::cta.b64 [%r_empty+{8 * stage}], {arrivals};"
    for consumer in range(2 if tiles.ping_pong else 0):
        place = tiles.turn_place - tiles.full_place + 8 * consumer
        yield f"@%p_first mbarrier.init.shared::cta.b64 [%r_full+{place}], {WARPGROUP // 32};"
    for buffer in range(tiles.consumers * tiles.store_buffers if tiles.mapped_operand is not None else 0):
        place = tiles.operand_place - tiles.full_place + 8 * buffer
        yield f"@%p_first mbarrier.init.shared::cta.b64 [%r_full+{place}], 1;"
    if has_lines_of_zeros(tiles):
        yield from zeros(tiles)
    for each in PARAMETERS[_MAPS if tiles.gathering else 0 : _MAPS + (tiles.store == "map")]:
        yield f"@%p_first prefetch.tensormap [%d_{each}];"
    yield "fence.mbarrier_init.release.cluster;"
    if tiles.blocks > 1:
        yield from _cluster_barrier()
    else:
        yield "bar.sync 0;"
    yield "griddepcontrol.wait;"
    if tiles.overlap:
        yield "griddepcontrol.launch_dependents;"
    yield "mov.u32 %r_stage, 0;"
    yield "mov.u32 %r_parity, 0;"
    yield f"setp.lt.u32 %p_consumes, %r_group, {tiles.consumers};"
    yield "@%p_consumes bra CONSUMER;"


def _map_address(name: str) -> Lines:
    yield f"mov.b64 %d_param_{name}, {name};"
    yield f"cvta.param.u64 %d_{name}, %d_param_{name};"


def _places(tiles: WarpgroupTiles) -> Lines:
    """Compute the number of jobs, the first job, the step between jobs, and the block's rank along m and n."""
    rows, columns = tiles.block_m * tiles.cluster[0], tiles.block_n * tiles.cluster[1]
    yield from ceiling_quotient("%r_down", "%r_M", rows)
    yield from ceiling_quotient("%r_across", "%r_N", columns)
    yield "mul.lo.u32 %r_tiles, %r_down, %r_across;"
    yield "mul.lo.u32 %r_jobs, %r_tiles, %r_slices;"
    if tiles.blocks > 1:
        yield "mov.u32 %r_rank, %cluster_ctarank;"
        yield f"rem.u32 %r_rank_m, %r_rank, {tiles.cluster[0]};"
        yield f"div.u32 %r_rank_n, %r_rank, {tiles.cluster[0]};"
        yield "mov.u32 %r_job, %clusterid.x;"
        yield "mov.u32 %r_clusters, %nclusterid.x;"
    else:
        yield "mov.u32 %r_job, %ctaid.x;"
        yield "mov.u32 %r_clusters, %nctaid.x;"


def _decode(tiles: WarpgroupTiles) -> Lines:
    """Compute the row, the column, the slice, the first k and the number of stages of the job."""
    yield "div.u32 %r_slice, %r_job, %r_tiles;"
    yield "mul.lo.u32 %r_row, %r_slice, %r_tiles;"
    yield "sub.u32 %r_inside, %r_job, %r_row;"
    yield f"mul.lo.u32 %r_in_group, %r_across, {tiles.group};"
    yield "div.u32 %r_row, %r_inside, %r_in_group;"
    yield "mul.lo.u32 %r_column, %r_row, %r_in_group;"
    yield "sub.u32 %r_inside, %r_inside, %r_column;"
    yield f"mul.lo.u32 %r_row, %r_row, {tiles.group};"
    yield "sub.u32 %r_height, %r_down, %r_row;"
    yield f"min.u32 %r_height, %r_height, {tiles.group};"
    yield "div.u32 %r_column, %r_inside, %r_height;"
    yield "mul.lo.u32 %r_height, %r_column, %r_height;"
    yield "sub.u32 %r_inside, %r_inside, %r_height;"
    yield "add.u32 %r_row, %r_row, %r_inside;"
    for axis, (place, count, length) in enumerate(
        (("%r_row", tiles.cluster[0], tiles.block_m), ("%r_column", tiles.cluster[1], tiles.block_n))
    ):
        if count > 1:
            yield f"mad.lo.u32 {place}, {place}, {count}, %r_rank_{'mn'[axis]};"
        yield f"mul.lo.u32 {place}, {place}, {length};"
    yield from _stages_of_slice(tiles, "%r_remaining")


def _stages_of_slice(tiles: WarpgroupTiles, target: str) -> Lines:
    """Compute the first k of the slice, and the number of its stages."""
    yield "mul.lo.u32 %r_k, %r_slice, %r_slice_k;"
    yield f"sub.u32 {target}, %r_K, %r_k;"
    yield f"min.u32 {target}, {target}, %r_slice_k;"
    if tiles.gathering:
        yield f"mov.u32 %r_length, {target};"
    yield from ceiling_quotient(target, target, tiles.gathering.taken * 4 if tiles.gathering else tiles.block_k)


def _producer(tiles: WarpgroupTiles) -> Lines:
    """One thread: wait until a stage is empty, and copy the operands of the next stage to it."""
    yield f"setmaxnreg.dec.sync.aligned.u32 {tiles.registers[0]};"
    yield f"setp.ne.u32 %p_idle, %r_thread, {tiles.consumers * WARPGROUP};"
    yield "@%p_idle bra END;"
    yield "PRODUCER_JOB: setp.ge.u32 %p_done, %r_job, %r_jobs;"
    yield f"@%p_done bra {'PRODUCER_END' if tiles.blocks > 1 else 'END'};"
    yield from _decode(tiles)
    yield "PRODUCER_STAGE: xor.b32 %r_empty_parity, %r_parity, 1;"
    yield from wait("WAIT_EMPTY", "%r_empty", "%r_empty_parity", ".relaxed.cluster" if tiles.blocks > 1 else "")
    if tiles.blocks > 1:
        yield "fence.acquire.sync_restrict::shared::cluster.cluster;"
    yield "shl.b32 %r_at, %r_stage, 3;\nadd.u32 %r_at, %r_at, %r_full;"
    yield f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r_at], {tiles.a.bytes + tiles.b.bytes};"
    yield f"mad.lo.u32 %r_target, %r_stage, {tiles.a.bytes}, %r_shared;"
    yield from _copies(tiles, tiles.a, "A", "%r_row")
    yield f"mad.lo.u32 %r_target, %r_stage, {tiles.b.bytes}, %r_shared;"
    yield f"add.u32 %r_target, %r_target, {tiles.b_place};"
    yield from _copies(tiles, tiles.b, "B", "%r_column")
    yield from next_stage(tiles.stages)
    yield f"add.u32 %r_k, %r_k, {tiles.block_k};"
    yield "sub.u32 %r_remaining, %r_remaining, 1;"
    yield "setp.ne.u32 %p_more, %r_remaining, 0;"
    yield "@%p_more bra PRODUCER_STAGE;"
    yield "add.u32 %r_job, %r_job, %r_clusters;"
    yield "bra PRODUCER_JOB;"
    if tiles.blocks > 1:
        yield from _wait_for_arrivals(tiles)


def _wait_for_arrivals(tiles: WarpgroupTiles) -> Lines:
    """Wait until all stages are empty, so that no block ends while another one can access its shared memory.

    Then all blocks that share operands have what this one copied to them, and all of their arrivals at its barriers
    have landed.  A barrier of the cluster would not wait for arrivals that are under way.
    """
    yield f"PRODUCER_END: mov.u32 %r_remaining, {tiles.stages};"
    yield "PRODUCER_REST: xor.b32 %r_empty_parity, %r_parity, 1;"
    yield from wait("WAIT_REST", "%r_empty", "%r_empty_parity", ".relaxed.cluster")
    yield "fence.acquire.sync_restrict::shared::cluster.cluster;"
    yield from next_stage(tiles.stages)
    yield "sub.u32 %r_remaining, %r_remaining, 1;"
    yield "setp.ne.u32 %p_more, %r_remaining, 0;"
    yield "@%p_more bra PRODUCER_REST;"
    yield "bra END;"


def _copies(tiles: WarpgroupTiles, tile: OperandTile, name: str, place: str) -> Lines:
    """Copy a tile to the stage at %r_target; `place` is the register of its first row or column of the output.

    The blocks of a cluster that share the tile copy a part of it each, to all of them, or the stages in turn.
    """
    lines = tile.box[0]
    first = "%r_first_line"
    yield f"mov.u32 {first}, {place if tile.k_major else '%r_k'};"
    form = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    guard = mask = ""
    if tile.sharers > 1:
        along_m = tiles.cluster[0]
        part, masks, shift = (
            ("%r_rank_n", sum(1 << along_m * each for each in range(tile.sharers)), "%r_rank_m")
            if name == "A"
            else ("%r_rank_m", (1 << along_m) - 1, "%r_first_rank")
        )
        if name == "B":
            yield f"mul.lo.u32 {shift}, %r_rank_n, {along_m};"
        if tile.parts > 1:
            yield f"mad.lo.u32 {first}, {part}, {lines}, {first};"
            yield f"mad.lo.u32 %r_target, {part}, {lines * tile.swizzle}, %r_target;"
        else:
            yield f"and.b32 %r_copier, %r_stage, {tile.sharers - 1};"
            yield f"setp.eq.u32 %p_copies, %r_copier, {part};"
            guard = "@%p_copies "
        yield f"mov.b16 %h_all, {masks};\nshl.b16 %h_all, %h_all, {shift};"
        form, mask = f"{form}.multicast::cluster", ", %h_all"
    for chunk in range(tile.chunks):
        offset = f"+{chunk * tile.lines * tile.swizzle}" if chunk else ""
        inner = "%r_k" if tile.k_major else place
        if chunk:
            inner = f"%r_chunk_{chunk}"
            yield f"add.u32 {inner}, {place}, {chunk * tile.width};"
        yield f"{guard}{form} [%r_target{offset}], [%d_{name}, {{{inner}, {first}}}], [%r_at]{mask};"


def _consumer(tiles: WarpgroupTiles) -> Lines:
    """Multiply the stages of each job, and store its tile."""
    yield "CONSUMER:"
    if not tiles.gathering:
        yield f"setmaxnreg.inc.sync.aligned.u32 {tiles.registers[1]};"
    yield "mov.pred %p_adds, -1;"
    yield "mov.pred %p_starts, 0;"
    yield from _consumer_places(tiles)
    if tiles.ping_pong:
        yield "shl.b32 %r_step, %r_clusters, 1;"
        yield "mad.lo.u32 %r_turn, %r_group, 8, %r_shared;"
        yield f"add.u32 %r_turn, %r_turn, {tiles.turn_place};"
        yield "xor.b32 %r_other_turn, %r_turn, 8;"
        yield "xor.b32 %r_turn_parity, %r_group, 1;"
        yield "@%p_is_0 bra CONSUMER_JOB;"
        yield "sub.u32 %r_job, %r_job, %r_clusters;"
        yield from _skip(tiles)
        yield "add.u32 %r_job, %r_job, %r_step;"
    step = "%r_step" if tiles.ping_pong else "%r_clusters"
    yield "CONSUMER_JOB: setp.ge.u32 %p_done, %r_job, %r_jobs;"
    yield "@%p_done bra CONSUMER_END;"
    yield from _decode(tiles)
    yield from _early_operands(tiles)
    yield from (_promoted_stages if tiles.starts_accumulators else _stages)(tiles)
    yield from (_store_through_map if tiles.store == "map" else _store_to_pointers)(tiles)
    if tiles.ping_pong:
        yield from _skip(tiles)
    yield f"add.u32 %r_job, %r_job, {step};"
    yield "bra CONSUMER_JOB;"
    yield "CONSUMER_END:"
    if tiles.store == "map":
        yield "@%p_issues cp.async.bulk.wait_group.read 0;"


def _skip(tiles: WarpgroupTiles) -> Lines:
    """Step over the stages of the job after this one, which the other consumer multiplies."""
    yield "add.u32 %r_inside, %r_job, %r_clusters;"
    yield "div.u32 %r_slice, %r_inside, %r_tiles;"
    yield from _stages_of_slice(tiles, "%r_remaining")
    yield "add.u32 %r_stage, %r_stage, %r_remaining;"
    yield f"div.u32 %r_remaining, %r_stage, {tiles.stages};"
    yield f"rem.u32 %r_stage, %r_stage, {tiles.stages};"
    yield "and.b32 %r_remaining, %r_remaining, 1;"
    yield "xor.b32 %r_parity, %r_parity, %r_remaining;"


def _consumer_places(tiles: WarpgroupTiles) -> Lines:
    """Compute what does not change between jobs: descriptors, the barriers to release, the thread's part of a tile."""
    own_rows = 0 if tiles.ping_pong else tiles.consumer_rows
    for name, tile, place in (("a", tiles.a, 0), ("b", tiles.b, tiles.b_place)):
        yield f"add.u32 %r_{name}_place, %r_shared, {place};"
        if name == "a" and own_rows:
            yield f"mad.lo.u32 %r_a_place, %r_group, {_row_offset(tile, own_rows)}, %r_a_place;"
        # Only these bits: above them, an address may hold the block's rank in its cluster.
        yield f"bfe.u32 %r_{name}_place, %r_{name}_place, 4, {_ADDRESS_BITS};"
        yield f"cvt.u64.u32 %d_{name}_first, %r_{name}_place;"
        yield f"or.b64 %d_{name}_first, %d_{name}_first, {_descriptor(tile)};"
    yield "setp.eq.u32 %p_leads, %r_lane, 0;"
    if tiles.blocks > 1:
        yield f"setp.lt.u32 %p_releases, %r_lane, {tiles.blocks};"
        yield f"min.u32 %r_owner, %r_lane, {tiles.blocks - 1};"
        yield "mapa.shared::cluster.u32 %r_empty, %r_empty, %r_owner;"
    yield f"and.b32 %r_in_group_thread, %r_thread, {WARPGROUP - 1};"
    yield "setp.eq.u32 %p_issues, %r_in_group_thread, 0;"
    yield "shr.u32 %r_warp, %r_in_group_thread, 5;"
    for consumer in range(tiles.consumers):
        yield f"setp.eq.u32 %p_is_{consumer}, %r_group, {consumer};"
    yield from (_matrix_store_places if tiles.store == "map" else _pointer_places)(tiles)
    yield from _operand_places(tiles)


def _row_offset(tile: OperandTile, rows: int) -> int:
    """Return the bytes from a row of a tile to the row `rows` below; both are multiples of 64."""
    return rows * tile.swizzle if tile.k_major else rows // tile.width * tile.lines * tile.swizzle


def _k_offset(tile: OperandTile, instruction: int) -> int:
    """Return the bytes from the first k of a tile to that of one of its instructions."""
    k = instruction * _INSTRUCTION_BYTES // tile.size
    return k * tile.size if tile.k_major else k * tile.swizzle


def _descriptor(tile: OperandTile) -> int:
    """Return the matrix descriptor of a tile at address 0, as a signed number of 64 bits."""
    leading = 0 if tile.k_major else tile.lines * tile.swizzle
    stride = 8 * tile.swizzle
    found = leading >> 4 << 16 | stride >> 4 << 32 | _SWIZZLE_CODES[tile.swizzle] << 62
    return found - (1 << 64) if found >> 63 else found


def _stages(tiles: WarpgroupTiles) -> Lines:
    """Multiply all stages of a job in one accumulator; a stage is released while the next one is multiplied."""
    if tiles.ping_pong:
        yield from _wait_for_turn()
    yield from wait("WAIT_FIRST", "%r_full", "%r_parity", "")
    yield from _multiply(tiles, starts=True)
    yield from _advance(tiles)
    yield "@!%p_more bra LAST_STAGE;"
    yield "STAGE:"
    yield from wait("WAIT_FULL", "%r_full", "%r_parity", "")
    yield from _multiply(tiles, starts=False)
    yield "wgmma.wait_group.sync.aligned 1;"
    yield from _release(tiles)
    yield from _advance(tiles)
    yield "@%p_more bra STAGE;"
    yield "LAST_STAGE:"
    if tiles.ping_pong:
        yield from _give_turn()
    yield "wgmma.wait_group.sync.aligned 0;"
    yield from _release(tiles)


def _wait_for_turn() -> Lines:
    """Wait until the other consumer has multiplied the job before.

    Then all stages of that job are full, so that a parity tells the awaited phase of a stage from the one before.
    """
    yield "WAIT_TURN: mbarrier.try_wait.parity.shared::cta.b64 %p_ready, [%r_turn], %r_turn_parity;"
    yield "@!%p_ready bra WAIT_TURN;"
    yield "xor.b32 %r_turn_parity, %r_turn_parity, 1;"


def _give_turn() -> Lines:
    """Let the other consumer multiply: this one has waited for all of its stages."""
    yield "@%p_leads mbarrier.arrive.shared::cta.b64 _, [%r_other_turn];"


def _promoted_stages(tiles: WarpgroupTiles) -> Lines:
    """Multiply each stage of a job in an accumulator of its own, and add it to the total."""
    count = tiles.consumer_rows * tiles.block_n // WARPGROUP
    for index in range(count):
        yield f"mov.b32 %r_total_{index}, 0f00000000;"
    if tiles.ping_pong:
        yield from _wait_for_turn()
    yield "STAGE:"
    yield from wait("WAIT_FULL", "%r_full", "%r_parity", "")
    yield from _multiply(tiles, starts=True)
    yield from _advance(tiles)
    yield "wgmma.wait_group.sync.aligned 0;"
    yield from _release(tiles)
    for index in range(count):
        yield f"add.rn.f32 %r_total_{index}, %r_total_{index}, %r_sum_{index};"
    yield "@%p_more bra STAGE;"
    if tiles.ping_pong:
        yield from _give_turn()


def _advance(tiles: WarpgroupTiles) -> Lines:
    """Go to the next stage; %r_used holds the barrier of the one before, and %p_more is whether the job has more.

    The barrier is computed here, since the stage before is still being read.
    """
    yield "mov.u32 %r_used, %r_next_used;"
    yield from next_stage(tiles.stages)
    yield "sub.u32 %r_remaining, %r_remaining, 1;"
    yield "setp.ne.u32 %p_more, %r_remaining, 0;"


def _release(tiles: WarpgroupTiles) -> Lines:
    """Each warp has read the stage before: it arrives at the barriers of all blocks that copy to this one.

    A fence of this block's shared memory and a relaxed arrival publish the reads to the cluster.  An arrival with
    `.release.cluster` would wait for a fence of all memory of the device.
    """
    if tiles.blocks > 1:
        yield "fence.release.sync_restrict::shared::cta.cluster;"
        yield "@%p_releases mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r_used];"
    else:
        yield "@%p_leads mbarrier.arrive.shared::cta.b64 _, [%r_used];"


def _multiply(tiles: WarpgroupTiles, *, starts: bool) -> Lines:
    """Multiply the current stage: k in ascending order for each accumulator.  `starts`: from new accumulators."""
    for name, tile in (("a", tiles.a), ("b", tiles.b)):
        yield f"mul.wide.u32 %d_{name}_offset, %r_stage, {tile.bytes >> 4};"
        yield f"add.s64 %d_{name}_stage, %d_{name}_first, %d_{name}_offset;"
    yield "shl.b32 %r_next_used, %r_stage, 3;\nadd.u32 %r_next_used, %r_next_used, %r_empty;"
    yield "wgmma.fence.sync.aligned;"
    parts, per_part = tiles.consumer_rows // ROWS, ROWS * tiles.block_n // WARPGROUP
    elements = ".".join(_ELEMENTS[each] for each in tiles.operands)
    k = _INSTRUCTION_BYTES // tiles.a.size
    form = f"wgmma.mma_async.sync.aligned.m64n{tiles.block_n}k{k}.f32.{elements}"
    layouts = f", {int(not tiles.a_k_major)}, {int(not tiles.b_k_major)}" if tiles.a.size == 2 else ""
    for instruction in range(tiles.block_k // k):
        yield f"add.s64 %d_b_{instruction}, %d_b_stage, {_k_offset(tiles.b, instruction) >> 4};"
        adds = "%p_starts" if starts and not instruction else "%p_adds"
        for part in range(parts):
            offset = _row_offset(tiles.a, part * ROWS) + _k_offset(tiles.a, instruction)
            left = f"%d_a_{instruction}_{part}"
            yield f"add.s64 {left}, %d_a_stage, {offset >> 4};"
            sums = ", ".join(f"%r_sum_{index}" for index in range(part * per_part, (part + 1) * per_part))
            yield f"{form} {{{sums}}}, {left}, %d_b_{instruction}, {adds}, 1, 1{layouts};"
    yield "wgmma.commit_group.sync.aligned;"


def _results(tiles: WarpgroupTiles, part: int, column_block: int) -> tuple[str, str, str, str]:
    """Return the registers of a thread in 64 rows and 8 columns: two of a row, then two of the row 8 below."""
    kind = "total" if tiles.starts_accumulators else "sum"
    first = part * ROWS * tiles.block_n // WARPGROUP + 4 * column_block
    return tuple(f"%r_{kind}_{first + index}" for index in range(4))  # type: ignore[return-value]


def _group_barrier(tiles: WarpgroupTiles) -> Lines:
    """Wait for all threads of the consumer."""
    for consumer in range(tiles.consumers):
        yield f"@%p_is_{consumer} bar.sync {consumer + 1}, {WARPGROUP};"


def _matrix_store_places(tiles: WarpgroupTiles) -> Lines:
    """Compute %r_store, the consumer's buffers, and %r_store_lane, where the thread writes to a buffer."""
    pitch, size = tiles.store_swizzle, OUTPUT_BYTES[tiles.output]
    yield f"mul.lo.u32 %r_store, %r_group, {tiles.store_buffers * STORE_BYTES};"
    yield "add.u32 %r_store, %r_store, %r_shared;"
    yield f"add.u32 %r_store, %r_store, {tiles.store_place};"
    if size == 2:  # stmatrix: the address of a row of 8 columns; the upper lanes have the next 8 columns
        yield "and.b32 %r_store_row, %r_lane, 15;"
        yield "shr.u32 %r_store_unit, %r_lane, 4;"
        yield "shl.b32 %r_store_unit, %r_store_unit, 4;"
    else:  # two columns in a row
        yield "shr.u32 %r_store_row, %r_lane, 2;"
        yield "and.b32 %r_store_unit, %r_lane, 3;"
        yield f"mul.lo.u32 %r_store_unit, %r_store_unit, {2 * size};"
    yield "mad.lo.u32 %r_store_row, %r_warp, 16, %r_store_row;"
    yield f"mad.lo.u32 %r_store_lane, %r_store_row, {pitch}, %r_store_unit;"
    yield f"shr.u32 %r_store_unit, %r_store_lane, {_LOG2_SWIZZLE_PERIOD};"
    yield f"and.b32 %r_store_unit, %r_store_unit, {pitch // 16 - 1};"
    yield "shl.b32 %r_store_unit, %r_store_unit, 4;"
    yield "xor.b32 %r_store_lane, %r_store_lane, %r_store_unit;"
    yield "add.u32 %r_store_lane, %r_store_lane, %r_store;"


def _store_through_map(tiles: WarpgroupTiles) -> Lines:
    """Convert the tile, write it to shared memory in parts of 64 rows, and copy each part to C.

    The copies of the last parts read shared memory while the next job is multiplied.
    """
    places = _store_places(tiles)
    buffers = tiles.store_buffers
    if not tiles.ping_pong:
        yield f"mad.lo.u32 %r_row, %r_group, {tiles.consumer_rows}, %r_row;"
    yield from _operands_of_part(tiles, places, 0)
    for part, (row, column) in enumerate(places):
        buffer = part % buffers * STORE_BYTES
        if tiles.mapped_operand is not None:
            yield from _wait_for_operand(part, part % buffers)
        else:
            pending = buffers - 1 if len(places) % buffers == 0 else min(part, buffers - 1)
            yield f"@%p_issues cp.async.bulk.wait_group.read {pending};"
            yield from _group_barrier(tiles)
        yield from _operands_of_part(tiles, places, part + 1)
        yield from _write_part(tiles, row // ROWS, column // 8, buffer)
        yield "fence.proxy.async.shared::cta;"
        yield from _group_barrier(tiles)
        yield f"add.u32 %r_part_row, %r_row, {row};"
        yield f"add.u32 %r_part_column, %r_column, {column};"
        yield (
            "@%p_issues cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d_C, {%r_part_column, %r_part_row}], "
            f"[%r_store+{buffer}];"
        )
        yield "@%p_issues cp.async.bulk.commit_group;"
        if tiles.mapped_operand is not None and part + buffers < len(places):
            yield "@%p_issues cp.async.bulk.wait_group.read 0;"
            yield from _copy_operand(tiles, places[part + buffers], part % buffers)


def _copy_operand(tiles: WarpgroupTiles, place: tuple[int, int], buffer: int) -> Lines:
    """Copy a part of the epilogue's mapped operand to the buffer from which the part is stored."""
    row, column = place
    yield f"add.u32 %r_part_row, %r_operand_row, {row};"
    yield f"add.u32 %r_part_column, %r_column, {column};"
    yield (
        "@%p_issues mbarrier.arrive.expect_tx.shared::cta.b64 _, "
        f"[%r_operand_barrier+{8 * buffer}], {ROWS * tiles.store_swizzle};"
    )
    yield (
        "@%p_issues cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[%r_store+{buffer * STORE_BYTES}], [%d_O{tiles.mapped_operand}, {{%r_part_column, %r_part_row}}], "
        f"[%r_operand_barrier+{8 * buffer}];"
    )


def _wait_for_operand(part: int, buffer: int) -> Lines:
    """Wait until a part of the mapped operand is in its buffer, which no earlier store reads."""
    place = f"[%r_operand_barrier+{8 * buffer}], %r_operand_parity_{buffer}"
    yield f"WAIT_OPERAND_{part}: mbarrier.try_wait.parity.shared::cta.b64 %p_ready, {place};"
    yield f"@!%p_ready bra WAIT_OPERAND_{part};"
    yield f"xor.b32 %r_operand_parity_{buffer}, %r_operand_parity_{buffer}, 1;"


def _early_operands(tiles: WarpgroupTiles) -> Lines:
    """Load what the epilogue needs while the product is computed: all operands, or the first parts of a mapped one."""
    if not _layouts(tiles):
        return
    yield "add.u32 %r_own_row, %r_row, %r_finish_row;"
    yield "add.u32 %r_own_column, %r_column, %r_thread_column;"
    if tiles.mapped_operand is not None:
        yield "mov.u32 %r_operand_row, %r_row;"
        if not tiles.ping_pong:
            yield f"mad.lo.u32 %r_operand_row, %r_group, {tiles.consumer_rows}, %r_operand_row;"
        yield "@%p_issues cp.async.bulk.wait_group.read 0;"
        for buffer, place in enumerate(_store_places(tiles)[: tiles.store_buffers]):
            yield from _copy_operand(tiles, place, buffer)
    if tiles.operands_are_early:
        for part in range(tiles.consumer_rows // ROWS):
            yield from _load_operands(tiles, part, (0, 1), range(tiles.block_n // 8))


def _store_places(tiles: WarpgroupTiles) -> list[tuple[int, int]]:
    """Return the first row and column of each part of a consumer's tile that is stored through a map."""
    return [(row, column) for row in range(0, tiles.consumer_rows, ROWS) for column in tiles.store_offsets]


def _operands_of_part(tiles: WarpgroupTiles, places: list[tuple[int, int]], part: int) -> Lines:
    """Load the epilogue's operands of a part of the tile, if there is one: while the part before is stored."""
    if part < len(places) and not tiles.operands_are_early:
        row, column = places[part]
        blocks = range(column // 8, (column + tiles.store_columns) // 8)
        yield from _load_operands(tiles, row // ROWS, (0, 1), blocks)


def _write_part(tiles: WarpgroupTiles, part: int, first: int, buffer: int) -> Lines:
    """Write 64 rows of `store_columns` columns of the output, from the block `first` of 8 columns, to a buffer."""
    blocks = tiles.store_columns // 8
    size = OUTPUT_BYTES[tiles.output]
    if size != 2:
        for block in range(blocks):
            yield f"xor.b32 %r_store_at, %r_store_lane, {block * 8 * size};"
            for half in range(2):
                place = buffer + half * 8 * tiles.store_swizzle
                if size == 4:
                    low, high = yield from _pair(tiles, part, first + block, half)
                    yield f"st.shared.v2.b32 [%r_store_at+{place}], {{{low}, {high}}};"
                else:
                    yield from _packed(tiles, part, first + block, half, "%r_pair_0")
                    yield f"cvt.u16.u32 %h_pair, %r_pair_0;\nst.shared.b16 [%r_store_at+{place}], %h_pair;"
        return
    for block in range(0, blocks, 2):
        yield f"xor.b32 %r_store_at, %r_store_lane, {block * 16};"
        pairs, mapped = (", ".join(f"%r_{name}_{index}" for index in range(4)) for name in ("pair", "mapped"))
        if tiles.mapped_operand is not None:
            yield f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{mapped}}}, [%r_store_at+{buffer}];"
        for offset in range(2):
            for half in range(2):
                target = f"%r_pair_{2 * offset + half}"
                yield from _packed(tiles, part, first + block + offset, half, target, offset)
        yield f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r_store_at+{buffer}], {{{pairs}}};"


def _pair(
    tiles: WarpgroupTiles, part: int, block: int, half: int, mapped: int = 0
) -> Generator[str, None, tuple[str, str]]:
    """Return the registers of two neighbours of a row as they are stored: those of 16 bits are %h_, others 32 bits.

    `mapped` is the place of the block of 8 columns, 0 or 1, among those whose mapped operands were read at once.
    """
    low, high = _results(tiles, part, block)[2 * half : 2 * half + 2]
    if tiles.finish is None:
        return low, high
    found = []
    for index, each in _layouts(tiles):
        if each.size == 2 and each.columns in ("pairs", "map"):
            pair = (
                f"%r_mapped_{2 * mapped + half}"
                if each.columns == "map"
                else _operand(index, each, part, half, block, 0)
            )
            yield f"mov.b32 {{%h_operand{index}_0, %h_operand{index}_1}}, {pair};"
    for place, total in enumerate((low, high)):
        text = finished(tiles.finish.epilogue, tiles.finish.dtype, f"element{place}_")
        operands = tuple(
            f"%h_operand{index}_{place}" if each.size == 2 and each.columns in ("pairs", "map")
            else _operand(index, each, part, half, block, place)
            for index, each in _layouts(tiles)
        )  # fmt: skip
        yield with_registers("\n".join(text.lines), total, operands)
        found.append(text.result)
    return found[0], found[1]


def _packed(tiles: WarpgroupTiles, part: int, block: int, half: int, target: str, mapped: int = 0) -> Lines:
    """Write two neighbours of a row, of 16 or 8 bits each, to the lower bits of a register."""
    low, high = yield from _pair(tiles, part, block, half, mapped)
    if tiles.finish is None:
        yield f"cvt.rn.{_ELEMENTS[tiles.output]}x2.f32 {target}, {high}, {low};"
    elif OUTPUT_BYTES[tiles.output] == 2:
        yield f"mov.b32 {target}, {{{low}, {high}}};"
    else:
        yield f"shl.b32 {target}, {high}, 8;\nor.b32 {target}, {target}, {low};"


def _thread_places() -> Lines:
    """Compute the thread's first row and column in the tile of its consumer."""
    yield "shr.u32 %r_thread_row, %r_lane, 2;"
    yield "mad.lo.u32 %r_thread_row, %r_warp, 16, %r_thread_row;"
    yield "and.b32 %r_thread_column, %r_lane, 3;"
    yield "shl.b32 %r_thread_column, %r_thread_column, 1;"


def _operand_places(tiles: WarpgroupTiles) -> Lines:
    """Compute the thread's first row in a tile, and read the addresses of the epilogue's operands and their strides.

    The strides are in bytes.
    """
    if not _layouts(tiles):
        return
    if tiles.store == "map":
        yield from _thread_places()
    yield "mov.u32 %r_finish_row, %r_thread_row;"
    if tiles.store == "map" and not tiles.ping_pong:
        yield f"mad.lo.u32 %r_finish_row, %r_group, {tiles.consumer_rows}, %r_finish_row;"
    for index, layout in _layouts(tiles):
        name, *strides = (each.format(index) for each in OPERAND_PARAMETERS)
        if layout.columns == "map":
            yield from _map_address(name)
            yield f"mul.lo.u32 %r_operand_barrier, %r_group, {8 * tiles.store_buffers};"
            yield "add.u32 %r_operand_barrier, %r_operand_barrier, %r_shared;"
            yield f"add.u32 %r_operand_barrier, %r_operand_barrier, {tiles.operand_place};"
            for buffer in range(tiles.store_buffers):
                yield f"mov.u32 %r_operand_parity_{buffer}, 0;"
            continue
        yield f"ld.param.u64 %d_{name}, [{name}];\ncvta.to.global.u64 %d_{name}, %d_{name};"
        for each in strides:
            yield f"ld.param.u64 %d_{each}, [{each}];\nmul.lo.u64 %d_{each}, %d_{each}, {layout.size};"


def _operand(index: int, layout: OperandLayout, part: int, half: int, block: int, place: int) -> str:
    """Return the register of an operand's element: in a part of 64 rows, the row `half`, one of two neighbours.

    The elements of 16 bits that are loaded two at once share the register of the first.
    """
    kind = "h" if layout.size == 2 and layout.columns != "pairs" else "r"
    row = f"{part}_{half}" if layout.rows else "all"
    column = "all" if layout.columns == "same" else f"{block}_{place}"
    return f"%{kind}_operand{index}_{row}_{column}"


def _load_operands(tiles: WarpgroupTiles, part: int, halves: tuple[int, ...], blocks: range) -> Lines:
    """Load the operands of blocks of 8 columns, except a mapped one; those outside of the matrix are not read.

    %r_own_row and %r_own_column are the thread's first row and column of the output.
    """
    for index, layout in _layouts(tiles):
        if layout.columns == "map":
            continue
        name, row_stride, column_stride = (f"%d_{each.format(index)}" for each in OPERAND_PARAMETERS)
        for half in halves if layout.rows else halves[:1]:
            yield f"add.u32 %r_part_row, %r_own_row, {part * ROWS + 8 * half};"
            yield "setp.lt.u32 %p_row, %r_part_row, %r_M;" if layout.rows else "mov.pred %p_row, -1;"
            yield "cvt.u64.u32 %d_row, %r_part_row;"
            yield f"mad.lo.u64 %d_operand_line, %d_row, {row_stride}, {name};"
            if layout.columns == "same":
                target = _operand(index, layout, part, half, 0, 0)
                yield f"@%p_row ld.global.b{8 * layout.size} {target}, [%d_operand_line];"
                continue
            yield "cvt.u64.u32 %d_column, %r_own_column;"
            yield f"mad.lo.u64 %d_operand_line, %d_column, {column_stride}, %d_operand_line;"
            for block in blocks:
                for place in (0,) if layout.columns == "pairs" else (0, 1):
                    yield f"add.u32 %r_part_column, %r_own_column, {8 * block + place};"
                    yield "setp.lt.and.u32 %p_inside, %r_part_column, %r_N, %p_row;"
                    address = f"%d_operand_line+{(8 * block + place) * layout.size}"
                    if layout.columns != "pairs":
                        yield f"mad.lo.u64 %d_operand, {column_stride}, {8 * block + place}, %d_operand_line;"
                        address = "%d_operand"
                    yield from _load_operand(index, layout, part, half, block, place, address)


def _load_operand(
    index: int, layout: OperandLayout, part: int, half: int, block: int, place: int, address: str
) -> Lines:
    target = _operand(index, layout, part, half, block, place)
    if layout.columns == "pairs" and layout.size == 4:
        pair = f"{{{target}, {_operand(index, layout, part, half, block, 1)}}}"
        yield f"@%p_inside ld.global.v2.b32 {pair}, [{address}];"
    else:
        bits = 8 * layout.size * (2 if layout.columns == "pairs" else 1)
        yield f"@%p_inside ld.global.b{bits} {target}, [{address}];"


def _pointer_places(tiles: WarpgroupTiles) -> Lines:
    """Compute the thread's first row and column in a tile, and the strides of C in bytes."""
    size = OUTPUT_BYTES[tiles.output]
    yield from _thread_places()
    if not tiles.ping_pong:
        yield f"mad.lo.u32 %r_thread_row, %r_group, {tiles.consumer_rows}, %r_thread_row;"
    for each in PARAMETERS[-3:]:
        yield f"ld.param.u64 %d_{each}, [{each}];"
        yield f"mul.lo.u64 %d_{each}, %d_{each}, {size};"


def _store_to_pointers(tiles: WarpgroupTiles) -> Lines:
    """Store the elements inside of the matrix to C, two of a row at once or one by one."""
    yield "cvt.u64.u32 %d_slice, %r_slice;"
    yield "mad.lo.u64 %d_slice_place, %d_slice, %d_stride_cs, %d_C;"
    yield "add.u32 %r_column, %r_column, %r_thread_column;"
    yield "add.u32 %r_row, %r_row, %r_thread_row;"
    blocks = tiles.block_n // 8
    for part in range(tiles.consumer_rows // ROWS):
        for half in range(2):
            for first in range(0, blocks, _BATCH):
                batch = range(first, min(first + _BATCH, blocks))
                if not tiles.operands_are_early:
                    yield from _load_operands(tiles, part, (half,), batch)
                if first == 0 or _layouts(tiles):
                    yield f"add.u32 %r_part_row, %r_row, {part * ROWS + 8 * half};"
                    yield "setp.lt.u32 %p_row, %r_part_row, %r_M;"
                    yield "cvt.u64.u32 %d_row, %r_part_row;"
                    yield "mad.lo.u64 %d_line, %d_row, %d_stride_cm, %d_slice_place;"
                for block in batch:
                    yield f"add.u32 %r_part_column, %r_column, {8 * block};"
                    skip = f"SKIP_{part}_{half}_{block}"
                    if tiles.finish is not None:
                        yield "setp.lt.and.u32 %p_inside, %r_part_column, %r_N, %p_row;"
                        yield f"@!%p_inside bra {skip};"
                    yield from (_store_pair if tiles.store == "pairs" else _store_elements)(tiles, part, block, half)
                    if tiles.finish is not None:
                        yield f"{skip}:"


def _store_pair(tiles: WarpgroupTiles, part: int, block: int, half: int) -> Lines:
    """Store two neighbours of a row, which lie inside of the matrix or outside of it together."""
    yield from _element_address()
    if tiles.output == "fp32":
        low, high = yield from _pair(tiles, part, block, half)
        yield f"@%p_inside st.global.v2.b32 [%d_element], {{{low}, {high}}};"
    else:
        yield from _packed(tiles, part, block, half, "%r_pair_0")
        yield "@%p_inside st.global.b32 [%d_element], %r_pair_0;"


def _store_elements(tiles: WarpgroupTiles, part: int, block: int, half: int) -> Lines:
    """Store two neighbours of a row one by one."""
    size = OUTPUT_BYTES[tiles.output]
    values, kind = ("%h_low", "%h_high"), "b16"
    if tiles.finish is not None or size == 4:
        values, kind = (yield from _pair(tiles, part, block, half)), f"b{8 * size}"
    else:
        yield from _packed(tiles, part, block, half, "%r_pair_0")
        yield f"mov.b32 {{{values[0]}, {values[1]}}}, %r_pair_0;"
    for value in values:
        yield from _element_address()
        yield f"@%p_inside st.global.{kind} [%d_element], {value};"
        yield "add.u32 %r_part_column, %r_part_column, 1;"


def _element_address() -> Lines:
    yield "setp.lt.and.u32 %p_inside, %r_part_column, %r_N, %p_row;"
    yield "cvt.u64.u32 %d_column, %r_part_column;"
    yield "mad.lo.u64 %d_element, %d_column, %d_stride_cn, %d_line;"


def _cluster_barrier() -> Lines:
    """Wait for all threads of the cluster; publish the accesses to the shared memory of the own block."""
    yield "fence.release.sync_restrict::shared::cta.cluster;"
    yield "barrier.cluster.arrive.relaxed.aligned;"
    yield "barrier.cluster.wait.acquire.aligned;"
