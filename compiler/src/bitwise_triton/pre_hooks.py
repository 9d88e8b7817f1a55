"""The effects of a configuration's `pre_hook`, traced on stand-ins.

A hook may change the tensor descriptors of a launch, which changes the compiled kernel, or the contents of a tensor,
which changes the kernel's input. Changes of descriptors are applied. Changes of contents are recorded, and only
configurations with the same recorded effects can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from bitwise_triton.errors import CaptureError
from bitwise_triton.tensor_stand_ins import copy_descriptor, is_descriptor, is_tensor

# Calls on tensors: the tensor's name, the method and its arguments, as text.
HookEffects: TypeAlias = tuple[tuple[str, ...], ...]


class RecordingTensor:
    """A stand-in for a tensor in a hook: reads go to the tensor, other calls are recorded instead of executed."""

    _reading = frozenset(
        {"data_ptr", "dim", "element_size", "get_device", "is_contiguous", "is_floating_point"}
        | {"nelement", "numel", "size", "stride"}
    )

    def __init__(self, name: str, tensor: Any, calls: list[tuple[str, ...]]) -> None:
        self._name, self._tensor, self._calls = name, tensor, calls

    def __repr__(self) -> str:
        return f"<tensor {self._name}>"

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._tensor, attribute)
        if is_tensor(value):
            return RecordingTensor(f"{self._name}.{attribute}", value, self._calls)
        if attribute in self._reading or not callable(value):
            return value
        return _Recorder(self, attribute)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._calls.append((self._name, "__setitem__", _shown(key), _shown(value)))


class _Recorder:
    """A method of a `RecordingTensor`. A call is recorded and returns the tensor, as in-place methods do."""

    def __init__(self, owner: RecordingTensor, method: str) -> None:
        self.owner, self.method = owner, method

    def __call__(self, *arguments: Any, **keywords: Any) -> RecordingTensor:
        record = (self.owner._name, self.method, _shown(arguments), _shown(keywords))
        self.owner._calls.append(record)
        return self.owner


def trace_pre_hook(configuration: Any, settings: Mapping[str, Any]) -> tuple[dict[str, Any], HookEffects]:
    """`settings` (all arguments of a launch, by name) as the configuration's hook leaves them, and its calls on
    tensors.

    The caller's objects are not changed. Raises CaptureError if the hook does something that a stand-in does not
    support.
    """
    found = dict(settings)
    if configuration.pre_hook is None:
        return found, ()
    calls: list[tuple[str, ...]] = []
    seen: dict[str, Any] = {}
    for name, value in settings.items():
        if is_descriptor(value):
            seen[name] = copy_descriptor(value, RecordingTensor(name, value.base, calls))
        elif is_tensor(value):
            seen[name] = RecordingTensor(name, value, calls)
        else:
            seen[name] = value
    descriptors = {name: value for name, value in seen.items() if is_descriptor(value)}
    try:
        configuration.pre_hook(dict(seen))
    except Exception as error:
        raise CaptureError(
            f"The pre_hook of the configuration ({configuration}) cannot be traced without real "
            f"tensors: {type(error).__name__}: {error}."
        ) from None
    for name, value in descriptors.items():
        found[name] = copy_descriptor(value, settings[name].base)
    return found, tuple(calls)


def _shown(value: Any) -> str:
    """Text that is equal for equal values: tensors by address, containers by contents."""
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(map(_shown, value)) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(inner)}" for key, inner in value.items()) + "}"
    if is_tensor(value) and not isinstance(value, RecordingTensor):
        return f"<tensor at {value.data_ptr()}>"
    return f"{type(value).__name__} {value!r}"
