"""The launcher with the least work for a choice: Inductor's static one, which calls the driver without Triton."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from bitwise_triton.inductor.tuning import Settled

logger = logging.getLogger("bitwise_triton")


def static_launcher() -> Settled | None:
    """Return the function that exchanges a chosen launcher for a static one; None where Inductor would use none."""
    try:
        from torch._inductor import config
        from torch._inductor.runtime.triton_heuristics import StaticTritonCompileResult
    except ImportError:
        return None
    if not getattr(config, "use_static_cuda_launcher", False):
        return None

    def exchanged(autotuner: Any, result: Any, launcher: Any) -> Any:
        try:
            with config.patch(use_static_cuda_launcher=True):
                kernel = StaticTritonCompileResult.can_statically_launch(
                    result.kernel, autotuner.inductor_meta, autotuner.triton_meta, autotuner.heuristic_type
                )
            if kernel is None or not _is_same_code(kernel, result):
                return launcher
            static = StaticTritonCompileResult(kernel, result.config, result.compile_meta, autotuner.inductor_meta)
            found = static.make_launcher()
            build = getattr(autotuner, "_build_fast_launcher", None)
            faster = build(found) if build is not None else None
            if faster is None:
                return found
            faster.bitwise_kept = found  # its kernel is unloaded with it
            return faster
        except (AttributeError, ImportError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
            # Another version of torch: its own launcher is as right, and slower.
            logger.info("%s keeps its launcher: %s: %s", autotuner.fn.__name__, type(error).__name__, error)
            return launcher

    return exchanged


def _is_same_code(kernel: Any, result: Any) -> bool:
    """Return whether the static launcher loads the machine code that was tuned."""
    return bool(Path(kernel.cubin_path).read_bytes() == result.kernel.asm["cubin"])
