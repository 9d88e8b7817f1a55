"""Reads that are made again and again until they find another content."""

from __future__ import annotations

from dataclasses import dataclass, field

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.synchronised_blocks.machine_state import MachineState, forget_changes

MAXIMUM_ROUNDS = 8
"""How often one content is read again at most until a round changes nothing else."""


@dataclass(slots=True, eq=False)
class Wait:
    """Blocks that return to a read: the contents that are still to be found, and the state at the last read.

    What a round changes in registers and in shared memory is undetermined in the next (`changed`), until a round
    changes nothing else.  The run then stands for every number of rounds.
    """

    contents: list[int]
    state: MachineState
    rounds: int = 0
    changed: set[object] = field(default_factory=set)

    def read_again(self, machine: Machine, awaited: str, line: int) -> None:
        """The blocks have returned to the read.  Raises Unsupported, with the name of what they wait for."""
        if forget_changes(machine, self.state, self.changed, line):
            self.rounds += 1
            if self.rounds > MAXIMUM_ROUNDS:
                raise Unsupported(f"waiting for {awaited} changes the state of a block again and again", line)
        else:
            self.contents.pop(0)
            self.rounds = 0
        self.state = MachineState.of(machine)
