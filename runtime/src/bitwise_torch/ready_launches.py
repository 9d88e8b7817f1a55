"""Operators that ran, ready to run again: one look-up leads from the operands of a call to the launch of its kernels.

The operands are those of a kernel of PyTorch: none is negated lazily, and none is recorded for gradients.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitwise_core.plugins import registry
from bitwise_torch.dispatch_cache import gpu_memory_of, output_allocator
from bitwise_torch.product_arguments import address_range

if TYPE_CHECKING:
    import torch

CAPACITY = 4096
"""The number of calls that are kept; a full table is emptied."""


class Count:
    """How often something ran; `memory` holds the number."""

    __slots__ = ("memory",)

    def __init__(self) -> None:
        self.memory = array("q", [0])

    @property
    def calls(self) -> int:
        """The number."""
        return self.memory[0]


@dataclass(frozen=True, slots=True)
class _Ready:
    """The launch of a call, and the allocator and the alignment of its result, see `dispatch_cache.CachedCall`.

    `launch` is a function of the addresses of the operands and of the result.
    """

    launch: Callable[..., None]
    allocate: Callable[[Any], Any]
    alignment: int
    count: Count | None


@dataclass(frozen=True, slots=True)
class _ReadyResults:
    """The launch of a call with several results, and the allocator and the alignment of each, None for one of None."""

    launch: Callable[..., None]
    results: tuple[tuple[Callable[[Any], Any], int] | None, ...]


class ReadyLaunches:
    """The launches of calls, by all that decides them: types, shapes, strides, devices and alignments of operands.

    `module` is that of `calls_in_c` where calls are also kept in C.
    """

    def __init__(self, module: Any = None) -> None:
        self._calls: dict[Hashable, _Ready] = {}
        self._several: dict[Hashable, _ReadyResults] = {}
        self._counting = threading.Lock()
        self._registry: registry.Registry | None = None
        self._module = module
        self.calls_in_c: Any = None if module is None else module.Table()
        """The table of the calls in C, which serves them before `run` and `run_several`."""

    def run(
        self, name: str, operands: Sequence[torch.Tensor], rest: tuple[Any, ...] = ()
    ) -> tuple[torch.Tensor | None, Hashable]:
        """Run a call where it is kept, and return its result and its key; None where it is not kept.

        `rest` are the other arguments.  The key is None for tensors without memory, for operands that are no tensors,
        and for arguments without a hash.
        """
        try:
            key, addresses = _key(name, operands, rest)
            ready = self._calls.get(key)
        except (AttributeError, RuntimeError, TypeError):
            return None, None
        if ready is None or self._registry is not registry.default():
            return None, key
        out = ready.allocate(operands[0])
        at_out = out.data_ptr()
        if at_out & -at_out & 255 != ready.alignment:
            return None, key
        ready.launch(*addresses, at_out)
        if ready.count is not None:
            self.add(ready.count)
        return out, key

    def run_several(
        self, name: str, operands: Sequence[torch.Tensor], rest: tuple[Any, ...] = ()
    ) -> tuple[list[torch.Tensor | None] | None, Hashable]:
        """Run a call with several results where it is kept; see `run`."""
        try:
            key, addresses = _key(name, operands, rest)
            ready = self._several.get(key)
        except (AttributeError, RuntimeError, TypeError):
            return None, None
        if ready is None or self._registry is not registry.default():
            return None, key
        found: list[torch.Tensor | None] = []
        for each in ready.results:
            if each is None:
                found.append(None)
                continue
            allocate, alignment = each
            out = allocate(operands[0])
            at = out.data_ptr()
            if at & -at & 255 != alignment:
                return None, key
            found.append(out)
            addresses.append(at)
        ready.launch(*addresses)
        return found, key

    def keeps_several(self, name: str, operands: Sequence[torch.Tensor], rest: tuple[Any, ...] = ()) -> bool:
        """Return whether a call with several results is kept."""
        try:
            return _key(name, operands, rest)[0] in self._several
        except (AttributeError, RuntimeError, TypeError):
            return False

    def add(self, count: Count) -> None:
        """Count a call."""
        if self._module is not None:
            self._module.add(count.memory)
            return
        with self._counting:
            count.memory[0] += 1

    def launch_of(self, key: Hashable) -> Callable[..., None] | None:
        """Return the launch of a call with one result that is kept by a key, None for a call that is not."""
        found = self._calls.get(key)
        return None if found is None else found.launch

    def launch_of_several(self, key: Hashable) -> Callable[..., None] | None:
        """Return the launch of a call with several results; see `launch_of`."""
        found = self._several.get(key)
        return None if found is None else found.launch

    def keep(
        self, key: Hashable, operands: Sequence[torch.Tensor], out: torch.Tensor, launch: Callable[..., None],
        count: Count | None = None, call: tuple[str, tuple[Any, ...]] | None = None,
    ) -> None:  # fmt: skip
        """Keep the launch of a call that ran, whose result is `out`; each repetition is added to `count`.

        A result whose elements have gaps between them is not kept.  `call` are the operator, with namespace and
        overload, and all arguments, where these alone decide the launch: it is then also kept in C.
        """
        if not self._prepare_table(operands, (out,)):
            return
        self._calls[key] = _Ready(launch, *_memory_of(out), count)
        memory = None if self.calls_in_c is None else gpu_memory_of(out)
        if memory is not None and call is not None:
            at = out.data_ptr()
            counter = None if count is None else count.memory
            self.calls_in_c.keep(*call, launch, *memory, at & -at & 255, out.get_device(), counter)

    def keep_into(
        self, operator: str, arguments: tuple[Any, ...], options: dict[str, Any], launch: Callable[..., None],
        count: Count | None = None,
    ) -> None:  # fmt: skip
        """Keep the launch of a call that ran, whose output is the option `out`, where calls are kept in C; see `keep`.

        `launch` is a function of the addresses of all tensors, in the order of the arguments, the output last.
        """
        import torch

        tensors = [each for each in (*arguments, *options.values()) if isinstance(each, torch.Tensor)]
        out = options["out"]
        if self.calls_in_c is None or tensors[-1] is not out or not self._prepare_table(tensors, (out,)):
            return
        extents = tuple(end - begin for begin, end in map(address_range, tensors))
        counter = None if count is None else count.memory
        self.calls_in_c.keep_into(operator, launch, extents, out.get_device(), counter, *arguments, **options)

    def pass_on(self, operator: str, arguments: tuple[Any, ...], options: dict[str, Any], count: Count) -> None:
        """Let PyTorch's kernel compute all repetitions of a call without Python, each of which is added to `count`."""
        if self.calls_in_c is not None:
            self.calls_in_c.pass_on(operator, count.memory, *arguments, **options)

    def keep_several(
        self, key: Hashable, operands: Sequence[torch.Tensor], results: Sequence[torch.Tensor | None],
        launch: Callable[..., None], call: tuple[str, tuple[Any, ...]] | None = None,
    ) -> None:  # fmt: skip
        """Keep the launch of a call that ran with several results, some of which may be None; see `keep`."""
        tensors = [each for each in results if each is not None]
        if not tensors or not self._prepare_table(operands, tensors):
            return
        allocators = (None if each is None else _memory_of(each) for each in results)
        self._several[key] = _ReadyResults(launch, tuple(allocators))
        if self.calls_in_c is None or call is None:
            return
        empty: Any = None
        kept: list[tuple[Any, ...] | None] = []
        for each in results:
            memory = None if each is None else gpu_memory_of(each)
            if each is None or memory is None:
                kept.append(None)
            else:
                empty, *layout = memory
                kept.append((*layout, _alignment_of(each)))
        if empty is not None:
            self.calls_in_c.keep_several(*call, launch, empty, tuple(kept), tensors[0].get_device())

    def _prepare_table(self, operands: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> bool:
        """Return whether a call may be kept; empty the tables where they are full or of another registry."""
        import torch

        plain = {type(each) for each in operands} <= {torch.Tensor, torch.nn.Parameter}
        if not plain or not all(map(_is_dense, results)):
            return False
        if self._registry is not registry.default() or len(self._calls) + len(self._several) >= CAPACITY:
            self._calls.clear()
            self._several.clear()
            self._registry = registry.default()
        return True


def _key(name: str, operands: Sequence[torch.Tensor], rest: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int]]:
    """Return the key of a call, and the addresses of its operands.

    One, two and three operands are most calls; a loop over them would take half as long again.
    """
    count = len(operands)
    if count == 2:
        a, b = operands
        at_a, at_b = a.data_ptr(), b.data_ptr()
        return (
            name, rest,
            type(a), a.dtype, a.get_device(), a.shape, a.stride(), at_a & -at_a & 255,
            type(b), b.dtype, b.get_device(), b.shape, b.stride(), at_b & -at_b & 255,
        ), [at_a, at_b]  # fmt: skip
    if count == 3:
        a, b, c = operands
        at_a, at_b, at_c = a.data_ptr(), b.data_ptr(), c.data_ptr()
        return (
            name, rest,
            type(a), a.dtype, a.get_device(), a.shape, a.stride(), at_a & -at_a & 255,
            type(b), b.dtype, b.get_device(), b.shape, b.stride(), at_b & -at_b & 255,
            type(c), c.dtype, c.get_device(), c.shape, c.stride(), at_c & -at_c & 255,
        ), [at_a, at_b, at_c]  # fmt: skip
    if count == 1:
        (a,) = operands
        at_a = a.data_ptr()
        return (
            name, rest, type(a), a.dtype, a.get_device(), a.shape, a.stride(), at_a & -at_a & 255
        ), [at_a]  # fmt: skip
    key: tuple[Any, ...] = (name, rest)
    addresses = [each.data_ptr() for each in operands]
    for each, at in zip(operands, addresses, strict=True):
        key += (type(each), each.dtype, each.get_device(), each.shape, each.stride(), at & -at & 255)
    return key, addresses


def call_key(name: str, operands: Sequence[torch.Tensor], rest: tuple[Any, ...]) -> Hashable:
    """Return the key of a call whose operands have memory."""
    return _key(name, operands, rest)[0]


def _memory_of(out: torch.Tensor) -> tuple[Callable[[Any], Any], int]:
    """Return the allocator of a result, and its alignment."""
    return output_allocator(out), _alignment_of(out)


def _alignment_of(x: torch.Tensor) -> int:
    """Return the greatest power of 2 below 256 that divides the address of a tensor, 0 for multiples of 256."""
    at = int(x.data_ptr())
    return at & -at & 255


def _is_dense(out: torch.Tensor) -> bool:
    """Return whether the elements of a tensor fill its memory, its axes in any order."""
    axes = sorted((axis for axis in range(out.dim()) if out.shape[axis] != 1), key=out.stride, reverse=True)
    return bool(out.permute(*axes, *(axis for axis in range(out.dim()) if axis not in axes)).is_contiguous())
