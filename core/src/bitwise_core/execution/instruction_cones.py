"""Cones: computations within a basic block whose inner results nothing else uses.

A cone is an instruction, its root, and all instructions of the block whose results only it uses, each of which computes
every lane by itself (`Effect.LANEWISE`).  A root is a result that is live at the end of the block, or that an
instruction outside of cones reads.  Sequences that an architecture knows (`known_sequences.py`) are cones, too.

Cones of one form compute one function of their inputs, whatever the names of their registers.  They are found together:
one cone is searched for, and arrays show for all other roots whether the same search finds the same form.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from bitwise_core.execution.control_flow import EXIT
from bitwise_core.execution.instruction_forms import NAMES, NUMBERS, may_be_member, texts_of
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.known_sequences import Definition, KnownSequence
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import live_at
from bitwise_core.execution.values.symbolic_vector import Array

MINIMUM_INSTRUCTIONS = 16
"""The fewest instructions of a cone that is looked up."""

MAXIMUM_INSTRUCTIONS = 512
"""The most instructions of a cone that is looked up."""

_INTERRUPTIONS = Effect.CALL | Effect.CLUSTER


@dataclass(frozen=True, eq=False)
class Shape:
    """What cones of one form share; a node is a member, and those below it come before it.

    `form` has for each node the form of its text and its operands in the order of `InstructionText.names`: the number
    of another node, or -1 less the number of an input.
    """

    form: tuple[tuple[str, tuple[int, ...]], ...]

    @cached_property
    def consumed(self) -> tuple[tuple[int, ...], ...]:
        """The inputs that each node reads."""
        return tuple(tuple(dict.fromkeys(-1 - each for each in operands if each < 0)) for _, operands in self.form)

    @cached_property
    def edges(self) -> tuple[list[tuple[int, int, int]], Array, Array]:
        """The node, the place and the number of each operand: of those by which a node is found, of nodes, of inputs.

        From the root on, each node is found as an operand of one that was found before.
        """
        finding, found = [], {len(self.form) - 1}
        nodes, inputs = [], []
        for node in range(len(self.form) - 1, -1, -1):
            for place, operand in enumerate(self.form[node][1]):
                if operand < 0:
                    inputs.append((node, place, -1 - operand))
                    continue
                nodes.append((node, place, operand))
                if operand not in found:
                    found.add(operand)
                    finding.append((node, place, operand))
        columns = (np.array(each, dtype=np.int64).reshape(-1, 3).T for each in (nodes, inputs))
        return finding, next(columns), next(columns)


@dataclass(frozen=True, slots=True)
class Cone:
    """A cone: its instructions in the order of the text, the last one being its root.

    `inputs` names the registers that may hold each input, and `captured` is the first member that reads it.  `result`
    is the register that the root writes.  `shape` is equal for cones that differ in the names of registers and the
    order of independent instructions only; it numbers the inputs.  `order` are the members in the order of its nodes.
    `definitions` are those of the inputs.  `known` is the sequence of a cone that an architecture knows.
    """

    members: tuple[int, ...]
    inputs: tuple[tuple[str, ...], ...]
    captured: tuple[int, ...]
    result: str
    shape: Shape
    order: tuple[int, ...]
    definitions: tuple[Definition, ...]
    known: KnownSequence | None = None

    @property
    def form(self) -> Hashable:
        """The form of the cone, which distinguishes its function from others."""
        return self.shape.form

    @property
    def consumed(self) -> Mapping[int, tuple[int, ...]]:
        """The inputs that each member reads."""
        return dict(zip(self.order, self.shape.consumed, strict=True))


def blocks_of(program: Program) -> Iterator[tuple[int, int]]:
    """Yield the first instruction and the end of each run of instructions that one group of lanes executes.

    An instruction that writes the execution mask ends a run.
    """
    fewest = MINIMUM_INSTRUCTIONS if program.sequences is None else 1
    starts = {0, *program.joins, *program.reconvergence.values()}
    count = len(program.steps)
    for index, following in enumerate(program.following):
        if following != (index + 1,) or _ends_a_block(program, index):
            starts.update((index, index + 1, *(each for each in following if each != EXIT)))
    if program.execution_mask is not None:
        starts.update(index + 1 for index in _writes_of(program, program.execution_mask))
    ordered = sorted(each for each in starts if 0 <= each < count)
    for first, end in zip(ordered, [*ordered[1:], count], strict=True):
        if end - first >= fewest:
            yield first, end


def _writes_of(program: Program, key: str) -> Iterator[int]:
    """Yield the instructions that write a register kept under a key."""
    found: dict[int, bool] = {}
    for index, info in enumerate(program.infos):
        writes = found.get(id(info))
        if writes is None:
            writes = found[id(info)] = any(program.storage(name) == key for name in info.writes)
        if writes:
            yield index


def _ends_a_block(program: Program, index: int) -> bool:
    """Return whether other instructions may run at an instruction, or only some lanes execute it.

    At a barrier of the block no lane of a group that holds all of them waits for another one.
    """
    return program.kernel.instructions[index].guard is not None or program.infos[index].effects.overlaps(_INTERRUPTIONS)


@dataclass(frozen=True, slots=True)
class BlockCones:
    """The cones of a block.

    `skipped` are the other instructions that they replace where all lanes are active, each with the root of one cone.
    `in_some_lanes` are the roots of the cones that are used where fewer lanes are active: those that the architecture
    knows, if no group waits inside of the block; `skipped_in_some_lanes` are the instructions that these replace.
    """

    cones: list[Cone]
    skipped: Mapping[int, int]
    in_some_lanes: frozenset[int]
    skipped_in_some_lanes: Mapping[int, int]


NO_CONES = BlockCones([], {}, frozenset(), {})
_WAITS = Effect.BARRIER | Effect.ASYNCHRONOUS | Effect.CLUSTER | Effect.CALL


def cones_of_block(program: Program, first: int, end: int) -> BlockCones:
    """Return the cones of a block."""
    infos = program.infos
    # Fewer instructions than a cone has need no text.
    enough = sum(may_be_member(info.effects) for info in infos[first:end]) >= MINIMUM_INSTRUCTIONS
    sequences = _known_sequences(program, first, end)
    if not enough and not sequences:
        return NO_CONES
    flow = _BlockFlow(program, first, end)
    sizes = flow.sizes(MINIMUM_INSTRUCTIONS) if enough else np.zeros(end - first, dtype=np.int64)
    if not (sizes >= MINIMUM_INSTRUCTIONS).any() and not sequences:
        return NO_CONES
    live = live_at(program, end)
    # A definition that is live at the end, or that an instruction outside of cones reads, is a root.
    escapes = np.zeros(end - first, dtype=bool)
    escapes[[place for key, place in flow.last_writes() if live(key)]] = True
    used_outside = np.zeros(end - first, dtype=bool)
    used_outside[flow.used[~flow.members[flow.users]]] = True
    roots = np.flatnonzero((sizes >= MINIMUM_INSTRUCTIONS) & (escapes | used_outside))
    if not sequences and end - first <= _MOST_IN_SETS:
        roots = _saving_roots(flow, roots, escapes)
    roots_of_known = {sequence.members[-1] for sequence in sequences}
    kept = [cone for cone in _cones_of_roots(flow, roots) if cone.members[-1] not in roots_of_known]
    for sequence in sequences:
        found = _cone(flow, sequence.members[-1], frozenset(sequence.members), fewest=1)
        if found is not None and found.members == sequence.members:
            kept.append(replace(found, known=sequence))
    while True:
        skipped, saved = _skipped(flow, kept, escapes)
        # Few instructions are saved where others need the results inside of a cone.
        saving = [
            cone
            for cone in kept
            if cone.known is not None or 2 * saved[np.array(cone.members) - first].sum() >= len(cone.members)
        ]
        if len(saving) == len(kept):
            break
        kept = saving
    known = [cone for cone in kept if cone.known is not None]
    if program.execution_mask is None or not known or any(info.effects.overlaps(_WAITS) for info in infos[first:end]):
        return BlockCones(kept, skipped, frozenset(), {})
    in_some_lanes, _ = _skipped(flow, known, escapes)
    return BlockCones(kept, skipped, frozenset(cone.members[-1] for cone in known), in_some_lanes)


class _BlockFlow:
    """The definitions that the instructions of a block read, as arrays; a place is counted from its first instruction.

    `definitions` has the place that wrote each of `InstructionText.keys` of an instruction last, -1 for one before the
    block, and `numbers` those of the keys, -1 where an instruction has fewer.  `users` read the results of `used`.
    """

    def __init__(self, program: Program, first: int, end: int) -> None:
        self.program, self.first = program, first
        self.texts = texts = texts_of(program)[first:end]
        count, refused = end - first, program.known_refusals
        self.members = np.fromiter((text.lanewise for text in texts), dtype=bool, count=count)
        if refused:
            self.members[[index - first for index in refused if first <= index < end]] = False
        read = np.fromiter((len(text.keys) for text in texts), dtype=np.int64, count=count)
        written = np.fromiter((len(text.written) for text in texts), dtype=np.int64, count=count)
        slots = np.arange(max(1, int(read.max(initial=0))))
        is_read = slots < read[:, None]
        self.numbers: Array = np.full(is_read.shape, -1, dtype=np.int64)
        self.numbers[is_read] = _joined(text.key_numbers for text in texts)
        keys = _joined(text.written_numbers for text in texts)
        # The last write before an instruction follows from the order of all writes by key and place.
        writes = np.sort(keys * (count + 1) + np.repeat(np.arange(count), written))
        self._writes = writes
        places = np.arange(count)[:, None]
        wanted = self.numbers * (count + 1) + places
        before = np.searchsorted(writes, wanted) - 1
        found = writes[before] if len(writes) else np.full(wanted.shape, -1)
        is_of_key = (before >= 0) & is_read & (found // (count + 1) == self.numbers)
        self.definitions: Array = np.where(is_of_key, found % (count + 1), -1)
        # While the lanes are those that entered the block, all of them, no register keeps its value in others.
        self.mask = -1
        whole = self.members
        if program.execution_mask is not None:
            self.mask = NUMBERS[program.execution_mask]
            begin = np.searchsorted(writes, self.mask * (count + 1))
            changes = begin < len(writes) and writes[begin] // (count + 1) == self.mask
            whole = np.arange(count) <= (writes[begin] % (count + 1) if changes else count)
        needed = np.where(whole, np.fromiter((text.whole for text in texts), dtype=np.int64, count=count), read)
        self._uses = (self.definitions >= 0) & (slots < needed[:, None])
        self.users, slot = np.nonzero(self._uses)
        self.used = self.definitions[self.users, slot]

    def sizes(self, most: int) -> Array:
        """Return how many instructions each member is and has below it, at most `most`; 0 for other instructions."""
        child = np.where(self._uses & self.members[self.definitions], self.definitions, -1)
        found = self.members.astype(np.int64)
        for _ in range(most):
            below = np.where(child >= 0, found[child], 0).sum(axis=1)
            larger = np.where(self.members, np.minimum(most, 1 + below), 0)
            if (larger == found).all():
                break
            found = larger
        return found

    def last_writes(self) -> Iterator[tuple[str, int]]:
        """Yield the keys that the block writes, and the place that writes each last."""
        keys, places = np.divmod(self._writes, len(self.texts) + 1)
        is_last = np.append(keys[1:] != keys[:-1], True) if len(keys) else keys.astype(bool)
        for key, place in zip(keys[is_last].tolist(), places[is_last].tolist(), strict=True):
            yield NAMES[key], place

    @cached_property
    def rows(self) -> list[list[int]]:
        """The definitions as lists."""
        found: list[list[int]] = self.definitions.tolist()
        return found

    @cached_property
    def member_places(self) -> frozenset[int]:
        """The instructions that may belong to cones, by their index in the program."""
        return frozenset((np.flatnonzero(self.members) + self.first).tolist())

    @cached_property
    def forms(self) -> Array:
        """The number of the form of each member, -1 for other instructions."""
        return np.fromiter(
            (text.form_number if is_member else -1 for text, is_member in zip(self.texts, self.members, strict=True)),
            dtype=np.int64,
            count=len(self.texts),
        )

    @cached_property
    def operands(self) -> tuple[Array, Array, Array]:
        """What each of the names that a member reads stands for (`InstructionText.names`).

        The member that made it, -1 if none did; the number of its definition, -2 of one that no cone may read; the
        number of the name.
        """
        count = len(self.texts)
        texts = [text for text, is_member in zip(self.texts, self.members, strict=True) if is_member]
        counts = np.zeros(count, dtype=np.int64)
        counts[self.members] = [len(text.slots) for text in texts]
        is_named = np.arange(max(1, int(counts.max(initial=0)))) < counts[:, None]
        rows, slots = np.nonzero(is_named)[0], _joined(text.slots for text in texts)
        made, key = self.definitions[rows, slots], self.numbers[rows, slots]
        is_inner = (made >= 0) & self.members[made]
        # The lanes are those that entered the block.
        is_legal = ~is_inner & ((key != self.mask) | (made < 0))
        inner, outer, names = (np.full(is_named.shape, number) for number in (-1, -2, -1))
        inner[is_named] = np.where(is_inner, made, -1)
        outer[is_named] = np.where(is_legal, key * (count + 1) + made + 1, -2)
        names[is_named] = _joined(text.name_numbers for text in texts)
        return inner, outer, names

    def definition(self, number: int) -> Definition:
        """Return the definition with a number."""
        key, place = divmod(number, len(self.texts) + 1)
        return NAMES[key], place - 1 + self.first if place else -1


def _joined(numbers: Iterable[tuple[int, ...]]) -> Array:
    return np.fromiter(chain.from_iterable(numbers), dtype=np.int64)


def _known_sequences(program: Program, first: int, end: int) -> tuple[KnownSequence, ...]:
    """Return the sequences in a block that the architecture knows and whose instructions it models."""
    if program.sequences is None:
        return ()
    found = program.sequences(program.kernel, program.infos, first, end)
    return tuple(each for each in found if not any(index in program.refused for index in each.members))


_MOST_IN_SETS = 8192
"""The most instructions of a block whose sets are numbers with a bit for each of them."""


def _saving_roots(flow: _BlockFlow, roots: Array, escapes: Array) -> Array:
    """Return the roots without those whose cones save few instructions, such as the partial sums of a chain.

    All cones of the block are those of roots, and members of cones are no inputs of them.  As in `_skipped`, what an
    instruction outside of cones needs is not saved.  Sets of instructions are numbers, a bit for each one.
    """
    if not len(roots):
        return roots
    below = [0] * len(flow.texts)
    for place, (row, text) in enumerate(zip(flow.rows, flow.texts, strict=True)):
        if text.lanewise:
            found = 1 << place
            for definition in row[: text.whole]:
                if definition >= 0:
                    found |= below[definition]
            below[place] = found
    kept: list[int] = roots.tolist()
    escaping = ~_in_bits(escapes)
    while True:
        owned = 0
        for root in kept:
            owned |= below[root]
        is_root = np.zeros(len(below), dtype=bool)
        is_root[kept] = True
        saved = _in_bits(_saved(flow, _from_bits(owned & escaping, len(below)) & ~is_root, is_root))
        saving = [root for root in kept if 2 * (below[root] & saved).bit_count() >= below[root].bit_count()]
        if len(saving) == len(kept):
            return np.array(kept, dtype=np.int64)
        kept = saving


def _in_bits(chosen: Array) -> int:
    return int.from_bytes(np.packbits(chosen, bitorder="little").tobytes(), "little")


def _from_bits(number: int, count: int) -> Array:
    octets = np.frombuffer(number.to_bytes(-(-count // 8), "little"), dtype=np.uint8)
    return np.unpackbits(octets, count=count, bitorder="little").astype(bool)


def _skipped(flow: _BlockFlow, cones: Sequence[Cone], escapes: Array) -> tuple[dict[int, int], Array]:
    """Return the instructions whose results only these cones need, each with the root of one of them.

    The result of a member of one cone may be an input of another one, which captures it where it is read.  The second
    result says of each place whether it is one of these or a root.
    """
    count, first = len(flow.texts), flow.first
    is_root, is_input, owner = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool), np.full(count, -1)
    for cone in cones:
        root = cone.members[-1] - first
        is_root[root] = True
        owner[np.array(cone.members[:-1], dtype=np.int64) - first] = root
    is_input[[place - first for cone in cones for _, place in cone.definitions if place >= first]] = True
    found = (owner >= 0) & ~(is_root | escapes | is_input)
    saved = _saved(flow, found, is_root)
    places = np.flatnonzero(saved & ~is_root)[::-1]
    skipped = zip((places + first).tolist(), (owner[places] + first).tolist(), strict=True)
    return dict(skipped), saved


def _saved(flow: _BlockFlow, found: Array, is_root: Array) -> Array:
    """Return the roots and those of the places found that only these need."""
    is_found = found[flow.used]
    used, users = flow.used[is_found], flow.users[is_found]
    saved: Array = found | is_root
    while True:
        needed = used[~saved[users] & saved[used]]
        if not len(needed):
            return saved
        saved[needed] = False


def _cones_of_roots(flow: _BlockFlow, roots: Array) -> list[Cone]:
    """Return the cones of some places, in their order."""
    found: dict[int, Cone] = {}
    groups: dict[int, list[int]] = {}
    if len(roots):
        for root, likely in zip(roots.tolist(), _likely_forms(flow)[roots].tolist(), strict=True):
            groups.setdefault(likely, []).append(root)
    for group in groups.values():
        left = np.array(group)
        while len(left):
            cone = _cone(flow, int(left[0]) + flow.first, flow.member_places)
            left = left[1:]
            if cone is None:
                continue
            found[cone.members[-1]] = cone
            if len(left):
                alike, cones = _cones_like(flow, cone, left)
                found.update((each.members[-1], each) for each in cones)
                left = left[~alike]
    return [found[root] for root in sorted(found)]


def _likely_forms(flow: _BlockFlow) -> Array:
    """Return a number for each member that is the same for cones of one form, and seldom for those of two."""
    definitions, _, _ = flow.operands
    is_inner = definitions >= 0
    forms = flow.forms.astype(np.uint64) * _FACTORS[0]
    found = forms
    for _ in range(_DEPTH_OF_LIKELY_FORMS):
        inner = np.where(is_inner, found[definitions], np.uint64(1))
        found = forms
        for column, factor in zip(inner.T, _FACTORS[1:], strict=False):
            found = (found ^ column) * factor
            found ^= found >> np.uint64(29)
    return found


_DEPTH_OF_LIKELY_FORMS = 6
_FACTORS = [np.uint64(2 * each + 1) for each in np.random.default_rng(1).integers(1 << 60, 1 << 62, 17).tolist()]


def _cones_like(flow: _BlockFlow, cone: Cone, roots: Array) -> tuple[Array, list[Cone]]:
    """Return which of some places are roots of a cone of the form of another cone, and their cones."""
    shape, first, (inner, outer, names) = cone.shape, flow.first, flow.operands
    finding, to_nodes, to_inputs = shape.edges
    own = np.array(cone.order) - first
    places: Array = np.empty((len(own), len(roots)), dtype=np.int64)
    places[-1] = roots
    for node, operand, number in finding:
        places[number] = inner[places[node], operand]
    alike = (places >= 0).all(axis=0) & (flow.forms[places] == flow.forms[own][:, None]).all(axis=0)
    alike &= (inner[places[to_nodes[0]], to_nodes[1][:, None]] == places[to_nodes[2]]).all(axis=0)
    reading, place, read = to_inputs
    held = outer[places[reading], place[:, None]]
    definitions: Array = np.empty((len(cone.inputs), len(roots)), dtype=np.int64)
    definitions[read] = held
    alike &= (held == definitions[read]).all(axis=0) & (held >= 0).all(axis=0)
    # Different members and inputs are different ones here, too.
    members = np.sort(places, axis=0)
    for ordered in (members, np.sort(definitions, axis=0)):
        alike &= (ordered[1:] != ordered[:-1]).all(axis=0)
    captured: Array = np.full(definitions.shape, len(flow.texts))
    np.minimum.at(captured, read, places[reading])
    named = names[places[reading], place[:, None]]
    differs = np.zeros(definitions.shape, dtype=bool)
    np.logical_or.at(differs, read, named != names[own[reading], place][:, None])
    found = []
    for each in np.flatnonzero(alike).tolist():
        held_by = [flow.definition(number) for number in definitions[:, each].tolist()]
        read_as = [
            _registers_of(key, {NAMES[name] for name in named[read == number, each].tolist()}) if other else same
            for number, ((key, _), same, other) in enumerate(
                zip(held_by, cone.inputs, differs[:, each].tolist(), strict=True)
            )
        ]
        order = (places[:, each] + first).tolist()
        text = flow.texts[order[-1] - first]
        (result,) = text.written
        if result in text.info.writes:
            found.append(
                Cone(
                    tuple((members[:, each] + first).tolist()), tuple(read_as),
                    tuple((captured[:, each] + first).tolist()), result, shape, tuple(order), tuple(held_by),
                )
            )  # fmt: skip
    return alike, found


def _registers_of(key: str, names: Collection[str]) -> tuple[str, ...]:
    """Return the registers that may hold an input with a key, from the names by which it is read."""
    return (key, *sorted(set(names) - {key}))


def _cone(flow: _BlockFlow, root: int, members: Collection[int], fewest: int = MINIMUM_INSTRUCTIONS) -> Cone | None:
    """Return the cone of a root, None if it is too small or too large, or if its inputs cannot be captured."""
    program, first, mask = flow.program, flow.first, flow.program.execution_mask
    texts, rows = flow.texts, flow.rows
    numbers: dict[int, int] = {}
    """The members, and the place of each in the order of their forms."""
    inputs: dict[Definition, int] = {}
    names: list[set[str]] = []
    captured: list[int] = []
    form: list[tuple[str, tuple[int, ...]]] = []

    def visit(index: int) -> bool:
        if len(numbers) > MAXIMUM_INSTRUCTIONS:
            return False
        text, definitions = texts[index - first], rows[index - first]
        operands: list[int] = []
        for name, slot in text.names:
            place = definitions[slot] + first if definitions[slot] >= 0 else -1
            if place in members:
                if place not in numbers and not visit(place):
                    return False
                operands.append(numbers[place])
                continue
            key = text.keys[slot]
            if key == mask and place >= first:
                return False  # the lanes are others than when the block was entered
            number = inputs.setdefault((key, place), len(inputs))
            if number == len(names):
                names.append(set())
                captured.append(index)
            operands.append(-1 - number)
            names[number].add(name)
            captured[number] = min(captured[number], index)
        numbers[index] = len(numbers)
        form.append((text.form, tuple(operands)))
        return True

    if not visit(root) or len(numbers) < fewest:
        return None
    sequence = tuple(sorted(numbers))
    (result,) = texts[root - first].written
    if result not in texts[root - first].info.writes:
        return None
    if not _is_modelled(program, tuple(form), sequence):
        return None
    read = tuple(_registers_of(key, each) for (key, _), each in zip(inputs, names, strict=True))
    return Cone(sequence, read, tuple(captured), result, Shape(tuple(form)), tuple(numbers), tuple(inputs))


def _is_modelled(program: Program, form: Hashable, members: Sequence[int]) -> bool:
    """Return whether a cone with these members has no instruction that is not modelled, which follows from its form."""
    known: dict[Hashable, bool] = program.analyses.setdefault("modelled cones", {})
    if form not in known:
        known[form] = not any(index in program.refused for index in members)
    return known[form]
