# ruff: noqa: E501 - a line of PTX is read as one
"""What a kernel computes from the addresses of buffers: offsets and distances are known, other numbers are not."""

from __future__ import annotations

import pytest

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Argument, Launch
from bitwise_nvidia_sm90.architecture import SM90
from ptx_programs import hashes, text

OWN = "mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2;"
STORE, STORE_LONG = (
    "st.global.b32 [%d3], %r2;",
    "mul.wide.u32 %d5, %r0, 8; add.s64 %d5, %d0, %d5; st.global.b64 [%d5], %d9;",
)
SPLIT = "mov.b64 {_, %r4}, %d4; cvt.u32.u64 %r5, %d4;"
EXCHANGE = "shfl.sync.bfly.b32 %r6, %r4, 1, 31, -1; shfl.sync.bfly.b32 %r7, %r5, 1, 31, -1;"
JOIN = "cvt.u64.u32 %d13, %r7; cvt.u64.u32 %d10, %r6; shl.b64 %d11, %d10, 32; or.b64 %d12, %d13, %d11;"
"""%d12: the address %d4 of another lane, of which words are exchanged."""
OWN_MEMORY = ".shared .align 16 .b8 room[512]; .local .align 8 .b8 mine[16];"
PLACE = "mul.lo.u32 %r6, %r0, 16; mov.u32 %r7, room; add.u32 %r6, %r6, %r7;"
"""%r6: 16 bytes of each thread in shared memory."""
SHORT = (
    "cvt.u16.u32 %h1, %r0; st.shared.v2.b16 [%r6], {%h1, %h1}; st.shared.b16 [%r6+4], %h1; st.shared.b16 [%r6+6], %h1;"
)
OF_ONE = "ld.global.b32 %r3, [%d1]; setp.eq.u32 %p1, %r3, 77;"
KNOWN = {
    "an offset": (f"{OWN} sub.s64 %d9, %d3, %d0; {STORE_LONG}", f"{OWN} mov.b64 %d9, %d2; {STORE_LONG}"),
    "an order in one buffer": (
        f"{OWN} setp.lt.u64 %p1, %d0, %d3; selp.b32 %r2, 1, 0, %p1; {STORE}",
        f"{OWN} setp.ne.u32 %p1, %r0, 0; selp.b32 %r2, 1, 0, %p1; {STORE}",
    ),
    "a buffer that is there": (
        f"{OWN} setp.ne.s64 %p1, %d1, 0; selp.b32 %r2, 1, 0, %p1; {STORE}",
        f"{OWN} mov.b32 %r2, 1; {STORE}",
    ),
    "low bits": (f"{OWN} and.b64 %d9, %d3, 15; {STORE_LONG}", f"{OWN} and.b64 %d9, %d2, 15; {STORE_LONG}"),
    "low bits of a word": (
        f"{OWN} cvt.u32.u64 %r2, %d3; and.b32 %r2, %r2, 12; {STORE}",
        f"{OWN} cvt.u32.u64 %r2, %d2; and.b32 %r2, %r2, 12; {STORE}",
    ),
    "an address of several halves": (
        f"{OWN} mov.b64 {{%r4, %r5}}, %d4; mov.b64 %d9, {{%r4, %r5}}; ld.global.b32 %r2, [%d9]; {STORE}",
        f"{OWN} ld.global.b32 %r2, [%d4]; {STORE}",
    ),
    "an address in two words of shared memory": (
        f"{OWN} {PLACE} shr.u64 %d12, %d4, 32;"
        " st.shared.b32 [%r6+8], %d12; st.shared.b32 [%r6+4], %d4; ld.shared.b32 %d10, [%r6+8];"
        f" ld.shared.b32 %d11, [%r6+4]; shl.b64 %d10, %d10, 32; or.b64 %d9, %d10, %d11; ld.global.b32 %r2, [%d9]; {STORE}",
        f"{OWN} ld.global.b32 %r2, [%d4]; {STORE}",
    ),
    "a word that a copy replaces": (
        f"{OWN} {PLACE} st.shared.b64 [%r6], %d0; bar.sync 0; cp.async.ca.shared.global [%r6], [%d1], 16; cp.async.wait_all; ld.shared.b32 %r2, [%r6+4]; {STORE}",
        f"{OWN} ld.global.b32 %r2, [%d1+4]; {STORE}",
    ),
    "a register with a number first": (
        f"{OWN} mul.wide.u32 %d9, %r0, 4; add.s64 %d9, %d1, %d9; ld.global.b32 %r2, [%d9]; {STORE}",
        f"{OWN} ld.global.b32 %r2, [%d4]; {STORE}",
    ),
    "one of two buffers": (
        f"{OWN} setp.lt.u32 %p1, %r0, 8; selp.b64 %d9, %d4, %d3, %p1; ld.global.b32 %r2, [%d9]; {STORE}",
        f"{OWN} setp.lt.u32 %p1, %r0, 8; mov.b64 %d9, %d3; @%p1 mov.b64 %d9, %d4; ld.global.b32 %r2, [%d9]; {STORE}",
    ),
    "an address in shared memory": (
        f"{OWN} {PLACE} st.shared.v2.b64 [%r6], {{%d0, %d4}}; ld.shared.b64 %d9, [%r6+8]; ld.global.b32 %r2, [%d9]; {STORE}",
        f"{OWN} ld.global.b32 %r2, [%d4]; {STORE}",
    ),
    "a distance in one buffer, of an address in local memory": (
        f"{OWN} st.local.b64 [mine], %d3; ld.local.b64 %d9, [mine]; sub.s64 %d9, %d9, %d0; {STORE_LONG}",
        f"{OWN} mov.b64 %d9, %d2; {STORE_LONG}",
    ),
    "low bits of an address in shared memory": (
        f"{OWN} {PLACE} st.shared.b64 [%r6], %d3; ld.shared.b64 %d9, [%r6]; and.b64 %d9, %d9, 15; {STORE_LONG}",
        f"{OWN} and.b64 %d9, %d2, 15; {STORE_LONG}",
    ),
    "words of an address in shared memory, and a number beside it": (
        f"{OWN} {PLACE} st.shared.b64 [%r6], %d4; st.shared.b32 [%r6+8], %r0; ld.shared.v2.b32 {{%r4, %r5}}, [%r6]; mov.b64 %d9, {{%r4, %r5}};"
        f" ld.shared.b32 %r3, [%r6+8]; ld.global.b32 %r2, [%d9]; add.u32 %r2, %r2, %r3; {STORE}",
        f"{OWN} ld.global.b32 %r2, [%d4]; add.u32 %r2, %r2, %r0; {STORE}",
    ),
    "a number in the place of an address": (
        f"{OWN} {PLACE} st.shared.b64 [%r6], %d0; cvt.u64.u32 %d8, %r0; st.shared.b64 [%r6], %d8; ld.shared.b64 %d9, [%r6]; mul.lo.s64 %d9, %d9, 3; {STORE_LONG}",
        f"{OWN} cvt.u64.u32 %d9, %r0; mul.lo.s64 %d9, %d9, 3; {STORE_LONG}",
    ),
    "short numbers in the place of an address": (
        f"{OWN} {PLACE} st.shared.b64 [%r6], %d0; {SHORT} ld.shared.b32 %r2, [%r6]; ld.shared.b32 %r3, [%r6+4]; add.u32 %r2, %r2, %r3; {STORE}",
        f"{OWN} {PLACE} {SHORT} ld.shared.b32 %r2, [%r6]; ld.shared.b32 %r3, [%r6+4]; add.u32 %r2, %r2, %r3; {STORE}",
    ),
    "numbers of some lanes in the places of their addresses": (
        f"{OWN} {PLACE} setp.lt.u32 %p1, %r0, 8; mov.b32 %r2, 5; @%p1 st.shared.b64 [%r6], %d0; @%p1 st.shared.v2.b32 [%r6], {{%r0, %r0}}; @%p1 ld.shared.b32 %r2, [%r6]; {STORE}",
        f"{OWN} setp.lt.u32 %p1, %r0, 8; selp.b32 %r2, %r0, 5, %p1; {STORE}",
    ),
    "an address that is stored only where it is loaded again, as data says": (
        f"{OWN} {PLACE} {OF_ONE} @%p1 bra ELSE; st.shared.b64 [%r6], %d4; bar.sync 0; ld.shared.b64 %d9, [%r6]; ld.global.b32 %r2, [%d9]; bra END; ELSE: mov.b32 %r2, 5; END: {STORE}",
        f"{OWN} {OF_ONE} ld.global.b32 %r2, [%d4]; selp.b32 %r2, 5, %r2, %p1; {STORE}",
    ),
    "halves that lanes exchange": (
        f"{OWN} mov.b64 {{%r4, %r5}}, %d4; shfl.sync.idx.b32 %r4, %r4, 0, 31, -1; shfl.sync.idx.b32 %r5, %r5, 0, 31, -1; mov.b64 %d9, {{%r4, %r5}};"
        f" add.s64 %d9, %d9, %d2; ld.global.b32 %r2, [%d9]; {STORE}",
        f"{OWN} ld.global.b32 %r2, [%d4]; {STORE}",
    ),
    "words that lanes exchange and join": (
        f"{OWN} {SPLIT} {EXCHANGE} {JOIN} ld.global.b32 %r2, [%d12]; {STORE}",
        f"{OWN} ld.global.b32 %r2, [%d4]; shfl.sync.bfly.b32 %r2, %r2, 1, 31, -1; {STORE}",
    ),
    "low bits of an address that lanes exchange in words": (
        f"{OWN} {SPLIT} {EXCHANGE} {JOIN} and.b64 %d9, %d12, 12; {STORE_LONG}",
        f"{OWN} xor.b32 %r3, %r0, 1; mul.wide.u32 %d9, %r3, 4; and.b64 %d9, %d9, 12; {STORE_LONG}",
    ),
    "a place of data that lanes exchange in words": (
        f"{OWN} ld.global.b32 %r3, [%d4]; mad.wide.s32 %d4, %r3, 4, %d1; mov.b64 %d8, %d4; {SPLIT.replace('%d4', '%d8')} {EXCHANGE} {JOIN}"
        f" ld.global.b32 %r2, [%d12]; {STORE}",
        f"{OWN} ld.global.b32 %r3, [%d4]; shfl.sync.bfly.b32 %r3, %r3, 1, 31, -1; mad.wide.s32 %d9, %r3, 4, %d1; ld.global.b32 %r2, [%d9]; {STORE}",
    ),
    "a matrix in the place of an address": (
        f"{OWN} {PLACE} st.shared.b64 [%r6], %d0; ld.shared.b64 %d9, [%r6]; ld.global.b32 %r3, [%d4]; st.shared.v4.b32 [%r6], {{%r3, %r3, %r3, %r3}};"
        f" bar.sync 0; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r2}}, [%r6]; {STORE}",
        f"{OWN} {PLACE} ld.global.b32 %r3, [%d4]; st.shared.v4.b32 [%r6], {{%r3, %r3, %r3, %r3}}; bar.sync 0; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r2}}, [%r6]; {STORE}",
    ),
    "a number that nothing uses": (
        f"{OWN} xor.b64 %d9, %d0, %d1; mov.b32 %r2, 7; {STORE}",
        f"{OWN} mov.b32 %r2, 7; {STORE}",
    ),
}  # fmt: skip
OF_DATA = "ld.global.b32 %r3, [%d4]; setp.eq.u32 %p1, %r3, 77;"
OPEN = {
    "a distance of buffers": f"sub.s64 %d9, %d1, %d0; {STORE_LONG}",
    "a sum of addresses": f"add.s64 %d9, %d1, %d0; {STORE_LONG}",
    "an order of buffers": f"{OWN} setp.lt.u64 %p1, %d0, %d1; selp.b32 %r2, 1, 0, %p1; {STORE}",
    "a branch on an order": f"{OWN} mov.b32 %r2, 1; setp.lt.u64 %p1, %d0, %d1; @%p1 bra END; mov.b32 %r2, 2;"
    f" END: {STORE}",
    "high bits": f"shr.u64 %d9, %d0, 40; {STORE_LONG}",
    "an upper word": f"shr.u64 %d9, %d0, 32; {STORE_LONG}",
    "an upper word that is also stored": f"{OWN} {PLACE} shr.u64 %d9, %d0, 32; st.shared.b32 [%r6], %d9; {STORE_LONG}",
    "bits above 33": f"{OWN} {PLACE} shr.u64 %d12, %d0, 33; st.shared.b32 [%r6], %d12; ld.shared.b32 %r2, [%r6]; {STORE}",
    "many low bits": f"and.b64 %d9, %d0, 4095; {STORE_LONG}",
    "a word": f"{OWN} cvt.u32.u64 %r2, %d0; {STORE}",
    "a remainder": f"rem.u64 %d9, %d0, 3; {STORE_LONG}",
    "a multiple": f"mul.lo.s64 %d9, %d0, 2; {STORE_LONG}",
    "a negative address": f"neg.s64 %d9, %d0; {STORE_LONG}",
    "an address": f"mov.b64 %d9, %d0; {STORE_LONG}",
    "an address out of shared memory": f"{PLACE} st.shared.b64 [%r6], %d0; ld.shared.b64 %d9, [%r6]; {STORE_LONG}",
    "bits of an address out of shared memory": f"{PLACE} st.shared.b64 [%r6], %d0; ld.shared.b64 %d9, [%r6]; shr.u64 %d9, %d9, 40; {STORE_LONG}",
    "a distance of addresses out of shared memory": f"{PLACE} st.shared.v2.b64 [%r6], {{%d0, %d1}}; ld.shared.v2.b64 {{%d9, %d10}}, [%r6]; sub.s64 %d9, %d10, %d9; {STORE_LONG}",
    "an address out of shared memory as a float": f"{PLACE} st.shared.b64 [%r6], %d0; ld.shared.f64 %g1, [%r6]; mov.b64 %d9, %g1; {STORE_LONG}",
    "an address out of local memory": f"st.local.b64 [mine], %d0; ld.local.b64 %d9, [mine]; {STORE_LONG}",
    "an order of an address out of local memory": f"{OWN} st.local.b64 [mine], %d0; ld.local.b64 %d9, [mine]; setp.gt.u64 %p1, %d9, %d1; selp.b32 %r2, 1, 0, %p1; {STORE}",
    "half of an address out of shared memory": f"{OWN} {PLACE} st.shared.b64 [%r6], %d0; ld.shared.b32 %r2, [%r6+4]; {STORE}",
    "a quarter of an address out of shared memory": f"{OWN} {PLACE} st.shared.b64 [%r6], %d0; ld.shared.u16 %r2, [%r6+4]; {STORE}",
    "a word that was stored out of shared memory": f"{OWN} {PLACE} cvt.u32.u64 %r3, %d4; st.shared.b32 [%r6+8], %r3; ld.shared.b32 %r2, [%r6+8]; {STORE}",
    "an upper word that was stored out of shared memory": f"{OWN} {PLACE} shr.u64 %d12, %d4, 32; st.shared.b32 [%r6+8], %d12; ld.shared.b32 %r2, [%r6+8]; {STORE}",
    "a word of an address that joins no other": f"{PLACE} st.shared.b64 [%r6], %d0; ld.shared.b32 %r4, [%r6+4]; mov.b32 %r5, 0; mov.b64 %d9, {{%r4, %r5}}; {STORE_LONG}",
    "half of an address beside a short number": f"{OWN} {PLACE} st.shared.b64 [%r6], %d0; cvt.u16.u32 %h1, %r0; st.shared.b16 [%r6], %h1; ld.shared.b32 %r2, [%r6]; {STORE}",
    "a word that the numbers of other lanes replace": f"{OWN} {PLACE} setp.lt.u32 %p1, %r0, 8; st.shared.b64 [%r6], %d0; @%p1 st.shared.v2.b32 [%r6], {{%r0, %r0}}; ld.shared.b32 %r2, [%r6]; {STORE}",
    "a word that a number replaces, as data of each lane says": f"{OWN} {PLACE} st.shared.b64 [%r6], %d0; {OF_DATA} @%p1 st.shared.v2.b32 [%r6], {{%r0, %r0}}; ld.shared.b32 %r2, [%r6]; {STORE}",
    "a word that a number replaces, as data of the block says": f"{OWN} {PLACE} st.shared.b64 [%r6], %d0; {OF_ONE} @%p1 bra END; bar.sync 0; st.shared.v2.b32 [%r6], {{%r0, %r0}}; END: ld.shared.b32 %r2, [%r6]; {STORE}",
    "a word that is stored, as data of the block says": f"{OWN} {PLACE} st.shared.v2.b32 [%r6], {{%r0, %r0}}; {OF_ONE} @%p1 bra END; bar.sync 0; st.shared.b64 [%r6], %d0; END: ld.shared.b32 %r2, [%r6]; {STORE}",
    "a word that is stored on both ways, as data of the block says": f"{OWN} {PLACE} {OF_ONE} @%p1 bra ELSE; bar.sync 0; st.shared.b64 [%r6], %d0; bra END; ELSE: bar.sync 0; st.shared.b64 [%r6], %d1; END: ld.shared.b32 %r2, [%r6]; {STORE}",
    "a word that a copy leaves": f"{OWN} {PLACE} st.shared.b64 [%r6], %d0; bar.sync 0; cp.async.ca.shared.global [%r6], [%d1], 4; cp.async.wait_all; ld.shared.b32 %r2, [%r6+4]; {STORE}",
    "a word that a copy of other lanes replaces": f"{OWN} {PLACE} setp.lt.u32 %p1, %r0, 8; st.shared.b64 [%r6], %d0; bar.sync 0; @%p1 cp.async.ca.shared.global [%r6], [%d1], 16; cp.async.wait_all; ld.shared.b32 %r2, [%r6]; {STORE}",
    "a word of a word": f"{OWN} {PLACE} st.shared.b64 [%r6], %d0; ld.shared.b64 %d9, [%r6]; cvt.u32.u64 %r2, %d9; {STORE}",
    "a word that is widened": f"mov.b64 {{%r4, %r2}}, %d1; cvt.u64.u32 %d9, %r2; {STORE_LONG}",
    "half of a parameter": f"{OWN} ld.param.u32 %r2, [in+4]; {STORE}",
    "halves of a parameter": f"{OWN} ld.param.v2.u32 {{%r2, %r3}}, [in]; {STORE}",
    "half of an address of another lane": f"{OWN} mov.b64 {{%r2, %r3}}, %d0; shfl.sync.bfly.b32 %r2, %r3, 1, 31, -1; {STORE}",
    "half of an address, or a number": f"{OWN} mov.b64 {{%r4, %r3}}, %d0; setp.lt.u32 %p1, %r0, 8; selp.b32 %r2, %r3, 7, %p1; {STORE}",
    "an address that lanes exchange in words": f"{OWN} {SPLIT} {EXCHANGE} {JOIN} mov.b64 %d9, %d12; {STORE_LONG}",
    "high bits of an address that lanes exchange in words": f"{OWN} {SPLIT} {EXCHANGE} {JOIN} shr.u64 %d9, %d12, 40; {STORE_LONG}",
    "words of two lanes": f"{OWN} {SPLIT} {EXCHANGE.replace('%r5, 1', '%r5, 2')} {JOIN} and.b64 %d9, %d12, 12; {STORE_LONG}",
    "words of two addresses": f"{OWN} {SPLIT.replace('%r5, %d4', '%r5, %d3')} {EXCHANGE} {JOIN} and.b64 %d9, %d12, 12; {STORE_LONG}",
    "words in the other order": f"{OWN} {SPLIT} {EXCHANGE} {JOIN.replace('%r7', '%r8').replace('%r6', '%r7').replace('%r8', '%r6')} and.b64 %d9, %d12, 12; {STORE_LONG}",
    "words that are joined elsewhere": f"{OWN} {SPLIT} {EXCHANGE} {JOIN.replace(', 32;', ', 31;')} and.b64 %d9, %d12, 12; {STORE_LONG}",
    "a widened word beside its address": f"{OWN} {SPLIT} {EXCHANGE} {JOIN} mov.b64 %d9, %d10; {STORE_LONG}",
    "a moved word beside its address": f"{OWN} {SPLIT} {EXCHANGE} {JOIN} mov.b64 %d9, %d11; {STORE_LONG}",
    "words under a guard": f"{OWN} setp.lt.u32 %p1, %r0, 8; {SPLIT} {EXCHANGE} {JOIN.replace('cvt.u64.u32 %d10', '@%p1 cvt.u64.u32 %d10')} and.b64 %d9, %d12, 12; {STORE_LONG}",
    "words of an address that changes between": f"{OWN} {SPLIT.replace('cvt', 'add.s64 %d4, %d4, 4; cvt')} {EXCHANGE} {JOIN} and.b64 %d9, %d12, 12; {STORE_LONG}",
    "a word of an address in a matrix": f"{OWN} {PLACE} st.shared.v2.b64 [%r6], {{%d0, %d1}}; bar.sync 0; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r2}}, [%r6]; {STORE}",
    "an address that a bulk copy stores": f"{PLACE} st.shared.v2.b64 [%r6], {{%d0, %d1}}; fence.proxy.async; bar.sync 0; setp.eq.u32 %p1, %r0, 0; @!%p1 bra END;"
    " cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r6], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; END:",
    "a size of an asynchronous copy": f"{OWN} {PLACE} mov.b64 {{%r4, %r5}}, %d0; sub.u32 %r5, %r5, 240; cp.async.ca.shared.global [%r6], [%d1], 16, %r5; cp.async.wait_all; ld.shared.b32 %r2, [%r6]; {STORE}",
    "high bits of an address or a number, as data says": f"{OWN} {OF_DATA} selp.b64 %d9, %d1, 5, %p1; shr.u64 %d9, %d9, 40; {STORE_LONG}",
    "high bits of one of two addresses, as data says": f"{OWN} {OF_DATA} selp.b64 %d9, %d1, %d0, %p1; shr.u64 %d9, %d9, 40; {STORE_LONG}",
    "high bits of an address that data replaces": f"{OWN} {OF_DATA} mov.b64 %d9, %d1; @%p1 mov.b64 %d9, 5; shr.u64 %d9, %d9, 40; {STORE_LONG}",
    "high bits of a place of data, or a number": f"{OWN} {OF_DATA} mad.wide.s32 %d9, %r3, 4, %d1; setp.eq.u32 %p2, %r0, 3; @%p2 mov.b64 %d9, 5; shr.u64 %d9, %d9, 40; {STORE_LONG}",
    "an address that is counted": "red.global.max.u64 [%d0], %d1;",
    "an address at a place of data": f"{OWN} ld.global.b32 %r2, [%d4]; mul.wide.u32 %d9, %r2, 4;"
    f" add.s64 %d10, %d0, %d9; shr.u64 %d11, %d10, 3; mov.b64 %d9, %d11; {STORE_LONG}",
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_what_no_place_of_a_buffer_decides_is_known(name: str) -> None:
    first, second = KNOWN[name]
    assert hashes(first, shared=OWN_MEMORY) == hashes(second, shared=OWN_MEMORY)


@pytest.mark.parametrize("name", OPEN)
def test_what_the_place_of_a_buffer_decides_is_not_determined(name: str) -> None:
    with pytest.raises(
        Unsupported, match=r"the address of a buffer, which the launch does not give|not determined|depends on data"
    ):
        hashes(OPEN[name], shared=OWN_MEMORY)


ARRAYS = ".shared .align 16 .b8 unused[64]; .shared .align 16 .b8 room[256]; .local .align 8 .b8 mine[16];"
OPEN_ARRAYS = {
    "an address in shared memory": f"{OWN} mov.u32 %r2, room; {STORE}",
    "an address in local memory": f"{OWN} mov.u32 %r2, mine; {STORE}",
    "a generic address": f"{OWN} mov.u64 %d9, room; cvta.shared.u64 %d9, %d9; {STORE_LONG}",
    "a distance of arrays": f"{OWN} mov.u32 %r2, room; mov.u32 %r3, unused; sub.u32 %r2, %r2, %r3; {STORE}",
    "an order of arrays": f"{OWN} mov.u32 %r4, room; mov.u32 %r3, unused; setp.lt.u32 %p1, %r3, %r4; selp.b32 %r2, 1, 0, %p1; {STORE}",
    "a number under a condition on an address": f"{OWN} mov.u32 %r4, room; setp.eq.u32 %p1, %r4, 1088; mov.b32 %r2, 1; @%p1 mov.b32 %r2, 2; {STORE}",
    "bits of an address": f"{OWN} mov.u32 %r2, room; shr.u32 %r2, %r2, 7; and.b32 %r2, %r2, 7; {STORE}",
    "an address as a float": f"{OWN} mov.u32 %r2, room; cvt.rn.f32.u32 %r2, %r2; {STORE}",
    "an address that local memory keeps": f"{OWN} mov.u32 %r4, room; st.local.b32 [mine], %r4; ld.local.b32 %r2, [mine]; {STORE}",
    "an address that shared memory keeps": f"{OWN} mov.u32 %r4, room; add.u32 %r5, %r4, 4; mul.lo.u32 %r6, %r0, 4; add.u32 %r6, %r6, %r4;"
    f" st.shared.b32 [%r6], %r5; ld.shared.b32 %r2, [%r6]; {STORE}",
    "a contribution": "mov.u32 %r4, room; red.global.max.u32 [%d0], %r4;",
    "a register that some lanes write after it": f"{OWN} mov.u32 %r4, room; setp.eq.u32 %p1, %r0, 3; @%p1 mov.u32 %r4, 5; mov.u32 %r2, %r4; {STORE}",
    "a register of another block of instructions": f"{OWN} mov.u32 %r4, 5; mov.u32 %r6, 0; L: mov.u32 %r2, %r4; mov.u32 %r4, room;"
    f" add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 2; @%p1 bra L; {STORE}",
}  # fmt: skip
OF_ARRAYS = {
    "an access": f"{OWN} mov.u32 %r4, room; mul.lo.u32 %r6, %r0, 4; add.u32 %r6, %r6, %r4; ld.global.b32 %r2, [%d4]; st.shared.b32 [%r6], %r2; ld.shared.b32 %r2, [%r6]; {STORE}",
    "an address that local memory keeps": f"{OWN} mov.u32 %r4, room; mul.lo.u32 %r6, %r0, 4; add.u32 %r6, %r6, %r4; st.local.b32 [mine], %r6; ld.local.b32 %r7, [mine];"
    f" ld.global.b32 %r2, [%d4]; st.shared.b32 [%r7], %r2; ld.shared.b32 %r2, [%r7]; {STORE}",
    "a register that held an address before": f"{OWN} mov.u32 %r4, room; st.shared.b32 [%r4], %r0; ld.global.b32 %r4, [%d4]; mov.u32 %r2, %r4; {STORE}",
}  # fmt: skip


def test_a_word_that_a_copy_may_replace_is_in_a_race() -> None:
    body = f"{OWN} {PLACE} st.shared.b64 [%r6], %d0; bar.sync 0; cp.async.ca.shared.global [%r6], [%d1], 16; ld.shared.b32 %r2, [%r6+4]; cp.async.wait_all; {STORE}"
    with pytest.raises(Unsupported, match="a race"):
        hashes(body, shared=OWN_MEMORY)


@pytest.mark.parametrize("name", OPEN_ARRAYS)
def test_where_the_assembler_places_an_array_is_known_for_one_text(name: str) -> None:
    """ptxas leaves out the array that nothing uses: on sm_90 `room` then begins at 1,024, and on sm_80 at 0."""
    body = OPEN_ARRAYS[name]
    assert hashes(body, shared=ARRAYS) == hashes(body, shared=ARRAYS)
    assert hashes(body, shared=ARRAYS) != hashes(body, shared=ARRAYS.replace("64", "128"))
    assert hashes(body, shared=ARRAYS) != hashes(f"mov.u32 %r9, 0; {body}", shared=ARRAYS)


def test_an_address_of_an_array_chooses_no_known_element_of_a_buffer() -> None:
    body = f"{OWN} mov.u32 %r4, room; shr.u32 %r4, %r4, 6; mul.wide.u32 %d9, %r4, 4; add.s64 %d9, %d4, %d9;"
    load = f"{body} ld.global.b32 %r2, [%d9]; {STORE}"
    assert hashes(load, shared=ARRAYS) == hashes(load, shared=ARRAYS)
    assert hashes(load, shared=ARRAYS) != hashes(f"mov.u32 %r9, 0; {load}", shared=ARRAYS)
    with pytest.raises(Unsupported):
        hashes(f"{body} st.global.b32 [%d9], %r0;", shared=ARRAYS)


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_an_address_of_an_array_may_select_what_is_accessed(name: str) -> None:
    assert hashes(OF_ARRAYS[name], shared=ARRAYS) == hashes(f"{OWN} ld.global.b32 %r2, [%d4]; {STORE}")


@pytest.mark.parametrize("grid", [1, 60_000, None], ids=["one block", "a large grid", "every launch"])
def test_kernels_that_store_an_address_are_equal_to_their_own_text(grid: int | None) -> None:
    """1,024 is the number that the analysis takes."""
    arrays = ARRAYS.replace(".shared .align 16 .b8 unused[64];", "")
    bodies = f"{OWN} mov.u32 %r2, room; {STORE}", f"{OWN} mov.u32 %r9, room; mov.u32 %r2, 1024; {STORE}"
    first, second = (
        text(each, shared=arrays).replace(".param .u64 ", ".param .u64 .ptr .global .align 16 ") for each in bodies
    )
    arguments = tuple(Argument(kind="buffer", buffer=each, dtype="u32") for each in ("out", "in"))
    launch = (
        None if grid is None else Launch(file="k.ptx", entry="k", grid=(grid, 1, 1), block=(32, 1, 1), args=arguments)
    )
    options = Options(every_launch=grid is None, audit_contraction=False)

    def outcome(left: str, right: str) -> Outcome:
        return compare(Source("l", left, launch), Source("r", right, launch), SM90, options).verdict.outcome

    assert outcome(first, second) in (Outcome.UNPROVED, Outcome.UNKNOWN)
    if grid == 1 or grid is None:
        assert outcome(first, first) is Outcome.EQUAL


def test_a_function_that_is_given_an_address_stores_a_number_of_its_text() -> None:
    function = ".func keep(.param .u64 .ptr p, .param .u32 v) { .reg .b64 %d<3>; .reg .b32 %r<3>; ld.param.u64 %d1, [p]; ld.param.u32 %r1, [v]; st.global.b32 [%d1], %r1; ret; }"
    call = (
        "{ .param .u64 p0; .param .u32 p1; st.param.u64 [p0], %d3; st.param.u32 [p1], %r2; call.uni keep, (p0, p1); }"
    )
    stored, number = (
        hashes(f"{OWN} mov.u32 %r9, room; mov.u32 %r2, {each}; {call}", shared=ARRAYS, before=function)
        for each in ("room", "1088")
    )
    assert stored != number


MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
OTHERS = f"mov.u32 %r9, %ctaid.x; mad.lo.u32 %r9, %r9, 32, %r0; mul.wide.u32 %d2, %r9, 4; add.s64 %d3, %d0, %d2; {PLACE} mov.u32 %r8, %cluster_ctarank; xor.b32 %r8, %r8, 1; mapa.shared::cluster.u32 %r7, %r6, %r8;"
"""%r6: 16 bytes of each thread, and %r7 those in the memory of the other block."""


@pytest.mark.parametrize(
    ("body", "known"),
    [
        (f"{MEET} st.shared::cluster.b64 [%r7], %d1; {MEET} ld.shared.b64 %d9, [%r6]; ld.global.b32 %r2, [%d9];", True),
        (f"{MEET} st.shared::cluster.b64 [%r7], %d1; {MEET} ld.shared.b32 %r2, [%r6+4];", False),
        (f"st.shared.b64 [%r6], %d1; {MEET} ld.shared::cluster.b32 %r2, [%r7+4]; {MEET}", False),
        (f"st.shared.b64 [%r6], %d1; {MEET} ld.shared::cluster.b64 %d9, [%r7]; {MEET} ld.global.b32 %r2, [%d9];", True),
    ],
)  # fmt: skip
def test_an_address_in_the_memory_of_another_block_is_no_number(body: str, known: bool) -> None:
    made = text(f"{OTHERS} {body} {STORE}", shared=OWN_MEMORY)
    made = made.replace(".reqntid 32", ".reqntid 32 .explicitcluster .reqnctapercluster 2")
    arguments = tuple(Argument(kind="buffer", buffer=each, dtype="u32") for each in ("out", "in"))
    launch = Launch(file="k.ptx", entry="k", grid=(2, 1, 1), block=(32, 1, 1), args=arguments)
    found = analyse(Source("k", made, launch), SM90, {"out": 1, "in": 2}, Options(audit_contraction=False)).unknown
    assert found is None if known else "is read as a number" in (found or "")


LAUNCHES = ".param .u64 .ptr .global .align 16 "
NUMBERS = {
    "an address": "mov.b64 %d9, %d1;",
    "high bits": "shr.u64 %d9, %d1, 40;",
    "a distance of buffers": "sub.s64 %d9, %d1, %d0;",
    "an address out of shared memory": f"{PLACE} st.shared.b64 [%r6], %d1; ld.shared.b64 %d9, [%r6];",
    "half of an address out of shared memory": f"{PLACE} st.shared.b64 [%r6], %d1; ld.shared.u32 %d9, [%r6+4];",
    "an address out of local memory": "st.local.b64 [mine], %d1; ld.local.b64 %d9, [mine];",
    "half of a parameter": "ld.param.u32 %r2, [in+4]; cvt.u64.u32 %d9, %r2;",
    "a word": "mov.b64 {%r4, %r2}, %d1; cvt.u64.u32 %d9, %r2;",
    "an order of buffers": "setp.lt.u64 %p1, %d0, %d1; selp.b64 %d9, 1, 2, %p1;",
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_no_launch_says_where_its_buffers_are(name: str) -> None:
    """For every launch, too, an address is no number."""

    def outcome(body: str) -> Outcome:
        made = text(f"mov.b64 %d9, 0; {body} {STORE_LONG}", shared=OWN_MEMORY).replace(".param .u64 ", LAUNCHES)
        options = Options(every_launch=True, audit_contraction=False)
        return compare(Source("l", made), Source("r", made), SM90, options).verdict.outcome

    assert outcome(NUMBERS[name]) is Outcome.UNKNOWN
    assert outcome(f"{NUMBERS[name]} mul.wide.u32 %d9, %r0, 3;") is Outcome.EQUAL
    assert outcome("add.s64 %d9, %d1, %d2; sub.s64 %d9, %d9, %d1;".replace("%d2", "8")) is Outcome.EQUAL
