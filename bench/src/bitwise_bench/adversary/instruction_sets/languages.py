"""The languages of the adversary: PTX for sm_90, and gfx942."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.instruction_sets import gfx942_identities, gfx942_kernel, ptx_identities, ptx_kernel
from bitwise_bench.adversary.instruction_sets.gfx942_vocabulary import GFX942_WORDS
from bitwise_bench.adversary.instruction_sets.language import Language
from bitwise_bench.adversary.instruction_sets.ptx_vocabulary import PTX
from bitwise_bench.adversary.programs import STORES

LANGUAGES: Mapping[str, Language] = MappingProxyType(
    {
        "ptx": Language(
            "ptx", ".ptx", ptx_kernel.THREADS, "sm_90", PTX, ptx_kernel.kernel_text,
            (ptx_identities.identities, ptx_identities.near_misses), tuple(STORES),
        ),
        "gfx942": Language(
            "gfx942", ".amdgcn", gfx942_kernel.THREADS, "gfx942", GFX942_WORDS, gfx942_kernel.kernel_text,
            (gfx942_identities.identities, gfx942_identities.near_misses), tuple(gfx942_kernel.STORE_TEXTS),
        ),
    }
)  # fmt: skip
"""The languages by name."""
