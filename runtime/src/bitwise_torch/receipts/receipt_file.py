"""The receipt file: the environment of a run, its operators and kernels, and the claims on them.

The format is JSON.  Reading checks every field and parses every descriptor.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt, ValidationError, model_validator

from bitwise_core.descriptors import DescriptorError
from bitwise_core.errors import BitwiseError
from bitwise_core.input_files import read_text
from bitwise_core.json_text import parse_json
from bitwise_core.output_files import write_text
from bitwise_core.validated_records import ValidatedRecord, sentences
from bitwise_torch.locks import Entry, LibraryOperator, Lock, LockError, PinnedAttention
from bitwise_torch.locks.attention_entry import MAXIMUM_FORMS
from bitwise_torch.locks.lock_file import version_of

FORMAT, VERSION = "bitwise-receipt", 1

MAXIMUM_OPERATORS = 1 << 16

Text = Annotated[str, Field(max_length=1 << 16)]
Name = Annotated[str, Field(min_length=1, max_length=512)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Supported = Literal["measured", "published", "not asked"]
Kind = Literal["proved", "measured", "assumed"]


class ReceiptError(BitwiseError, ValueError):
    """A receipt that cannot be used; the message says what to do."""


class _Strict(ValidatedRecord):
    fault = ReceiptError


class Package(_Strict):
    """An installed distribution.  `code` is the SHA-256 of a plugin's code, which generates its kernels."""

    version: Name
    code: Digest | None = None


class Environment(_Strict):
    """Where a receipt was written: distributions, Python, and what the library's plugin says of library and device.

    `variables` are environment variables that select a library's kernels; those that are not set are absent.
    """

    packages: Mapping[Name, Package]
    python: Name
    machine: Name
    device: Mapping[Name, Text] = Field(default_factory=dict)
    variables: Mapping[Name, Text] = Field(default_factory=dict)


class Kernel(_Strict):
    """A file whose content belongs to the run, such as a kernel's assembly or the library itself."""

    name: Name
    digest: Digest
    bytes: Annotated[StrictInt, Field(ge=0)]


class Operator(Entry):
    """An entry of the lock, what its descriptor rests on where the library's plugin was asked, and the names of the
    claims on it.
    """

    support: Supported = "not asked"
    claims: tuple[Name, ...] = ()

    @property
    def entry(self) -> Entry:
        """The entry of the lock."""
        return Entry(**{name: getattr(self, name) for name in Entry.model_fields})


class Claim(_Strict):
    """One statement.  `kind` says whether it follows from the receipt by `method` (proved), rests on measurements that
    `method` names (measured), or on nothing in the receipt (assumed).  `scope` says what it is restricted to.
    `discharge` is how a reader can check or replace it, null where nothing can.
    """

    name: Name
    kind: Kind
    statement: Text
    scope: Text
    method: Text
    discharge: Text | None


class Receipt(_Strict):
    """The contract of one run, from a lock file and the environment.

    `recorded` is the lock's provenance, `lock` the SHA-256 of the lock's text, `library` the calls that the lock leaves
    to PyTorch, `attention` the orders of attention where the lock pins it.
    """

    format: Literal["bitwise-receipt"] = "bitwise-receipt"
    version: Literal[1] = 1
    recorded: Mapping[Name, Text]
    lock: Digest
    environment: Environment
    operators: Annotated[tuple[Operator, ...], Field(max_length=MAXIMUM_OPERATORS)]
    library: Annotated[tuple[LibraryOperator, ...], Field(max_length=MAXIMUM_OPERATORS)] = ()
    attention: Annotated[tuple[PinnedAttention, ...], Field(max_length=MAXIMUM_FORMS)] | None = None
    kernels: Annotated[tuple[Kernel, ...], Field(max_length=MAXIMUM_OPERATORS)] = ()
    claims: Annotated[tuple[Claim, ...], Field(max_length=1 << 12)]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of the lock."""
        return tuple(each.entry for each in self.operators)

    @property
    def content(self) -> Lock:
        """The lock whose products the receipt describes."""
        return Lock(
            version=version_of(self.attention), provenance=self.recorded, entries=self.entries, operators=self.library,
            attention=self.attention,
        )  # fmt: skip

    @model_validator(mode="after")
    def _consistent(self) -> Receipt:
        names = {each.name for each in self.claims}
        if len(names) < len(self.claims):
            raise ValueError("two claims have one name: remove one")
        problems = [each.problem for each in self.operators]
        if len(set(problems)) < len(problems):
            raise ValueError("two operators have one problem: remove one")
        if len({(each.operator, each.arguments) for each in self.library}) < len(self.library):
            raise ValueError("two calls of one operator of PyTorch have equal arguments: remove one")
        if len({each.heads for each in self.attention or ()}) < len(self.attention or ()):
            raise ValueError("attention of equal heads is listed twice: remove one")
        if len({each.name for each in self.kernels}) < len(self.kernels):
            raise ValueError("two kernels have one name: rename one")
        for operator in self.operators:
            for name in operator.claims:
                if name not in names:
                    raise ValueError(f"{operator.problem.words} names the claim {name!r}, which the receipt lacks")
        return self

    def to_text(self) -> str:
        """Return the file's text; `from_text` returns an equal receipt for it."""
        return self.model_dump_json(indent=1) + "\n"

    @classmethod
    def from_text(cls, text: str, name: str = "the receipt") -> Receipt:
        """Return the receipt of a file's text.  Raises ReceiptError; its message begins with `name`."""
        try:
            content = parse_json(text)
        except ValueError as error:
            raise ReceiptError(f"{name}: this is not complete JSON ({error}); write the receipt again") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ReceiptError(f'{name}: this is not a receipt; a receipt has "format": "{FORMAT}"')
        version = content.get("version")
        if type(version) is not int or version != VERSION:
            raise ReceiptError(
                f"{name}: the receipt has version {version!r:.40} and this bitwise reads version {VERSION}: "
                "install the bitwise that wrote the receipt"
            )
        try:
            return cls.model_validate(content)
        except (DescriptorError, LockError) as error:
            raise ReceiptError(f"{name}: {error}") from None
        except ValidationError as error:
            raise ReceiptError(f"{name}: {sentences(error, 'receipt')}") from None

    def write(self, path: Path | str) -> None:
        """Write the file as a whole.  Raises ReceiptError where it cannot be written."""
        try:
            write_text(path, self.to_text())
        except OSError as error:
            raise ReceiptError(f"{path}: cannot be written ({error.strerror})") from None


def read_receipt(path: Path | str) -> Receipt:
    """Return the receipt of a file.  Raises ReceiptError."""
    return Receipt.from_text(read_text(path, ReceiptError), str(path))


def schema() -> dict[str, Any]:
    """Return the JSON schema of a receipt."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Receipt.model_json_schema()}
