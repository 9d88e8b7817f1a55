"""Calls of operators that a lock leaves to PyTorch, and the machines on which samples of them returned equal bytes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from bitwise_core.validated_records import ValidatedRecord
from bitwise_torch.locks.lock_error import LockError

MAXIMUM_ARGUMENTS = 1 << 16
"""The maximum length of a call's arguments as text."""

UNDETERMINED: Mapping[str, str] = {
    "_scaled_dot_product_cudnn_attention_backward": "cuDNN",
    "_cudnn_attention_backward": "cuDNN",
    "_scaled_dot_product_flash_attention_backward": "flash",
    "_flash_attention_backward": "flash",
    "_scaled_dot_product_efficient_attention_backward": "efficient",
    "_efficient_attention_backward": "efficient",
}
"""Operators whose runs on one GPU may return different bytes, however their samples compare; the keys of SOURCES.

PyTorch's list of such operators, in the documentation of torch.use_deterministic_algorithms, lacks them.
"""

SOURCES: Mapping[str, str] = {
    "cuDNN": (
        "PyTorch leaves cuDNN's attention out under torch.use_deterministic_algorithms(True), since it is not "
        "deterministic (check_cudnn_deterministic in aten/src/ATen/native/transformers/cuda/sdp_utils.cpp)"
    ),
    "flash": (
        "PyTorch's flash attention defaults to an algorithm that is not deterministic, but under "
        "torch.use_deterministic_algorithms(True) (aten/src/ATen/native/transformers/cuda/attention_backward.cu)"
    ),
    "efficient": (
        "PyTorch's memory-efficient attention defaults to an algorithm that is not deterministic, but under "
        "torch.use_deterministic_algorithms(True) (aten/src/ATen/native/transformers/cuda/attention_backward.cu)"
    ),
}
"""What PyTorch's source says of operators."""

REMEDY = 'record with attention="pinned"'


class UndeterminedWarning(UserWarning):
    """A lock leaves an operator to PyTorch whose own runs may differ, so that it does not keep the recorded bytes."""


def warn_of_undetermined(operator: str, reason: str) -> None:
    """Warn of an operator whose own runs may differ, with the reason."""
    warnings.warn(
        f"{operator} is left to PyTorch, whose own runs may differ, so that a lock may not return the recorded bytes: "
        f"{reason}; {REMEDY}", UndeterminedWarning, stacklevel=3,
    )  # fmt: skip


Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""The SHA-256 of the outputs of a sample, in hexadecimal digits."""


class LibraryOperator(ValidatedRecord):
    """A call of an operator that PyTorch computes: its bits are assumed, and compared by samples.

    `operator` is the name with namespace and overload, `arguments` the text of its arguments without the tensors'
    values; see `operator_samples.call_text`.  `recorded` is the machine that recorded it, and `digests` has the digest
    of a sample on each machine that computed one, or is empty where `reason` says why there is no sample.
    """

    fault = LockError

    operator: Annotated[str, StringConstraints(pattern=r"^aten::\w+(\.\w+)?$")]
    arguments: Annotated[str, StringConstraints(max_length=MAXIMUM_ARGUMENTS)]
    recorded: str
    digests: Mapping[str, Digest] = Field(default_factory=dict)
    reason: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> LibraryOperator:
        if bool(self.digests) == (self.reason is not None):
            raise ValueError("a library operator has either digests or the reason why there are none")
        if self.digests and self.recorded not in self.digests:
            raise ValueError(f"there is no digest of {self.recorded!r}, the machine that recorded the operator")
        return self

    @property
    def undetermined(self) -> str | None:
        """Why the library's own runs may differ on one GPU, or None."""
        if '"cuda"' not in self.arguments:
            return None
        name = self.operator.removeprefix("aten::").partition(".")[0]
        source = UNDETERMINED.get(name)
        return None if source is None else SOURCES[source]

    def agrees_on(self, machine: str) -> bool:
        """Return whether a sample returned the same bytes on a machine and on the one that recorded it."""
        return bool(self.digests) and self.digests.get(machine) == self.digests[self.recorded]

    def with_digest(self, machine: str, digest: str) -> LibraryOperator:
        """Return the operator with a machine's digest."""
        return self.model_copy(update={"digests": {**self.digests, machine: digest}})
