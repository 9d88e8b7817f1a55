"""vLLM: a plugin of its group `vllm.general_plugins`, which vLLM loads in each of its processes.

BITWISE_BATCH_INVARIANT=1 VLLM_BATCH_INVARIANT=1 vllm serve ...

With both variables, the mode takes the place of vLLM's replacements of PyTorch's operators.
"""

from __future__ import annotations

import os
import warnings

from bitwise_torch.batch_invariance.mode import BatchVarianceWarning
from bitwise_torch.engine_hooks.process_mode import (
    VARIABLE,
    EngineHookError,
    first_module,
    is_asked_for,
    replace_functions,
)

MODULES = ("vllm.model_executor.determinism.batch_invariant", "vllm.model_executor.layers.batch_invariant")
"""The module of vLLM's mode, in newer releases and in earlier ones."""

OWN_VARIABLE = "VLLM_BATCH_INVARIANT"
"""The variable by which vLLM enables its mode."""


def register() -> None:
    """Replace vLLM's function that enables its mode, where the environment asks for ours.

    Without vLLM's own variable nothing enables it: a warning says so, with "strict" an error.  Raises EngineHookError.
    """
    if not is_asked_for():
        return
    replace_functions("vLLM", [first_module("vLLM", MODULES)])
    if os.environ.get(OWN_VARIABLE, "0").strip() in ("", "0"):
        sentence = (
            f"{VARIABLE} asks for the batch-invariant mode, which vLLM enables only with {OWN_VARIABLE}=1: set both"
        )
        if os.environ.get(VARIABLE) == "strict":
            raise EngineHookError(sentence)
        warnings.warn(sentence, BatchVarianceWarning, stacklevel=2)
