"""SGLang: the mode in place of the operators of its deterministic inference.

from bitwise_torch.engine_hooks import sglang

sglang.register()  # before the engine starts with --enable-deterministic-inference
"""

from __future__ import annotations

from bitwise_torch.engine_hooks.process_mode import replace_functions

MODULES = ("sglang.srt.batch_invariant_ops", "sglang.srt.batch_invariant_ops.batch_invariant_ops")


def register() -> None:
    """Replace SGLang's functions that enable and disable its mode.  Raises EngineHookError."""
    replace_functions("SGLang", MODULES)
