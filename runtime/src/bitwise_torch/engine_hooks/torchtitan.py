"""TorchTitan: the mode as a converter of models, `--model.converters bitwise`.

from bitwise_torch.engine_hooks import torchtitan

torchtitan.register()  # before the trainer reads its configuration
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_torch.engine_hooks.process_mode import EngineHookError, enable

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
    """Register the converter under the name "bitwise".  Raises EngineHookError."""
    try:
        register_model_converter = import_module(MODULE).register_model_converter
    except (ImportError, AttributeError) as error:
        raise EngineHookError(
            f"TorchTitan: {MODULE}.register_model_converter cannot be imported ({error}): install a release that has "
            "it, or call bitwise_torch.batch_invariant().enable() in the program that starts the trainer"
        ) from None
    register_model_converter(BatchInvariantConverter, NAME)
