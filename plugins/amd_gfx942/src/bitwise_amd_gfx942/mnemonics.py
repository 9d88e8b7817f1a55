"""What mnemonics say of an instruction before it is run."""

from __future__ import annotations

from bitwise_core.machine.mnemonics import Mnemonics

MNEMONICS = Mnemonics(
    branches=frozenset({"s_branch", "s_cbranch_scc0", "s_cbranch_scc1", "s_cbranch_vccz", "s_cbranch_vccnz",
                        "s_cbranch_execz", "s_cbranch_execnz", "s_swappc_b64", "s_setpc_b64"}),
    ends=frozenset({"s_endpgm", "s_trap"}),
    calls=frozenset(),
)  # fmt: skip
