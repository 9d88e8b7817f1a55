"""The architecture sm_90."""

from __future__ import annotations

from bitwise_core.execution.architecture import BitSupport
from bitwise_nvidia_ptx.architecture import nvidia_arch
from bitwise_nvidia_sm90 import approximations, matrix_units, wgmma

SAME_STEPS = dict.fromkeys(wgmma.SAME_STEPS, wgmma.FAMILY)

LOWEST_LANE = (
    "of the values that one store of a warp sends to one address, that of the lowest lane of the last group of lanes "
    "remains, as measured on an H200 and stated in no document (--assume any-lane does without)"
)
"""See SOUNDNESS.md: what was measured, and where the rule is not used."""

WARP_ORDER = (
    "the accesses of one warp to global memory take effect in the order of its machine instructions, which is that of "
    "the text, as measured on an H200 and stated in no document (--assume any-lane does without)"
)
"""See SOUNDNESS.md: what was measured, and where the rule is not used."""

COPIES_VISIBLE = (
    "wgmma and bulk copies to global memory see what threads have copied to shared memory (cp.async), once these have "
    "waited for it and a barrier follows, also with no proxy fence between, as measured on an H200; the PTX ISA asks "
    "for the fence (--assume proxies-apart does without)"
)
"""See SOUNDNESS.md: what was measured (`records/proxy-fences-sm90-h200.json.xz`)."""

SM90 = nvidia_arch(
    "sm_90",
    ("sm_90", "sm_90a"),
    wgmma.TABLE,
    BitSupport(approximations.FUNCTIONS, tuple(matrix_units.ROWS)),
    SAME_STEPS,
    largest_cluster=16,
    lowest_lane=LOWEST_LANE,
    warp_order=WARP_ORDER,
    copies_visible=COPIES_VISIBLE,
)
