"""vLLM: a plugin of its group `vllm.general_plugins`, which vLLM loads in each of its processes.

BITWISE_BATCH_INVARIANT=1 VLLM_BATCH_INVARIANT=1 vllm serve ...

With both variables, the mode takes the place of vLLM's replacements of PyTorch's operators.
"""

from __future__ import annotations

from bitwise_torch.engine_hooks.process_mode import is_asked_for, replace_functions

MODULES = ("vllm.model_executor.layers.batch_invariant",)


def register() -> None:
    """Replace vLLM's function that enables its mode, where the environment asks for ours.  Raises EngineHookError."""
    if is_asked_for():
        replace_functions("vLLM", MODULES)
