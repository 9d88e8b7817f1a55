"""Two orders of threads in which a launch leaves different bytes: the proof that its result is not determined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bitwise_core.checker.counterexamples.kernel_pair import KernelPair, zero_extended
from bitwise_core.checker.counterexamples.value_distributions import draw
from bitwise_core.execution.buffers import element_types
from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.element_types import Array
from bitwise_core.execution.interleavings import ORDERS, run_in_order

MAXIMUM_LANES = 1 << 15
"""The largest number of threads of a launch that is run in several orders."""

_DRAWS = (("normal", 1), ("normal", 3), ("wide", None), ("special", None))
"""Distributions of floats, and the largest integer (None: any), of the inputs."""


@dataclass(frozen=True, slots=True)
class OrderWitness:
    """Two orders with different bytes in `element`, or None for it and the reason why none was found."""

    element: str | None
    reason: str


def find_order_witness(prepared: PreparedLaunch, seed: int = 0) -> OrderWitness:
    """Run a launch in several orders of its blocks, warps and lanes, on random inputs, until the bytes differ."""
    if prepared.launch.blocks * prepared.threads > MAXIMUM_LANES:
        return OrderWitness(None, f"a launch of more than {MAXIMUM_LANES} threads is not run in several orders")
    forms = element_types([prepared.launch])
    pair = KernelPair((prepared, prepared), forms)
    random = np.random.default_rng(seed)
    failure = "the bytes of all orders that were run agree"
    sizes = dict.fromkeys(forms, 0)
    orders = list(ORDERS)
    updated: frozenset[str] = frozenset()
    for kind, largest in ((None, None), *_DRAWS):
        contents: dict[str, Array] = {}
        for name, form in forms.items():
            count = max(1, -(-sizes[name] // form.bytes))
            # Locks are free at 0; with other contents, threads may wait forever.
            drawn = np.zeros(0, dtype=np.uint8)
            if kind is not None and name not in updated:
                drawn = draw(form, count, kind, random, largest)
            contents[name] = drawn.view(np.uint8)
        first: Mapping[str, Array] | None = None
        for order in list(orders)[: 1 if kind is None else None]:
            try:
                found = run_in_order(prepared, contents, order, open_ended=True)
            except Unsupported as error:
                failure = f"not every order could be run: {error}"
                orders.remove(order)
                continue
            after, updated = found.after, updated | found.updated
            if first is None:
                first = after
            for name, each in after.items():
                sizes[name] = max(sizes[name], each.size)
            element = _difference(pair, first, after)
            if element is not None:
                return OrderWitness(element, f"{element} differs between two orders that were run")
    return OrderWitness(None, failure)


def _difference(pair: KernelPair, first: Mapping[str, Array], second: Mapping[str, Array]) -> str | None:
    """The first element in which two results differ; two NaNs of a buffer's type do not."""
    for name in sorted(first):
        width = pair.forms[name].bytes
        size = -(-max(first[name].size, second[name].size) // width) * width
        left, right = (zero_extended(each[name], size).view(f"uint{8 * width}") for each in (first, second))
        places = np.flatnonzero(pair.differ(name, left, right))
        if places.size:
            return f"{name}[{int(places[0])}]"
    return None
