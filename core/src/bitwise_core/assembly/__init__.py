"""Parsed assembly of any vendor: kernels, instructions, operands and source lines."""

from __future__ import annotations

from bitwise_core.assembly.module import AssemblyError, Instruction, Kernel, Module, SourceLine

__all__ = ["AssemblyError", "Instruction", "Kernel", "Module", "SourceLine"]
