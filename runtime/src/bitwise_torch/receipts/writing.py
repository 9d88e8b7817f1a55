"""Receipts from lock files, files and the environment."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from bitwise_core.input_files import open_file
from bitwise_core.plugins.profiles import NotCovered, SupportedProfile
from bitwise_torch.locks import Entry, Lock, differences, finding_of, lock_of
from bitwise_torch.receipts.claims import claims_of
from bitwise_torch.receipts.environments import environment
from bitwise_torch.receipts.receipt_file import Environment, Kernel, Receipt, ReceiptError, Supported


def receipt_of(
    lock: Lock, files: Mapping[str, Path], where: Environment | None = None, profile: SupportedProfile | None = None
) -> Receipt:
    """Return the receipt of a lock and of files by name; `where` is by default the environment of this process.

    `profile` is asked what the descriptor of each product rests on, where it describes the product as the lock does.
    Raises ReceiptError for a file that cannot be read.
    """
    kernels = tuple(kernel(name, path) for name, path in sorted(files.items()))
    made = claims_of(
        [(each, supported(each, profile)) for each in lock.entries], lock.operators, kernels, lock.attention
    )
    return Receipt(
        recorded=dict(lock.provenance), lock=lock_digest(lock), environment=where or environment(),
        operators=made.operators, library=lock.operators, attention=lock.attention, kernels=kernels, claims=made.claims,
    )  # fmt: skip


def supported(entry: Entry, profile: SupportedProfile | None) -> Supported:
    """Return what an entry's descriptor rests on, by a profile that describes its problem in the same way."""
    if profile is None or entry.descriptor is None:
        return "not asked"
    now = lock_of([(entry.problem, finding_of(profile, entry.problem))], {})
    if {each.change for each in differences(Lock(entries=(entry,)), now)} != {"same"}:
        return "not asked"
    try:
        return profile.support(entry.problem)
    except NotCovered:
        return "not asked"


def lock_digest(lock: Lock) -> str:
    """Return the SHA-256 of a lock's text."""
    return hashlib.sha256(lock.to_text().encode()).hexdigest()


def kernel(name: str, path: Path) -> Kernel:
    """Return a file's digest and length.  Raises ReceiptError."""
    digest, length = hashlib.sha256(), 0
    with open_file(path, ReceiptError) as file:
        try:
            while part := file.read(1 << 20):
                digest.update(part)
                length += len(part)
        except OSError as error:
            raise ReceiptError(f"{path}: cannot be read ({error.strerror})") from None
    return Kernel(name=name, digest=digest.hexdigest(), bytes=length)
