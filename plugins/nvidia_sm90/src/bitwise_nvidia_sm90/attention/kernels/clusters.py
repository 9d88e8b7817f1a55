"""States of chunks that the programs of a cluster hand to each other, in the shared memory of each."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from bitwise_nvidia_sm90.attention.kernels.specialised import merged

NOTHING = gl.constexpr(float("-inf"))
LOADED = gl.constexpr(4)
"""The states of chunks that a member loads at once."""
_PADDING = gl.constexpr(8)
"""The words behind those of a row: its maximum, its denominator, and others that spread the rows over the banks."""
BARRIER = gl.constexpr("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; mov.u32 $0, $1;")
ARRIVE = gl.constexpr("barrier.cluster.arrive.release.aligned; mov.u32 $0, $1;")
WAIT = gl.constexpr("barrier.cluster.wait.acquire.aligned; mov.u32 $0, $1;")
STORE = gl.constexpr("{ .reg .pred p; setp.ne.b32 p, $3, 0; @p st.shared.f32 [$1], $2; mov.u32 $0, $3; }")
LOAD = gl.constexpr("ld.shared::cluster.f32 $0, [$1];")
OF_MEMBER = gl.constexpr("mapa.shared::cluster.u32 $0, $1, $2;")


_ALIGNMENT = 1024
"""The bytes to which tiles with the swizzle of a copy are aligned in shared memory.  They lie behind the room."""


@gluon.constexpr_function
def _declared(words):
    size = -(-4 * words // _ALIGNMENT) * _ALIGNMENT
    return f"{{ .shared .align {_ALIGNMENT} .b8 handed[{size}]; mov.u32 $0, handed; }}"


@gluon.jit
def room_of_states(COUNT: gl.constexpr, M: gl.constexpr, S: gl.constexpr, SHARES: gl.constexpr):
    """Return the address in shared memory of room for COUNT states of M rows of SHARES times S components."""
    DECLARED: gl.constexpr = _declared(COUNT * SHARES * M * (S + _PADDING))
    return gl.inline_asm_elementwise(DECLARED, "=r,r", [gl.program_id(0)], gl.int32, False, 1)


@gluon.jit
def in_room(room, slot, M: gl.constexpr, S: gl.constexpr, SHARES: gl.constexpr):
    """Return the address of one of the states of a room."""
    return room + slot * (4 * SHARES * M * (S + _PADDING))


@gluon.jit
def wait_for_cluster():
    """Wait until all threads of the cluster are here, and see what they have written."""
    L: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    gl.inline_asm_elementwise(BARRIER, "=r,r", [gl.arange(0, 32 * gl.num_warps(), L)], gl.int32, False, 1)


@gluon.jit
def arrive_in_cluster():
    """Say to the threads of the cluster what this one has written; `wait_for_arrivals` must follow."""
    L: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    gl.inline_asm_elementwise(ARRIVE, "=r,r", [gl.arange(0, 32 * gl.num_warps(), L)], gl.int32, False, 1)


@gluon.jit
def wait_for_arrivals():
    """Wait until all threads of the cluster have arrived, and see what they have written before."""
    L: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    gl.inline_asm_elementwise(WAIT, "=r,r", [gl.arange(0, 32 * gl.num_warps(), L)], gl.int32, False, 1)


@gluon.jit
def places_in_room(room, share, M: gl.constexpr, S: gl.constexpr, OUT: gl.constexpr):
    """Return the addresses of the components of a share of a state."""
    row = gl.expand_dims(gl.arange(0, M, gl.SliceLayout(1, OUT)), 1)
    lane = gl.expand_dims(gl.arange(0, S, gl.SliceLayout(0, OUT)), 0)
    return room + 4 * (share * M * (S + _PADDING) + row * (S + _PADDING) + lane)


@gluon.jit
def hand_state(room, top, total, outs, M: gl.constexpr, S: gl.constexpr, OUT: gl.constexpr):
    """Write the state of a chunk to the room."""
    ROWS: gl.constexpr = gl.SliceLayout(1, OUT)
    lane = gl.expand_dims(gl.arange(0, S, gl.SliceLayout(0, OUT)), 0)
    for share in gl.static_range(len(outs)):
        place = places_in_room(room, share, M, S, OUT)
        every = (place == place).to(gl.int32)
        gl.inline_asm_elementwise(STORE, "=r,r,f,r", [place, outs[share], every], gl.int32, False, 1)
    place = places_in_room(room, 0, M, S, OUT)
    first = (lane + place * 0 == 0).to(gl.int32)
    top, _ = gl.broadcast(gl.expand_dims(gl.convert_layout(top, ROWS, assert_trivial=True), 1), outs[0])
    total, _ = gl.broadcast(gl.expand_dims(gl.convert_layout(total, ROWS, assert_trivial=True), 1), outs[0])
    gl.inline_asm_elementwise(STORE, "=r,r,f,r", [place + 4 * S, top, first], gl.int32, False, 1)
    gl.inline_asm_elementwise(STORE, "=r,r,f,r", [place + 4 * (S + 1), total, first], gl.int32, False, 1)


@gluon.jit
def state_of_chunk(room, chunk, span, share, M: gl.constexpr, S: gl.constexpr, SHARES: gl.constexpr, OUT: gl.constexpr):
    """Return a share of the state of a chunk, which a member of the cluster with `span` chunks has written."""
    place = in_room(room, chunk % span, M, S, SHARES)
    other = gl.inline_asm_elementwise(OF_MEMBER, "=r,r,r", [place, chunk // span], gl.int32, False, 1)
    row = other + 4 * S + gl.arange(0, M, gl.SliceLayout(1, OUT)) * (4 * (S + _PADDING))
    top = gl.inline_asm_elementwise(LOAD, "=f,r", [row], gl.float32, False, 1)
    total = gl.inline_asm_elementwise(LOAD, "=f,r", [row + 4], gl.float32, False, 1)
    places = places_in_room(other, share, M, S, OUT)
    return top, total, (gl.inline_asm_elementwise(LOAD, "=f,r", [places], gl.float32, False, 1),)


@gluon.jit
def after_round(
    room, real, top, total, outs,
    M: gl.constexpr, S: gl.constexpr, SHARES: gl.constexpr, OUT: gl.constexpr,
):  # fmt: skip
    """Return the state of a row after a round, of which the first `real` members have a chunk each in their rooms."""
    found = ()
    all_top, all_total = top, total
    for share in gl.static_range(SHARES):
        all_top, all_total, all_out = top, total, outs[share]
        for member in range(real):
            part = state_of_chunk(room, member, 1, share, M, S, SHARES, OUT)
            all_top, all_total, all_out = merged(all_top, all_total, all_out, part[0], part[1], part[2][0])
        found += (all_out,)
    return all_top, all_total, found
