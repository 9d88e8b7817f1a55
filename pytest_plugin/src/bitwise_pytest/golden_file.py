"""The file of golden kernels: assembly and launch by name."""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bitwise_core import BitwiseError, Launch, Source
from bitwise_core.input_files import read_text
from bitwise_core.json_text import parse_json
from bitwise_core.output_files import write_text
from bitwise_core.validated_records import first_fault

SCHEMA = 1
"""The version of the file's form."""

MAXIMUM_TEXT = 32 << 20
"""The largest text of a kernel, uncompressed, in bytes."""

_KERNEL = {"text", "launch", "entry"}


class GoldenFileError(BitwiseError, ValueError):
    """A file of golden kernels cannot be read: the message names the file and says what to do."""


@dataclass(frozen=True, slots=True)
class GoldenKernels:
    """Golden kernels by name."""

    kernels: Mapping[str, Source]

    @classmethod
    def read(cls, path: Path) -> GoldenKernels:
        """Read a file; one that does not exist has no kernels.  Raises GoldenFileError."""
        if not path.exists():
            return cls({})
        text = read_text(path, GoldenFileError)
        try:
            content = parse_json(text)
            if not isinstance(content, dict) or content.get("schema") != SCHEMA:
                raise ValueError(f"it is no file of golden kernels of schema {SCHEMA}")
            entries = content.get("kernels")
            if set(content) != {"schema", "kernels"} or not isinstance(entries, dict):
                raise ValueError("it has other keys than `schema` and `kernels`")
            return cls({name: _kernel(name, entry) for name, entry in entries.items()})
        except ValueError as error:
            raise GoldenFileError(f"{path}: {error}; write it again with --bitwise-update") from None

    def write(self, path: Path) -> None:
        """Write a file as a whole.  Raises GoldenFileError."""
        entries = {name: record_of(self.kernels[name]) for name in sorted(self.kernels)}
        try:
            write_text(path, json.dumps({"schema": SCHEMA, "kernels": entries}, indent=1) + "\n")
        except OSError as error:
            raise GoldenFileError(f"{path}: cannot be written ({error.strerror})") from None


def record_of(source: Source) -> dict[str, Any]:
    """Return a kernel as an object of the file."""
    compressed = lzma.compress(source.text.encode(), preset=6)
    launch = None if source.launch is None else source.launch.model_dump(mode="json", exclude_defaults=True)
    return {"text": base64.b64encode(compressed).decode("ascii"), "launch": launch, "entry": source.entry}


def _kernel(name: str, entry: Any) -> Source:
    """Return the kernel of an entry.  Raises ValueError."""
    if not isinstance(entry, dict) or set(entry) != _KERNEL or not isinstance(entry["text"], str):
        raise ValueError(f"the kernel {name!r} is no object with {', '.join(sorted(_KERNEL))}")
    try:
        reader = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=1 << 28)
        content = reader.decompress(base64.b64decode(entry["text"], validate=True), MAXIMUM_TEXT + 1)
        if len(content) > MAXIMUM_TEXT or not reader.eof:
            raise ValueError(f"the text of the kernel {name!r} is incomplete or larger than {MAXIMUM_TEXT >> 20} MiB")
        text = content.decode()
        launch = None if entry["launch"] is None else Launch.model_validate(entry["launch"])
    except ValidationError as error:
        raise ValueError(f"the launch of the kernel {name!r}: {first_fault(error)}") from None
    except (lzma.LZMAError, EOFError) as error:
        raise ValueError(f"the text of the kernel {name!r} is damaged ({error})") from None
    known = entry["entry"]
    if known is not None and not isinstance(known, str):
        raise ValueError(f"the entry of the kernel {name!r} is no text")
    return Source(name, text, launch, known)
