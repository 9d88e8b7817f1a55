"""TorchTitan: the mode behind `set_batch_invariance`, and in earlier releases as a converter of models.

from bitwise_torch.engine_hooks import torchtitan

torchtitan.register()  # before the trainer reads its configuration

TorchTitan 0.3 has a setting `debug.batch_invariant`, which calls `set_batch_invariance` of one of OWN_MODES.  That
function takes its operators from the package of OPERATORS; newer ones register a sum and a product beside them, behind
which the mode is registered again.  Earlier releases have `--model.converters bitwise`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any

from bitwise_torch.engine_hooks.process_mode import (
    FUNCTIONS,
    EngineHookError,
    enable,
    renew,
    replace_function,
    replace_functions,
)
from bitwise_torch.engine_hooks.process_mode import OPERATORS as OWN_OPERATORS

OWN_MODES = ("torchtitan.distributed.batch_invariant", "torchtitan.distributed.utils")
"""The module of TorchTitan's mode, in newer releases and in earlier ones."""

OPERATORS = "batch_invariant_ops"

MODULE, NAME = "torchtitan.protocols.model_converter", "bitwise"


class BatchInvariantConverter:
    """A ModelConverter of TorchTitan: it enables the mode for the process and changes no module."""

    def __init__(self, job_config: Any, parallel_dims: Any) -> None:
        pass

    def convert(self, model: Any) -> None:
        """Enable the mode; what the trainer computes from here on is in it."""
        enable()

    def post_optimizer_hook(self, model: Any) -> None:
        """Do nothing."""


def register() -> None:
    """Put the mode in the place of the operators of `set_batch_invariance`, or register the converter "bitwise".

    Raises EngineHookError where TorchTitan has neither.
    """
    own = next((found for name in OWN_MODES if (found := _attribute(name, "set_batch_invariance")) is not None), None)
    if own is not None:
        _replace_operators()
        if not hasattr(own, "__wrapped__"):
            replace_function("torchtitan", "set_batch_invariance", own, _renewing(own))
        return
    register_model_converter = _attribute(MODULE, "register_model_converter")
    if register_model_converter is None:
        raise EngineHookError(
            f"TorchTitan: none of set_batch_invariance of {' or '.join(OWN_MODES)} and register_model_converter of "
            f"{MODULE} can be imported: install a release that has one of them, or call "
            "bitwise_torch.batch_invariant().enable() in the program that starts the trainer"
        )
    register_model_converter(BatchInvariantConverter, NAME)


def _renewing(set_batch_invariance: Callable[[bool], None]) -> Callable[[bool], None]:
    """Return a function that calls another one, and registers the mode behind what that one has registered."""

    @wraps(set_batch_invariance)
    def function(enable: bool) -> None:
        set_batch_invariance(enable)
        if enable:
            renew()

    return function


def _attribute(module: str, name: str) -> Any:
    """Return an attribute of a module, None where it cannot be imported."""
    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None


def _replace_operators() -> None:
    """Replace the functions of the package of operators, or stand for it where it is not installed."""
    try:
        import_module(OPERATORS)
    except ImportError:
        stand_in = ModuleType(OPERATORS, "The batch-invariant mode of bitwise_torch.")
        vars(stand_in).update(FUNCTIONS | OWN_OPERATORS)
        sys.modules[OPERATORS] = stand_in
        return
    replace_functions("TorchTitan", (OPERATORS,))
