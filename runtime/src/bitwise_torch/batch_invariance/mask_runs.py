"""The rows of a mask that see other first keys than their sequence: of a sliding window, and of packed sequences.

Sums over keys start at the first key that a query sees.  Rows of one first key run together.  The others are found as
runs, each of which is a call of its own on the run's keys: of sequences that are packed into one, or of a window.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bitwise_torch.batch_invariance.row_functions import extents_of_rows, first_of_rows

if TYPE_CHECKING:
    import torch

MOST_RUNS = 4096
"""The greatest number of runs of a mask."""

MOST_CALLS = 8
"""The greatest number of runs of the queries that see the first key of their sequence, each of which is a call."""

_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """Queries from `begin` to `end` of a sequence, each of which sees the keys up to one key more than the one before.

    The keys of all are those from `first` to `last`.  They begin at `first` for each query, or with `sliding` at one
    key more than those of the query before.  `sequence` is None for a mask that all sequences have.
    """

    sequence: int | None
    begin: int
    end: int
    first: int
    last: int
    sliding: bool

    @property
    def seen(self) -> int:
        """The number of keys that each query sees, of a sliding run."""
        return self.last - self.first - (self.end - self.begin - 1)


def first_keys_differ(rows: torch.Tensor, keys: int) -> torch.Tensor:
    """Return whether queries of a sequence have different first keys: under a window, or in packed sequences.

    `rows` [..., queries] are the first keys of the rows of a mask; those of queries without a key are `keys`.  The
    result has no axes.
    """
    return ((rows > rows.amin(-1, keepdim=True)) & (rows < keys)).any()


def runs_of_mask(extents: _Rows, keys: int) -> tuple[tuple[Run, ...] | None, tuple[Run, ...] | None]:
    """Return the runs of a boolean mask whose queries see other first keys than their sequence, and all others' runs.

    `extents` are those of `extents_of_rows`, of rows of so many keys.  The first are None where a query sees keys with
    a gap between them, or another last key than the one after that of the query before, or heads differ.  The others
    are None then, too, and where they are more than MOST_CALLS or no runs.
    """
    first, behind, number = extents
    if first.ndim > 1 and ((first != first[..., :1, :]).any() or (behind != behind[..., :1, :]).any()):
        return (None if _differ(first, keys) else ()), None  # heads differ
    gaps = ((behind - first != number) & (first < keys)).any()
    if not _differ(first, keys):
        runs: list[Run] | None = []
    else:
        runs = None if gaps else _runs(first, behind, keys, others=False)
    rest = None if gaps or runs is None else _runs(first, behind, keys, others=True)
    return (None if runs is None else tuple(runs)), None if rest is None or len(rest) > MOST_CALLS else tuple(rest)


def _differ(first: _Rows, keys: int) -> bool:
    """Return whether queries of a sequence have different first keys; see `first_keys_differ`."""
    return bool(((first > first.min(-1, keepdims=True)) & (first < keys)).any())


def _runs(first: _Rows, behind: _Rows, keys: int, others: bool) -> list[Run] | None:
    """Return the runs of all sequences, up to MOST_RUNS, and else None; with `others` those that see the first key."""
    if first.ndim > 1:  # [sequences, heads, queries] or [heads, queries]
        first, behind = first[..., 0, :], behind[..., 0, :]
    first, behind = (each.reshape(-1, each.shape[-1]) for each in (first, behind))
    several = len(first) > 1
    found: list[Run] = []
    for place, (own, behind_own) in enumerate(zip(first, behind, strict=True)):
        for each in _runs_of_sequence(place if several else None, own, behind_own, keys, others):
            found.append(each)
            if len(found) > MOST_RUNS:
                return None
    return found


def segments_of_mask(allowed: torch.Tensor, sequences: int) -> Segments | None:
    """Return the causal sequences under a mask[s, 1, tokens, tokens], whose values are read; None for heads of one."""
    import torch

    tokens = int(allowed.shape[-1])
    if allowed.shape[1] != 1 or allowed.shape[2] != tokens or not tokens:
        return None
    extents = extents_of_rows(allowed).cpu().numpy().reshape(3, -1, tokens)
    first, last, whole = extents[0], extents[1], extents[1] - extents[0] == extents[2]
    place = np.arange(tokens)
    causal = whole & (last == place + 1)
    begins = causal & (first == place)
    same = np.diff(first, prepend=-1, axis=1) == 0
    # A token goes on with a sequence if all since its first one do.
    started, ended = (
        np.maximum.accumulate(np.where(each, place, -1), axis=1) for each in (begins, ~begins & ~(causal & same))
    )
    inside = started > ended
    before = np.pad(inside, ((0, 0), (1, 0)))[:, :-1]
    changes = begins | (inside != before) | (place == 0)
    if len(first) == 1:
        inside, changes = (np.repeat(each, sequences, axis=0) for each in (inside, changes))
    starts = np.append(np.flatnonzero(changes), inside.size).astype(np.int32)
    others = None if inside.all() else torch.from_numpy(~inside.reshape(-1)).to(allowed.device)
    return Segments(torch.from_numpy(starts).to(allowed.device), int(np.diff(starts).max()), others)


def _runs_of_sequence(
    sequence: int | None, first: _Rows, last: _Rows, keys: int, others: bool
) -> Iterator[Run]:  # fmt: skip
    """Yield the runs of the queries of a sequence that see another first key than it, or with `others` its first key.

    Those that see no key are in none.
    """
    least = int(first.min())
    own = first == least if others else first != least
    places = np.flatnonzero(own & (first != keys))
    step = np.diff(first, prepend=first[:1])
    # What leads from the query before to this one: 0 and 1 to the same run and to one that slides, 2 to neither.
    kind = np.where((np.diff(last, prepend=last[:1]) == 1) & ((step == 0) | (step == 1)), step, 2)
    changes = np.append(np.flatnonzero(np.diff(kind)) + 1, len(first))
    row = 0
    while True:
        at = int(np.searchsorted(places, row))
        if at == len(places):
            return
        row = int(places[at])
        after = int(kind[row + 1]) if row + 1 < len(first) else 2
        if others and after == 1:  # the query behind sees another first key
            after = 2
        end = row + 1
        if after != 2:
            end = int(changes[np.searchsorted(changes, row + 1, side="right")])
        yield Run(sequence, row, end, int(first[row]), int(last[end - 1]), after == 1)
        row = end


@dataclass(frozen=True, slots=True, eq=False)
class ReadMask:
    """What attention needs of a mask.

    `allowed` [sequences, heads, queries, keys] says where a query may attend to a key, and `added` is added to the
    scores, None for nothing.  `first_keys` are those of each sequence, in int32.  `runs` and `others` are those of
    `runs_of_mask`, which follow from `extents`, None where these were not read.
    """

    allowed: torch.Tensor
    added: torch.Tensor | None
    first_keys: torch.Tensor
    runs: tuple[Run, ...] | None
    others: tuple[Run, ...] | None = None
    extents: _Rows | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Causal sequences among the tokens of a batch, which lie one after the other.

    Sequence i has the tokens from `starts[i]` to `starts[i + 1]`, in int32; `longest` is the greatest number of them.
    `others` says which tokens are queries that see other keys than those of a causal sequence up to themselves, such as
    padding; None for none.  They are sequences, too.
    """

    starts: torch.Tensor
    longest: int
    others: torch.Tensor | None


@dataclass
class Masks:
    """Reads masks, and keeps the last one, which the layers of a model have in common.

    A mask is read again once it was written to.  PyTorch does not count the writes to tensors of an inference mode, so
    that the first keys of such a mask are read in each call, on the device; only that it has no runs is kept, unless
    the mode is `strict`.

    In a capture of a CUDA graph no values can be read.  With `strict`, it is asserted on the device, in each replay,
    that a mask has no runs.  Else it has none if it had none before, and unknown ones if it did not run.
    """

    strict: bool = True
    _last: tuple[_Mask, ReadMask] | None = None
    """The last mask and what was read of it; threads replace both at once."""
    _last_segments: tuple[ReadMask, int, Segments | None] | None = None

    def known(self, mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor, causal: bool) -> ReadMask | None:
        """Return what was read of the last mask, if this is it, and nothing wrote to it; None in a capture."""
        last = self._last
        if last is None or mask.requires_grad or last[0] != _mask_of(mask, query, key, causal) or is_captured(mask):
            return None
        read = last[1]
        if not mask.is_inference():
            return read
        if self.strict or read.runs != () or read.allowed.data_ptr() != mask.data_ptr():
            return None
        # What it allows is its own memory.
        return replace(read, first_keys=_first_keys(first_of_rows(read.allowed), int(query.shape[0])))

    def of(
        self, mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor, causal: bool, exact: bool = False
    ) -> ReadMask:  # fmt: skip
        """Return what attention of query[s, h, q, d] to key[s, h, k, d] needs of a mask of four axes.

        With `exact`, the values of a mask of numbers are read, which waits for the device: one that is 0 where it hides
        nothing adds nothing, unless it has gradients.
        """
        found = self.known(mask, query, key, causal)
        if found is not None:
            return found
        allowed, added = _allowed_and_added(mask, query, key, causal)
        if exact and added is not None and not mask.requires_grad and not _adds(mask):
            added = None
        own = _mask_of(mask, query, key, causal)
        found = self._read(own, allowed, added, int(query.shape[0]))
        if not is_captured(mask):
            self._last = own, found
        return found

    def segments(self, read: ReadMask, sequences: int) -> Segments | None:
        """Return the causal sequences of a batch under a mask without what is added; None where they are unknown."""
        last = self._last_segments
        if last is not None and last[0] is read and last[1] == sequences:
            return last[2]
        known = read.added is None and not is_captured(read.allowed)
        found = segments_of_mask(read.allowed, sequences) if known else None
        self._last_segments = read, sequences, found
        return found

    def _read(self, own: _Mask, allowed: torch.Tensor, added: torch.Tensor | None, sequences: int) -> ReadMask:
        """Return what was read of a mask, or what is known of it in a capture."""
        import torch

        keys = int(allowed.shape[-1])
        last = self._last[1] if self._last is not None and self._last[0] == own else None
        captured = is_captured(allowed)
        if allowed.shape[-2] == 1 or captured:
            rows = first_of_rows(allowed)
            runs: tuple[Run, ...] | None = ()
            if allowed.shape[-2] > 1 and self.strict and (last is None or not last.runs):
                torch._assert_async(~first_keys_differ(rows, keys), _ASSERTION)
            elif allowed.shape[-2] > 1 and (last is None or last.runs != ()):
                runs = None  # those of the mask before would be those of the capture
            return ReadMask(allowed, added, _first_keys(rows, sequences), runs)
        extents = extents_of_rows(allowed)
        first_keys = _first_keys(extents[0], sequences)
        if last is not None and last.runs == () and not self.strict:  # a mask whose writes are not counted
            return ReadMask(allowed, added, first_keys, ())
        read = extents.cpu().numpy()
        if last is not None and last.extents is not None and np.array_equal(last.extents, read):
            return ReadMask(allowed, added, first_keys, last.runs, last.others, read)
        return ReadMask(allowed, added, first_keys, *runs_of_mask(read, keys), read)


def _first_keys(rows: torch.Tensor, sequences: int) -> torch.Tensor:
    """Return the first key of each of so many sequences, from those of the rows of their mask."""
    if rows.numel() == sequences == len(rows):
        return rows.view(-1)
    return rows.view(len(rows), -1).amin(-1).expand(sequences).contiguous()


_ASSERTION = "a mask of attention hides other first keys than in the capture of this CUDA graph: run it without a graph"


def is_captured(tensor: torch.Tensor) -> bool:
    """Return whether operators on a tensor are captured in a CUDA graph."""
    import torch

    return tensor.is_cuda and bool(torch.cuda.is_current_stream_capturing())


def _mask_of(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor, causal: bool) -> _Mask:
    version = None if mask.is_inference() else mask._version
    return _Mask(weakref.ref(mask), (version, causal, query.shape[0], query.shape[2], key.shape[2]))


@dataclass(frozen=True, slots=True, eq=False)
class _Mask:
    """A mask as it was at a time; two are equal if they are one living tensor that was not written to in between."""

    tensor: weakref.ReferenceType[Any]
    rest: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        mine = self.tensor()
        return (
            isinstance(other, _Mask) and mine is not None and mine is other.tensor() and self.rest == other.rest
        )  # fmt: skip

    __hash__ = None  # type: ignore[assignment]


def _allowed_and_added(mask: Any, query: Any, key: Any, causal: bool) -> tuple[Any, Any]:
    """Return where a query may attend to a key, and what a mask adds to the scores, None for nothing."""
    import torch

    queries, keys = int(query.shape[-2]), int(key.shape[-2])
    if mask.shape[-2:] != (queries, keys) or mask.dim() < 4:
        mask = mask.expand(*([1] * (4 - max(2, mask.dim()))), *mask.shape[:-2], queries, keys)
    added = None
    if mask.dtype != torch.bool:
        added = mask.float()
        # The least number of a type stands for minus infinity.
        mask = mask > torch.finfo(mask.dtype).min
    return (mask & causal_mask(query, key) if causal else mask), added


def _adds(mask: torch.Tensor) -> bool:
    """Return whether a mask of numbers adds other ones than 0 and those that hide keys; its values are read."""
    import torch

    return bool(((mask != 0) & (mask > torch.finfo(mask.dtype).min)).any())


def causal_mask(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Return the mask [q, k] in which query i sees the keys up to the one of its number."""
    import torch

    return torch.ones(int(query.shape[-2]), int(key.shape[-2]), dtype=torch.bool, device=query.device).tril()
