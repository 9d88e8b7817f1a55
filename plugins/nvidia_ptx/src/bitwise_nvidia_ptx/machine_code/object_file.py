"""Object files of ptxas: the sections that determine what the GPU executes, their digest, and the code of functions."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SECTIONS = (".text", ".nv.constant", ".nv.global", ".nv.shared", ".rel", ".nv.local")
_IGNORED_RELOCATIONS = ("debug", "eh_frame")
_CODE = ".text."
_BANK_4 = (".rel.nv.constant4", ".rela.nv.constant4")
_ADDRESS = 2
"""The type of a relocation by a 64-bit address."""
_REGISTER_COUNT = 0x2F
_MOST_REGISTERS = 254


class NotAnObjectFile(ValueError):
    """The bytes are not a 64-bit ELF file."""


@dataclass(frozen=True)
class Section:
    """A section that determines what the GPU executes.

    `content` is its bytes, or "" for relocations and for memory without initial contents.  `size` is in bytes.
    `relocations` holds, for each offset, the type, the symbol and the addend, if the section is a table of them;
    `imports` are the offsets of those that are the 64-bit address of a function which the file only declares.
    """

    name: str
    size: int
    content: bytes
    relocations: tuple[tuple[int, str], ...] = ()
    imports: frozenset[int] = frozenset()

    @property
    def identity(self) -> bytes:
        """Bytes that two sections share only if they are equal."""
        moved = b"\0".join(sorted(f"{offset},{rest}".encode() for offset, rest in self.relocations))
        return f"{self.name}\0{self.size}\0".encode() + self.content + moved


@dataclass(frozen=True)
class Function:
    """The machine code of one function, and the relocations of its instructions by the offset of the instruction.

    `imports` are the offsets in constant bank 4 of the addresses of functions that the file only declares.
    """

    code: bytes
    relocations: Mapping[int, tuple[str, ...]]
    imports: frozenset[int] = frozenset()


def code_digest(data: bytes) -> str:
    """Return the SHA-256 of everything in an object file that determines what the GPU executes.

    That is code, constant banks, initialised memory, sizes of shared memory, and the relocations of these with the
    names of their symbols.  Debug sections, notes, and tables that only describe the kernel are excluded.  Raises
    NotAnObjectFile.
    """
    digest = hashlib.sha256()
    for part in sorted(section.identity for section in significant_sections(data)):
        digest.update(part)
    return digest.hexdigest()


def split_code(data: bytes) -> tuple[list[bytes], dict[str, Function]]:
    """Return what `code_digest` covers except the code of functions, and the code of each function by its name.

    Raises NotAnObjectFile.
    """
    sections = list(significant_sections(data))
    moved: dict[str, dict[int, tuple[str, ...]]] = {}
    for section in sections:
        if _CODE in section.name and section.name.startswith(".rel"):
            found = moved.setdefault(section.name.partition(_CODE)[2], {})
            for offset, rest in section.relocations:
                found[offset & ~15] = (*found.get(offset & ~15, ()), f"{offset & 15},{rest}")
    imports = frozenset[int]().union(*(each.imports for each in sections if each.name in _BANK_4))
    names = [section.name.removeprefix(_CODE) for section in sections if section.name.startswith(_CODE)]
    contents = [section.content for section in sections if section.name.startswith(_CODE)]
    code = {
        name: Function(content, moved.get(name, {}), imports) for name, content in zip(names, contents, strict=True)
    }
    return sorted(section.identity for section in sections if _CODE not in section.name), code


def significant_sections(data: bytes) -> Iterator[Section]:
    """Yield each section that determines what the GPU executes.  Raises NotAnObjectFile."""
    if data[:5] != b"\x7fELF\x02":
        raise NotAnObjectFile("the object file is not a 64-bit ELF file; give the output of ptxas")
    try:
        yield from _sections(data)
    except (struct.error, IndexError, ValueError):
        raise NotAnObjectFile("the object file is damaged; give the output of ptxas") from None


def with_older_header(data: bytes) -> bytes | None:
    """Return an object file of CUDA 13 with the header of CUDA 12, None for another one.

    Disassemblers of CUDA 12 analyse such a file only with their own header.  The code is the same.
    """
    if data[7:9] != b"\x41\x08" or len(data) < 64:
        return None
    target = data[0x31]
    flags = struct.pack("<I", target << 16 | 0xD00 | target)
    return data[:7] + b"\x33\x07" + data[9:0x14] + b"\x80\0\0\0" + data[0x18:0x30] + flags + data[0x34:]


def with_fewer_registers(data: bytes) -> bytes | None:
    """Return an object file that states 254 registers for each function that has 255, None if none has.

    Disassemblers of CUDA 12 print no live ranges for 255.  The code is the same.
    """
    changed = bytearray(data)
    try:
        headers, names = _headers(data)
        for header in headers:
            if _string(data, headers[names], header[0]) != ".nv.info":
                continue
            at, end = header[4], header[4] + header[5]
            while at + 4 <= end:
                form, attribute, size = struct.unpack_from("<BBH", data, at)
                if (form, attribute, size) == (4, _REGISTER_COUNT, 8):
                    count = struct.unpack_from("<I", data, at + 8)[0]
                    struct.pack_into("<I", changed, at + 8, min(count, _MOST_REGISTERS))
                at += 4 + (size if form == 4 else 0)
    except (struct.error, IndexError, ValueError):
        return None
    return None if changed == data else bytes(changed)


def _headers(data: bytes) -> tuple[list[tuple[int, ...]], int]:
    """Return the section headers, and which of them is that of the names."""
    start = struct.unpack_from("<Q", data, 0x28)[0]
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    return [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)], names


def _string(data: bytes, table: tuple[int, ...], offset: int) -> str:
    begin = table[4] + offset
    return data[begin : data.index(b"\0", begin)].decode()


def _sections(data: bytes) -> Iterator[Section]:
    headers, names = _headers(data)

    def string(table: int, offset: int) -> str:
        return _string(data, headers[table], offset)

    for header in headers:
        name = string(names, header[0])
        if not name.startswith(_SECTIONS) or any(word in name for word in _IGNORED_RELOCATIONS):
            continue
        content = b"" if header[1] == 8 else data[header[4] : header[4] + header[5]]
        if header[1] not in (4, 9):
            yield Section(name, header[5], content)
            continue
        symbols = headers[header[6]]
        step = 24 if header[1] == 4 else 16
        found = []
        imports: set[int] = set()
        for at in range(0, len(content) - step + 1, step):
            offset, info = struct.unpack_from("<QQ", content, at)
            addend = struct.unpack_from("<q", content, at + 16)[0] if step == 24 else 0
            entry = struct.unpack_from("<IBBHQQ", data, symbols[4] + 24 * (info >> 32))
            section = string(names, headers[entry[3]][0]) if entry[3] < len(headers) else str(entry[3])
            symbol = string(symbols[6], entry[0]) or f"{section}+{entry[4]}"
            if entry[1] & 15 == 2 and not entry[3] and info & 0xFFFFFFFF == _ADDRESS and not addend:
                imports.add(offset)
            found.append((offset, f"{info & 0xFFFFFFFF},{symbol},{addend}"))
        yield Section(name, header[5], b"", tuple(found), frozenset(imports))
