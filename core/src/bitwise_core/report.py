"""A self-contained page about a partition."""

from __future__ import annotations

from collections.abc import Sequence

from bitwise_core.checker import Options, Source
from bitwise_core.machine.arch import Arch
from bitwise_core.partition import Partition


def page(found: Partition, sources: Sequence[Source], arch: Arch, options: Options, title: str) -> str:
    """The page's HTML."""
    raise NotImplementedError
