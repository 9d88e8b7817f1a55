"""What readings of compiled kernels assume.

The corpus and the public kernels are compiled by Triton 3.6.0, which leaves out the proxy fences between copies by
threads and the matrix instructions that read them.  What a kernel computes is read as if the copies were visible, on
every architecture, so that the records compare one thing.  `proxy_fences` counts the kernels that lack a fence.
"""

from __future__ import annotations

from bitwise_core.checker.sources import Options
from bitwise_core.execution.assumptions import PROXIES_TOGETHER

ASSUMED = frozenset({PROXIES_TOGETHER})
READ = Options(assume=ASSUMED)
