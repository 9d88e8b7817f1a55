"""The architecture toy1, with waves of four lanes, one matrix unit and no shared memory."""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Kernel, Module
from bitwise_core.execution.architecture import Arch, BitSupport, OpcodeTable
from bitwise_core.execution.launch import Launch, ManifestError
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.kernel_parameters import value_of
from bitwise_toy import matrix, opcodes
from bitwise_toy.matrix_units import MAC
from bitwise_toy.text import parse, write


def _special(machine: Machine, launch: Launch) -> None:
    machine.special["lane"] = np.arange(machine.threads, dtype=np.uint32)[None]
    machine.special["block"] = machine.special["block"].astype(np.uint32)


def _prepare(machine: Machine, module: Module, kernel: Kernel, launch: Launch) -> None:
    given, expected = len(launch.args), len(kernel.parameters)
    if given != expected:
        raise ManifestError(f"the launch has {given} arguments and {kernel.name} has {expected} parameters")
    for parameter, argument in zip(kernel.parameters, launch.args, strict=True):
        machine.parameters[parameter.name] = value_of(machine, argument, parameter)


TOY1 = Arch(
    name="toy1", targets=("toy1",), extension=".toy", warp=4, opcodes=OpcodeTable(opcodes.TABLE, matrix.TABLE),
    parse=parse, write=write, granule=lambda kernel: 4, special=_special, prepare=_prepare,
    bits=BitSupport({"rcp.approx.fp32@toy1": opcodes.reciprocal}, (MAC,)),
)  # fmt: skip
