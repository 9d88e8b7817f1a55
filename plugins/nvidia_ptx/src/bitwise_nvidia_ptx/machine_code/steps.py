"""The instructions of a SASS function, executed on terms.

An instruction is an uninterpreted function of its text without the names of registers and of the values that it reads,
except for the few that `dataflow` lists.  Only the opcodes in the tables of this module are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from bitwise_nvidia_ptx.machine_code.blocks import CONTROL, LABEL, calls_import
from bitwise_nvidia_ptx.machine_code.registers import MachineFunction, MachineInstruction
from bitwise_nvidia_ptx.machine_code.stack import STACK
from bitwise_nvidia_ptx.machine_code.terms import SIGN, NotUnderstood, Term, Terms

Place: TypeAlias = tuple[int, str]
"""A function (0 or 1) and the name of a register."""
_Factor: TypeAlias = tuple[object, object, object]
"""Whether the magnitude of an operand is taken, its value, and the parts of it that count."""
_Addend: TypeAlias = tuple[bool, object, object, object]
"""Whether an operand is negated, and its `_Factor`."""

_ARITHMETIC = frozenset({
    "BMSK", "BREV", "DADD", "DFMA", "DMUL", "DSETP", "F2F", "F2FP", "F2I", "FADD", "FCHK", "FFMA", "FLO", "FMNMX",
    "FMUL", "FRND", "FSEL", "FSET", "FSETP", "FSWZADD", "HADD2", "HFMA2", "HMNMX2", "HMUL2", "HSET2", "HSETP2",
    "I2F", "I2FP", "I2I", "I2IP", "IABS", "IADD3", "IDP", "IMAD", "IMNMX", "ISETP", "LEA", "LOP3", "MOV", "MUFU",
    "P2R", "PLOP3", "POPC", "PRMT", "R2P", "SEL", "SGXT", "SHF", "UBMSK", "UBREV", "UFLO", "UIADD3", "UIMAD",
    "UISETP", "ULEA", "ULOP3", "UMOV", "UPLOP3", "UPOPC", "UPRMT", "USEL", "USGXT", "USHF", "VABSDIFF", "VABSDIFF4",
    "VIADD", "VIADDMNMX", "VIMNMX", "CS2R", "S2R", "S2UR", "R2UR", "LDC", "ULDC", "HMMA", "IMMA", "DMMA",
    "FADD2", "FFMA2", "FMNMX3", "FMUL2", "LDCU", "VHMNMX", "IADD", "QMMA", "UFADD", "UFFMA", "UFMUL", "UFSETP", "UI2FP",
    "UP2UR", "UVIMNMX", "VIMNMX3",
})  # fmt: skip
"""Opcodes whose results depend on the registers, the constants and the thread only."""

_LOADS = frozenset({"LD", "LDG", "LDL", "LDS", "LDSM"})
_EXCHANGES = frozenset({"BREAK", "CREDUX", "ELECT", "MATCH", "MOVM", "REDUX", "SHFL", "VOTE", "VOTEU"})
"""Opcodes whose results depend on other lanes, or that change which lanes wait for each other."""

_ORDERED = frozenset({
    "ATOM", "ATOMG", "ATOMS", "BAR", "BPT", "CCTL", "CCTLL", "DEPBAR", "ERRBAR", "FENCE", "HGMMA", "IGMMA", "LDGDEPBAR",
    "LDGSTS", "MEMBAR", "RED", "REDG", "ST", "STG", "STL", "STS", "STSM", "SYNCS", "UTMALDG", "UTMASTG", "UTMACCTL",
    "UTMACMDFLUSH", "UTMAPF", "UBLKCP", "UBLKPF", "WARPGROUP", "WARPGROUPSET", "WARPSYNC", "ACQBULK", "PREEXIT",
    "UCGABAR_ARV", "UCGABAR_WAIT", "LDGMC", "CGAERRBAR", "QGMMA", "BGMMA", "NANOSLEEP", "YIELD",
    "LDTM", "STTM", "USETMAXREG", "UTCATOMSWS", "UTCBAR", "UTCCP", "UTCHMMA", "UTCIMMA", "UTCOMMA", "UTCQMMA",
    "UTCSHIFT",
    "UVIRTCOUNT",
})  # fmt: skip
"""Opcodes that write memory or order accesses to it, and all that access tensor memory."""

_IGNORED = frozenset({"NOP"})
_SPECIAL_REGISTERS = frozenset({
    "SR_TID.X", "SR_TID.Y", "SR_TID.Z", "SR_CTAID.X", "SR_CTAID.Y", "SR_CTAID.Z", "SR_LANEID", "SR_CgaCtaId",
    "SR_CgaSize", "SR_NCTAID.X", "SR_NTID.X", "SRZ", "SR_EQMASK", "SR_LTMASK", "SR_LEMASK", "SR_GTMASK", "SR_GEMASK",
})  # fmt: skip
"""Special registers that do not change while a thread runs."""

_REGISTER = re.compile(r"(?<![\w.$])(UR|R|UP|P)(\d+)(?![\w$])")
_SIMPLE = re.compile(
    r"([-!~]?)(\|?)(UR\d+|R\d+|UP\d+|P\d+|RZ|URZ|PT|UPT|c\[0x[0-9a-f]+\]\[0x[0-9a-f]+\])(\|?)((?:\.\w+)*)"
)
_BANK = re.compile(r"c\[0x([0-9a-f]+)\]\[0x([0-9a-f]+)\]$")
_INDEXED_BANK = re.compile(r"c\[0x([0-9a-f]+)\]\[(U?R(?:\d+|Z))(?:\+0x([0-9a-f]+))?\]$")

_BANK_SIZE = 1 << 16
_IMPORTS_BANK = 4
"""The constant bank that holds the addresses of functions outside of the object file."""
_INTEGER = re.compile(r"(-?)0x([0-9a-f]+)$")
_FLOAT = re.compile(r"[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|INF|[QS]NAN)$")

_SINGLE = frozenset({"FADD", "FMUL", "FFMA", "FSETP", "FSEL", "FMNMX"})
"""Opcodes whose literals are fp32 numbers."""

_NARROW = frozenset({
    "FADD", "FCHK", "FFMA", "FMNMX", "FMUL", "FSEL", "FSET", "FSETP", "F2FP", "HADD2", "HFMA2", "HMNMX2", "HMUL2",
    "HSETP2", "I2FP", "IABS", "IADD3", "IMAD", "ISETP", "LDS", "LEA", "LOP3", "MOV", "MUFU", "PLOP3", "POPC", "PRMT",
    "SEL", "SGXT", "SHF", "SHFL", "STS", "UIADD3", "UIMAD", "UISETP", "ULEA", "ULOP3", "UMOV", "UPRMT", "USEL", "USGXT",
    "USHF", "VIADD", "VIMNMX",
})  # fmt: skip
_WIDE = frozenset({"128", "64", "F64", "HI", "S64", "U64", "WIDE"})
"""Each operand of `_NARROW` without a modifier of `_WIDE` is one register."""
_HALVES = frozenset({"LEA", "SHF", "ULEA", "USHF"})
"""Opcodes that name both halves of a long operand, of which HI takes the upper one: IMAD.HI names the first half."""

_SUMS = frozenset({"FADD", "HADD2"})
_PRODUCTS = frozenset({"FMUL", "HMUL2"})
_FUSED = frozenset({"FFMA", "HFMA2"})
_INTEGER_SUMS = {"IADD3": 4, "UIADD3": 4, "VIADD": 3, "IMAD.IADD": 4}
"""The forms of 32-bit integer sums, and how many operands each has if it reads and writes no carry."""
_SHIFTS = frozenset({"IMAD.SHL.U32", "SHF.L.U32", "USHF.L.U32"})
_SCALED_SUMS = frozenset({"IMAD", "UIMAD", "LEA", "ULEA"})
"""The forms that add a 32-bit number to a multiple of another, if they have three operands and read no carry."""
_CARRY_SUMS = frozenset({"IADD3.X", "UIADD3.X", "IMAD.X"})
"""The forms that add 32-bit numbers and carries."""

_ONE = 0x3F800000


class Steps:
    """Executes the instructions of one block of one function on terms."""

    def __init__(
        self,
        terms: Terms,
        state: dict[Place, Term],
        side: int,
        block: int,
        function: MachineFunction,
        starts: Mapping[int, int],
        stack: Mapping[int, tuple[str, ...]],
    ) -> None:
        self.terms, self.state, self.side, self.block, self.stack = terms, state, side, block, stack
        self.labels, self.imports, self.starts = function.labels, function.imports, starts
        self.memory: list[Term] = []
        self.exchanges: list[Term] = []
        self.squares: list[tuple[MachineInstruction, Term]] = []

    def execute(self, line: MachineInstruction) -> None:
        """Execute one instruction.  Raises NotUnderstood."""
        opcode = line.opcode
        if opcode in _IGNORED:
            return
        if calls_import(line):
            self.memory.append(self._import(line))
            return
        if line.address in self.stack:
            self._move_to_or_from_stack(line)
            return
        if opcode == "LEPC":
            self._write(line, self.terms.make("address", self.side, line.address))
            return
        before = self._assume_guard(line)
        term, copies = self._term(line), {} if line.moved else self._copies(line) or {}
        self.state.update(before)
        if opcode in _ARITHMETIC:
            if opcode in ("S2R", "S2UR", "CS2R") and line.operands[-1] not in _SPECIAL_REGISTERS:
                self.memory.append(term)
                term = self.terms.make("at", self.block, term, len(self.memory))
        elif opcode in _LOADS:
            if "STRONG" in line.mnemonic or "MMIO" in line.mnemonic:
                self.memory.append(term)
            term = self.terms.make("at", self.block, term, len(self.memory))
        elif opcode in _EXCHANGES:
            self.exchanges.append(term)
            term = self.terms.make("exchange", self.block, term, len(self.exchanges))
        elif opcode in _ORDERED:
            self.memory.append(term)
            self.exchanges.append(term)
            term = self.terms.make("ordered", self.block, term, len(self.memory))
        elif opcode in CONTROL:
            self.memory.append(term)
            self.exchanges.append(term)
        else:
            raise NotUnderstood(line.text)
        self._write(line, term, copies)

    def _move_to_or_from_stack(self, line: MachineInstruction) -> None:
        """Copy registers to words of the stack, or words of the stack to registers."""
        words, stores = self.stack[line.address], line.opcode == "STL"
        register = line.operands[1 if stores else 0]
        names = [register if register == "RZ" else _later(register, i) for i in range(len(words))]
        if set(names) - {"RZ"} != (line.reads - {STACK, *_names(line.guard or "")} if stores else line.writes):
            raise NotUnderstood(line.text)
        guard = self._guard(line)
        before = self._assume_guard(line)
        values = [self._value(each) for each in names] if stores else [self.state[self.side, word] for word in words]
        self.state.update(before)
        for name, word, value in zip(names, words, values, strict=True):
            place = (self.side, word if stores else name)
            self.state[place] = value if guard is None else self.terms.make("if", guard, value, self.state[place])

    def _assume_guard(self, line: MachineInstruction) -> dict[Place, Term]:
        """Let what a guarded instruction reads have its values where the guard holds.

        Return what they had before.
        """
        if line.guard is None:
            return {}
        negated, value = line.guard.startswith("!"), self._value(line.guard.removeprefix("!"))
        holds, fails = (self.terms.make(sign, "", value, "", "") for sign in (("!", "") if negated else ("", "!")))
        before = {}
        for name in line.reads.difference(_names(line.guard)).union(self.stack.get(line.address, ())):
            place = (self.side, name)
            term = self.state[place]
            while (parts := self.terms.parts(term))[0] == "if" and parts[1] in (holds, fails):
                chosen = parts[2 if parts[1] == holds else 3]
                assert isinstance(chosen, Term)
                term = chosen
            if term != self.state[place]:
                before[place], self.state[place] = self.state[place], term
        return before

    def _write(self, line: MachineInstruction, term: Term, copies: Mapping[str, Term] | None = None) -> None:
        guard = self._guard(line)
        for name in sorted(line.writes):
            new = (copies or {}).get(name)
            if new is None:
                new = self.terms.make("result", term, *_slot(line, name))
            place = (self.side, name)
            self.state[place] = new if guard is None else self.terms.make("if", guard, new, self.state[place])

    def _import(self, line: MachineInstruction) -> Term:
        """Return the term of a call of a function outside of the object file."""
        low = line.operands[0]
        if line.reads.issuperset((low, _later(low, 1))) and line.guard is None:
            for offset in self.imports:
                words = [self.terms.bank(_IMPORTS_BANK, offset + at) for at in (0, 4)]
                if words == [self.state[self.side, low], self.state[self.side, _later(low, 1)]]:
                    return self.terms.make("import", offset)
        raise NotUnderstood(line.text)

    def _guard(self, line: MachineInstruction) -> Term | None:
        if line.guard is None:
            return None
        if not line.reads.issuperset(_names(line.guard)):
            raise NotUnderstood(line.text)
        return self._simple(line.guard, line)

    def _term(self, line: MachineInstruction) -> Term:
        """Return the term of an instruction: its text without registers, and what it reads."""
        guard = self._guard(line) if line.opcode not in _ARITHMETIC else None
        arithmetic = None if line.moved else self._signed(line) or self._comparison(line) or self._integers(line)
        if arithmetic is not None:
            return self.terms.make(*arithmetic)
        covered: set[str] = set()
        operands = [self._operand(line, place, text, covered) for place, text in enumerate(line.operands)]
        packed = line.opcode not in _SINGLE and any(map(_FLOAT.match, line.operands))
        literal = line.bits >> 32 & 0xFFFFFFFF if packed else 0
        guarding = set(_names(line.guard or ""))
        rest = sorted(line.reads - covered - guarding)
        implicit = [self.terms.make("implicit", name, self.state[self.side, name]) for name in rest]
        return self.terms.make(line.mnemonic, guard, literal, *operands, "implicit", *implicit, *line.moved)

    def _operand(self, line: MachineInstruction, place: int, text: str, covered: set[str]) -> Term:
        if (label := LABEL.match(text)) is not None and line.opcode in CONTROL:
            return self.terms.make("block", self.starts[self._address(label[1])])
        if _is_result(line, place):
            return self.terms.make("result")
        if not line.reads.issuperset(_names(text)):
            raise NotUnderstood(line.text)
        named = _names(line.operation)
        single, whole = _is_narrow(line), True
        found: list[Term] = []
        for name in _names(text):
            run, stop = [name], _later(name, 1)
            while not single and stop in line.reads and stop not in named:
                run.append(stop)
                stop = _later(stop, 1)
            covered.update(run)
            found += [self.state[self.side, each] for each in run]
            # A run ends before a register that is another operand too, though it may be a part of this one.
            cut = not single and stop in line.reads
            found.append(self.terms.make("end", named.index(stop) if cut else -1))
            whole = len(run) == 1 and not cut
        if whole and _SIMPLE.fullmatch(text) is not None:
            return self._simple(text, line)
        if (number := _INTEGER.match(text)) is not None and line.opcode in _ARITHMETIC:
            return self.terms.make("", "", self._integer(number), "", "")
        if line.opcode in _SINGLE and _FLOAT.match(text):
            return self.terms.make("", "", self.terms.constant(line.bits >> 32), "", "")
        return self.terms.make(_REGISTER.sub("#", text), *found)

    def _address(self, label: str) -> int:
        found = self.labels.get(label)
        if found is None or found not in self.starts:
            raise NotUnderstood(label)
        return found

    def _integer(self, number: re.Match[str]) -> Term:
        return self.terms.constant(-int(number[2], 16) if number[1] else int(number[2], 16))

    def _simple(self, text: str, line: MachineInstruction) -> Term:
        """Return the term of an operand that is one register or one word of a constant bank."""
        match = _SIMPLE.fullmatch(text)
        if match is None:
            raise NotUnderstood(line.text)
        sign, absolute, name, _, suffix = match.groups()
        return self.terms.make(sign, absolute, self._value(name), "", suffix)

    def _value(self, name: str) -> Term:
        if name in ("RZ", "URZ"):
            return self.terms.constant(0)
        if name in ("PT", "UPT"):
            return self.terms.make("true")
        if (bank := _BANK.match(name)) is not None:
            return self.terms.bank(int(bank[1], 16), int(bank[2], 16))
        return self.state[self.side, name]

    def _copies(self, line: MachineInstruction) -> dict[str, Term] | None:
        """Return the terms of the registers that an instruction sets to constants or to the values of others."""
        operands = line.operands
        if not operands or len(names := _names(operands[0])) != 1 or operands[0] != names[0]:
            return None
        name, found = names[0], None
        if line.mnemonic in ("MOV", "UMOV") and len(operands) == 2:
            found = self._copied(operands[1])
        elif line.mnemonic in ("IMAD.MOV.U32", "IMAD.U32") and len(operands) == 4 and operands[1:3] == ("RZ", "RZ"):
            found = self._copied(operands[3])
        elif line.mnemonic in ("LDC", "ULDC", "LDC.64", "ULDC.64"):
            if (place := self._place_in_bank(line, operands[1])) is None:
                return None
            count = 2 if line.mnemonic.endswith("64") else 1
            return {_later(name, i): self.terms.bank(place[0], place[1] + 4 * i) for i in range(count)}
        elif line.mnemonic in ("CS2R", "CS2R.32") and operands[1] == "SRZ":
            return {_later(name, i): self.terms.constant(0) for i in range(1 + (line.mnemonic == "CS2R"))}
        elif line.mnemonic == "FMUL" and len(operands) == 3:
            found = self._unchanged_factor(line)
        elif line.opcode == "HFMA2" and operands[1:3] == ("-RZ", "RZ") and len(operands) == 5:
            found = _packed_literal(line)
            return None if found is None else {name: self.terms.constant(found)}
        return None if found is None else {name: found}

    def _unchanged_factor(self, line: MachineInstruction) -> Term | None:
        """Return the factor of a product by 1 that has the same bits as the product, None if there is none."""
        addends = [self._addend(line, each) for each in line.operands[1:]]
        one = (False, "", self.terms.constant(_ONE), "")
        if one not in addends:
            return None
        negative, absolute, value, suffix = addends[1 - addends.index(one)]
        if negative or absolute or suffix or not isinstance(value, Term):
            return None
        return value if self.terms.has_canonical_nan(value) else None

    def _place_in_bank(self, line: MachineInstruction, text: str) -> tuple[int, int] | None:
        """Return the constant bank and the offset in bytes that an operand names, None if they are not known."""
        if (bank := _BANK.match(text)) is not None:
            return int(bank[1], 16), int(bank[2], 16)
        if (indexed := _INDEXED_BANK.match(text)) is None or not line.reads.issuperset(_names(text)):
            return None
        offset = self.terms.constants.get(self._value(indexed[2]), _BANK_SIZE) + int(indexed[3] or "0", 16)
        return (int(indexed[1], 16), offset) if offset < _BANK_SIZE else None

    def _copied(self, text: str) -> Term | None:
        if (number := _INTEGER.match(text)) is not None:
            return self._integer(number)
        if re.fullmatch(r"U?R(?:\d+|Z)|c\[0x[0-9a-f]+\]\[0x[0-9a-f]+\]", text):
            return self._value(text)
        return None

    def _signed(self, line: MachineInstruction) -> tuple[object, ...] | None:
        """Return what a sum or a product computes, with the order of its operands and the place of signs made one.

        A sum with a product by 1 or -1, which is exact, is that of the other factor.
        """
        opcode, operands = line.opcode, line.operands
        if opcode in _SUMS and len(operands) == 3:
            return self._sum(line.mnemonic, *(self._addend(line, each) for each in operands[1:]))
        if opcode in _PRODUCTS and len(operands) == 3:
            return (line.mnemonic, *self._product(line))
        if opcode in _FUSED and len(operands) == 4:
            product, addend = self._product(line), self._addend(line, operands[3])
            factors = product[2:]
            one = ("", self.terms.constant(_ONE), "")
            if opcode == "FFMA" and one in factors:
                other = factors[1 - factors.index(one)]
                return self._sum(line.mnemonic.replace("FFMA", "FADD"), (product[1], *other), addend)
            return (line.mnemonic, *product, addend)
        return None

    def _comparison(self, line: MachineInstruction) -> tuple[object, ...] | None:
        """Return what a comparison of fp32 numbers computes if it is a test whether a difference is positive.

        The sign of a rounded sum is that of the exact one, and an infinity is not greater than itself.  So a sum is
        positive if, and only if, one addend is greater than the other one negated.
        """
        operands = line.operands
        if line.mnemonic in ("FSETP.GT.AND", "FSETP.LT.AND"):
            plain, compared = len(operands) == 5 and operands[1] == operands[4] == "PT", operands[2:4]
        elif line.mnemonic in ("FSET.BF.GT.AND", "FSET.BF.LT.AND"):
            plain, compared = len(operands) == 4 and operands[3] == "PT", operands[1:3]
        else:
            return None
        if not plain:
            return None
        greater, less = (self._addend(line, each) for each in compared)
        if ".LT." in line.mnemonic:
            greater, less = less, greater
        zero = (self.terms.constant(0), "")
        addends: list[_Addend] | None = None
        if less[1:] == ("", *zero):
            addends = self._addends(greater)
        elif greater[1:] == ("", *zero) and (found := self._addends(less)) is not None:
            addends = [_negated(each) for each in found]
        if addends is None:
            addends = [greater, _negated(less)]
        signless = [(False, *each[1:]) if each[1:] == ("", *zero) else each for each in addends]
        return (line.mnemonic.replace(".LT.", ".GT."), "positive", *sorted(signless, key=repr))

    def _addends(self, value: _Addend) -> list[_Addend] | None:
        """Return the addends of a value that is an fp32 sum, up to its sign, None for any other value."""
        negative, absolute, term, suffix = value
        head, *parts = self.terms.parts(term) if isinstance(term, Term) else ("",)
        if absolute or suffix or head != "result" or parts[1:] != [0, 0] or not isinstance(parts[0], Term):
            return None
        made_by, *addends = self.terms.parts(parts[0])
        if made_by != "FADD" or len(addends) != 3:
            return None
        found = [each for each in addends[1:] if isinstance(each, tuple)]
        return [_negated(each) for each in found] if negative else found

    @staticmethod
    def _sum(mnemonic: str, *addends: _Addend) -> tuple[object, ...]:
        return (mnemonic, "sum", *sorted(addends, key=repr))

    def _product(self, line: MachineInstruction) -> tuple[str, bool, _Factor, _Factor]:
        first, second = (self._addend(line, each) for each in line.operands[1:3])
        negative = first[0] ^ second[0]
        if first[2] == second[2] and isinstance(first[2], Term):
            self.squares.append((line, first[2]))
        left, right = sorted([first[1:], second[1:]], key=repr)
        return "product", negative, left, right

    def _integers(self, line: MachineInstruction) -> tuple[object, ...] | None:
        """Return what an integer sum, a shift to the left by a constant, or the sum of both computes."""
        operands, mnemonic = line.operands[1:], line.mnemonic
        if not line.reads.issuperset(each for text in operands for each in _names(text)):
            return None
        found = [self._signed_integer(text) for text in operands]
        if len(line.operands) == _INTEGER_SUMS.get(mnemonic):
            if mnemonic == "IMAD.IADD" and (operands[1] != "0x1" or found.pop(1) is None):
                return None
            constant, values = 0, []
            for each in found:
                if each is None:
                    return None
                negative, value = each
                if (number := self.terms.constants.get(value)) is None:
                    values.append(each)
                else:
                    constant += -number if negative else number
            return ("integer sum", constant & 0xFFFFFFFF, *sorted(values))
        if mnemonic in _SHIFTS and len(operands) == 3 and operands[2] in ("RZ", "URZ"):
            literal = _INTEGER.match(operands[1])
            if literal is None or literal[1] or found[0] is None or found[0][0]:
                return None
            amount = int(literal[2], 16)
            factor = amount if mnemonic == "IMAD.SHL.U32" else 1 << amount if amount < 32 else 0
            return ("integer shift", found[0][1], factor) if factor else None
        if mnemonic in _SCALED_SUMS and len(operands) == 3:
            return self._scaled_sum(line, found)
        if mnemonic in _CARRY_SUMS:
            return self._carry_sum(line)
        return None

    def _carry_sum(self, line: MachineInstruction) -> tuple[object, ...] | None:
        """Return what the sum of registers and one carry computes."""
        operands = line.operands[1:]
        if line.opcode == "IMAD" and len(operands) == 4:
            if operands[1] not in ("0x1", "RZ"):
                return None
            operands = (*(operands[:1] if operands[1] == "0x1" else ()), *operands[2:])
        elif line.opcode != "IMAD" and len(operands) == 5 and operands[4] in ("!PT", "!UPT"):
            operands = operands[:4]
        else:
            return None
        addends = [self._signed_integer(text) for text in operands[:-1] if text not in ("RZ", "URZ")]
        if any(each is None or each[0] for each in addends) or not re.fullmatch(r"U?P\d+", operands[-1]):
            return None
        values = sorted(each[1] for each in addends if each is not None)
        return ("carry sum", self._value(operands[-1]), *values)

    def _scaled_sum(
        self, line: MachineInstruction, operands: Sequence[tuple[bool, Term] | None]
    ) -> tuple[object, ...] | None:
        """Return what the sum of a multiple and another operand computes: that of a shift and a sum."""
        if line.opcode in ("LEA", "ULEA"):
            scaled, addend, amount = operands
            shift = None if amount is None or amount[0] else self.terms.constants.get(amount[1])
            factor = 1 << shift if shift is not None and 0 < shift < 32 else None
        else:
            scaled, other, addend = operands
            if scaled is not None and not scaled[0] and scaled[1] in self.terms.constants:
                scaled, other = other, scaled
            factor = None if other is None or other[0] else self.terms.constants.get(other[1])
            factor = factor if factor is not None and factor > 1 else None
        if factor is None or addend is None or scaled is None or scaled[0] or scaled[1] in self.terms.constants:
            return None
        multiple = self.terms.make("result", self.terms.make("integer shift", scaled[1], factor), 0, 0)
        negative, value = addend
        if (number := self.terms.constants.get(value)) is None:
            return ("integer sum", 0, *sorted([(False, multiple), addend]))
        if number == 0:
            return ("integer shift", scaled[1], factor)
        return ("integer sum", (-number if negative else number) & 0xFFFFFFFF, (False, multiple))

    def _signed_integer(self, text: str) -> tuple[bool, Term] | None:
        """Return whether an operand of an integer sum is negated, and its value, None for another form of operand."""
        if (number := _INTEGER.match(text)) is not None:
            return False, self._integer(number)
        match = _SIMPLE.fullmatch(text)
        if match is None or match[1] not in ("", "-") or match[2] or match[5]:
            return None
        return match[1] == "-", self._value(match[3])

    def _addend(self, line: MachineInstruction, text: str) -> _Addend:
        if _FLOAT.match(text):
            bits = line.bits >> 32 & 0xFFFFFFFF
            if line.opcode not in _SINGLE:
                return False, "literal", bits, text
            return self._magnitude(bits)
        match = _SIMPLE.fullmatch(text)
        if match is None or not set(_names(text)) <= line.reads or match[1] not in ("", "-"):
            raise NotUnderstood(line.text)
        sign, absolute, name, _, suffix = match.groups()
        value = self._value(name)
        if line.opcode in _SINGLE and value in self.terms.constants and not suffix:
            bits = self.terms.constants[value]
            if (bits & 0x7FFFFFFF) <= 0x7F800000:
                bits = bits & 0x7FFFFFFF if absolute else bits
                return self._magnitude(bits ^ SIGN if sign else bits)
        return sign == "-", absolute, value, suffix

    def _magnitude(self, bits: int) -> _Addend:
        if (bits & 0x7FFFFFFF) > 0x7F800000:
            return False, "", self.terms.constant(bits), ""
        return bits >= SIGN, "", self.terms.constant(bits & 0x7FFFFFFF), ""


def _negated(addend: _Addend) -> _Addend:
    return (not addend[0], *addend[1:])


def _names(text: str) -> list[str]:
    return [file + number for file, number in _REGISTER.findall(text)]


def _later(name: str, count: int) -> str:
    """Return the name of the register `count` after another one."""
    match = _REGISTER.fullmatch(name)
    assert match is not None
    return f"{match[1]}{int(match[2]) + count}"


def _is_narrow(line: MachineInstruction) -> bool:
    wide = _WIDE - {"HI"} if line.opcode in _HALVES else _WIDE
    return line.opcode in _NARROW and wide.isdisjoint(line.mnemonic.split("."))


def _is_result(line: MachineInstruction, place: int) -> bool:
    """Return whether the operand at a place is written: a register that is written and not named before."""
    text = line.operands[place]
    earlier = {name for each in line.operands[:place] for name in _names(each)}
    names = _names(text)
    return len(names) == 1 and text == names[0] and names[0] in line.writes and names[0] not in earlier


def _slot(line: MachineInstruction, name: str) -> tuple[object, ...]:
    """Return which result of an instruction a register is: the place of its operand, and its distance from that."""
    results = {text: place for place, text in enumerate(line.operands) if _is_result(line, place)}
    for first, place in results.items():
        each, distance = first, 0
        while each in line.writes and (each == first or each not in results):
            if each == name:
                return place, distance
            each, distance = _later(each, 1), distance + 1
    return ("implicit", name)


def _packed_literal(line: MachineInstruction) -> int | None:
    """Return the bits of the addend of a packed fma of zeros, None if that may be another NaN or a sum."""
    bits = line.bits >> 32 & 0xFFFFFFFF
    largest = 0x7F80 if "BF16" in line.mnemonic else 0x7C00
    flushed = "FTZ" in line.mnemonic or "SAT" in line.mnemonic or "F32" in line.mnemonic
    if flushed or "RELU" in line.mnemonic or any((half & 0x7FFF) > largest for half in (bits & 0xFFFF, bits >> 16)):
        return None
    return bits
