"""Execution of programs over value domains: architectures, launches, the machine, memories, values and domains."""

from __future__ import annotations

from bitwise_core.execution.architecture import Arch, Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.bits import BitsDomain
from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.simulation import simulate

__all__ = [
    "Arch",
    "BitsDomain",
    "Context",
    "Domain",
    "Launch",
    "Machine",
    "OpcodeTable",
    "Step",
    "TermDomain",
    "UnknownInstruction",
    "Unsupported",
    "simulate",
]
