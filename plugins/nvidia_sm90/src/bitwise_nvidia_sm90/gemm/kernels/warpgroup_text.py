"""The PTX of matrix products by warpgroups: one producer of stages, consumers that multiply them.

The kernel is persistent: each cluster of blocks computes every `%nclusterid`-th job.  Job j is tile j modulo the number
of tiles, of slice j / the number of tiles, where a tile is that of a whole cluster.  The stages of all jobs of a block
form one sequence through a ring of buffers.  Each buffer has two barriers: `full`, which the bytes of its copies
complete, and `empty`, at which all warps of the cluster that read what a copy of this block replaces arrive.

The prefix of a register is its type: `%p_` predicate, `%h_` 16 bits, `%r_` 32 bits, `%d_` 64 bits.
"""

from __future__ import annotations

import re

from bitwise_nvidia_sm90.gemm.kernels.gathering import gathering_producer, has_lasting_zeros, zeros
from bitwise_nvidia_sm90.gemm.kernels.pipeline_text import Lines
from bitwise_nvidia_sm90.gemm.kernels.text_kernel import TextKernel
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_copies import copying_producer
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_jobs import job_places, place_of_job, stages_of_slice
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_multiplication import (
    descriptor_places,
    multiplied_stages,
    promoted_stages,
)
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_operands import early_operands, operand_places
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_parameters import (
    INTEGERS,
    MAPS,
    PARAMETERS,
    declared_parameters,
    map_address,
    mapped_scales,
    parameters,
)
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_scales import scale_places
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_stores import (
    matrix_store_places,
    pointer_places,
    store_through_map,
    store_to_pointers,
)
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import WARPGROUP, WarpgroupTiles

_TYPES = {"p": "pred", "h": "b16", "r": "b32", "d": "b64"}


def warpgroup_kernel(tiles: WarpgroupTiles) -> TextKernel:
    """Return the kernel C[slice, m, n] = sum over the slice's k of A[m, k] B[k, n] of a configuration.

    A and B map operands over K values of k, padded with zeros.  Each slice except the last is `slice_k` values of k, a
    whole number of stages.  With a gathering, A and B are pointers, slices may have any length, and `kernels.gathering`
    loads the operands.  With the stores "map" and "columns", C is a tensor map and there is one slice; otherwise C is
    a pointer, with strides in elements.  Raises TileError.
    """
    tiles.check()
    name = _name(tiles)
    producer = gathering_producer(tiles, decoded=place_of_job(tiles)) if tiles.gathering else copying_producer(tiles)
    body = "\n".join((*_start(tiles), *producer, *_consumer(tiles), "END:", "ret;"))
    text = _module(tiles, name, body)
    return TextKernel(name, text, tiles.threads, tiles.shared_bytes, parameters(tiles), (tiles.blocks, 1, 1))


def _name(tiles: WarpgroupTiles) -> str:
    layouts = "".join("t" if major else "n" for major in (tiles.a_k_major, not tiles.b_k_major))
    roles = "ping_pong" if tiles.ping_pong else f"{tiles.consumers}_consumers"
    cluster = "x".join(map(str, tiles.cluster))
    types = "_".join((*tiles.operands, tiles.output))
    return (
        f"product_{types}_{layouts}_{tiles.block_m}x{tiles.block_n}_{tiles.stages}_stages_of_{tiles.block_k}_"
        f"{roles}_{cluster}_"
        f"group_{tiles.group}_{tiles.store}{f'_{tiles.resident}_resident' if tiles.resident > 1 else ''}"
        f"{'' if tiles.overlap else '_alone'}{_gathering_name(tiles)}"
        f"{'_epilogue' if tiles.finish else ''}{_scales_name(tiles)}"
    )


def _gathering_name(tiles: WarpgroupTiles) -> str:
    given = tiles.gathering
    if given is None:
        return ""
    aligned = "".join("18"[each] for each in given.aligned)
    return f"_gathers_{given.warpgroups}_{aligned}_{given.short_first}_{given.taken}"


def _scales_name(tiles: WarpgroupTiles) -> str:
    given = tiles.scales
    if given is None:
        return ""
    loaded = "mapped" if tiles.maps_column_scales else "pairs" if given.pairs else "elements"
    rows = "_mapped_rows" if tiles.maps_row_scales else ""
    return f"_scales_{given.rows}x{given.columns}_{given.order}_{loaded}{rows}"


def _module(tiles: WarpgroupTiles, name: str, body: str) -> str:
    """Return the whole text: the entry with its parameters, the registers that the body uses, the body."""
    registers = sorted(set(re.findall(r"%([phrd])_(\w+)", body)))
    declared = "\n".join(f".reg .{_TYPES[kind]} %{kind}_{rest};" for kind, rest in registers)
    cluster = f".reqnctapercluster {tiles.blocks}, 1, 1\n" if tiles.blocks > 1 else ""
    listed = ",\n".join(declared_parameters(tiles))
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
    for each in PARAMETERS[:MAPS]:
        if tiles.gathering:
            yield f"ld.param.u64 %d_{each}, [{each}];\ncvta.to.global.u64 %d_{each}, %d_{each};"
        else:
            yield from map_address(each)
    for each in mapped_scales(tiles):
        yield from map_address(each)
    yield from map_address("C") if tiles.stores_through_map else ("ld.param.u64 %d_C, [C];",)
    for each in PARAMETERS[MAPS + 1 : MAPS + 1 + INTEGERS]:
        yield f"ld.param.u32 %r_{each}, [{each}];"
    yield from job_places(tiles)
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
    if has_lasting_zeros(tiles):
        yield from zeros(tiles)
    for each in PARAMETERS[MAPS if tiles.gathering else 0 : MAPS + tiles.stores_through_map]:
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
    yield from place_of_job(tiles)
    yield from early_operands(tiles)
    yield from (promoted_stages if tiles.starts_accumulators else multiplied_stages)(tiles)
    yield from (store_through_map if tiles.stores_through_map else store_to_pointers)(tiles)
    if tiles.ping_pong:
        yield from _skip(tiles)
    yield f"add.u32 %r_job, %r_job, {step};"
    yield "bra CONSUMER_JOB;"
    yield "CONSUMER_END:"
    if tiles.stores_through_map:
        yield "@%p_issues cp.async.bulk.wait_group.read 0;"


def _skip(tiles: WarpgroupTiles) -> Lines:
    """Step over the stages of the job after this one, which the other consumer multiplies."""
    yield "add.u32 %r_inside, %r_job, %r_clusters;"
    yield "div.u32 %r_slice, %r_inside, %r_tiles;"
    yield from stages_of_slice(tiles, "%r_remaining")
    yield "add.u32 %r_stage, %r_stage, %r_remaining;"
    yield f"div.u32 %r_remaining, %r_stage, {tiles.stages};"
    yield f"rem.u32 %r_stage, %r_stage, {tiles.stages};"
    yield "and.b32 %r_remaining, %r_remaining, 1;"
    yield "xor.b32 %r_parity, %r_parity, %r_remaining;"


def _consumer_places(tiles: WarpgroupTiles) -> Lines:
    """Compute what does not change between jobs: descriptors, the barriers to release, the thread's part of a tile."""
    yield from descriptor_places(tiles)
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
    yield from (matrix_store_places if tiles.stores_through_map else pointer_places)(tiles)
    yield from operand_places(tiles)
    yield from scale_places(tiles)


def _cluster_barrier() -> Lines:
    """Wait for all threads of the cluster; publish the accesses to the shared memory of the own block."""
    yield "fence.release.sync_restrict::shared::cta.cluster;"
    yield "barrier.cluster.arrive.relaxed.aligned;"
    yield "barrier.cluster.wait.acquire.aligned;"
