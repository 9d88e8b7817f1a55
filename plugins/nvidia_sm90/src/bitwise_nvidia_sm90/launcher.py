"""The launcher of sm_90: it runs GEMM descriptors with torch, Triton and a GPU of compute capability 9.0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_core.descriptors import DescriptorError, Epilogue, GEMMDesc, Record
from bitwise_core.descriptors.evaluation import Formulas
from bitwise_core.descriptors.problem import FinishedGEMM
from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage
from bitwise_core.plugins.launchers import EpilogueLaunch, ProductLaunch
from bitwise_nvidia_sm90 import requirements
from bitwise_nvidia_sm90.activations import FORMULAS


class GEMMLauncher:
    """Runs a GEMMDesc on a GPU of compute capability 9.0; see `bitwise_core.plugins.launchers.Launcher`."""

    name = "products_sm_90"

    def missing(self) -> str | None:
        """See `bitwise_core.plugins.launchers.Launcher`."""
        return requirements.missing()

    def serves(self, desc: Record, device: Any) -> bool:
        """See `bitwise_core.plugins.launchers.ProductLauncher`."""
        if device.type != "cuda" or not isinstance(desc, GEMMDesc):
            return False
        import torch

        from bitwise_nvidia_sm90.gemm.run import planned

        try:
            planned(desc)
        except DescriptorError:
            return False
        return bool(torch.cuda.get_device_capability(device) == (9, 0))

    def product(self, desc: Record, a: Any, b: Any, out: Any) -> None:
        """Compute out = a b on the current stream of their device.

        Raises DescriptorError for a descriptor that the kernels do not implement.
        """
        self.prepare(desc, a, b, out)

    def prepare(self, desc: Record, a: Any, b: Any, out: Any) -> ProductLaunch:
        """See `bitwise_core.plugins.launchers.PreparingLauncher`.

        Raises DescriptorError for a descriptor that the kernels do not implement.
        """
        if not isinstance(desc, GEMMDesc):
            raise DescriptorError(f"{self.name} runs a GEMMDesc on a and b")
        import torch

        from bitwise_nvidia_sm90.gemm.run import run_prepared
        from bitwise_nvidia_sm90.gemm.tuning import tune_at_first_call

        with torch.cuda.device(a.device):  # kernels are compiled and loaded for the current device
            tune_at_first_call(desc, a, b, out)
            return run_prepared(desc, a, b, out).launch

    def sequential(
        self, k: int, left: str, right: str, output: str, *, rounded: bool = False, one_accumulator: bool = True
    ) -> GEMMDesc:
        """See `bitwise_core.plugins.launchers.SequentialLauncher`."""
        from bitwise_nvidia_sm90.gemm.many_products import sequential_descriptor

        return sequential_descriptor(k, left, right, output, rounded, one_accumulator)

    def batched_product(self, desc: Record, a: Any, b: Any, out: Any) -> EpilogueLaunch:
        """See `bitwise_core.plugins.launchers.SequentialLauncher`."""
        if not isinstance(desc, GEMMDesc):
            raise DescriptorError(f"{self.name} runs a GEMMDesc on a and b")
        import torch

        from bitwise_nvidia_sm90.gemm.many_products import batched_product

        with torch.cuda.device(a.device):
            return batched_product(desc, a, b, out)

    def grouped_product(self, desc: Record, a: Any, b: Any, ends: Any, out: Any) -> EpilogueLaunch:
        """See `bitwise_core.plugins.launchers.SequentialLauncher`."""
        if not isinstance(desc, GEMMDesc):
            raise DescriptorError(f"{self.name} runs a GEMMDesc on a and b")
        import torch

        from bitwise_nvidia_sm90.gemm.many_products import grouped_product

        with torch.cuda.device(a.device):
            return grouped_product(desc, a, b, ends, out)

    @property
    def formulas(self) -> Formulas:
        """See `bitwise_core.plugins.launchers.EpilogueLauncher`."""
        return FORMULAS

    def prepare_epilogue(
        self, desc: Record, epilogue: Epilogue, a: Any, b: Any, operands: Sequence[Any], out: Any
    ) -> EpilogueLaunch:
        """See `bitwise_core.plugins.launchers.EpilogueLauncher`."""
        if not isinstance(desc, GEMMDesc):
            raise DescriptorError(f"{self.name} runs a GEMMDesc on a and b")
        import torch

        from bitwise_nvidia_sm90.gemm.fusions import Fusion
        from bitwise_nvidia_sm90.gemm.tuning import fuse_at_first_call

        with torch.cuda.device(a.device):
            return fuse_at_first_call(desc, Fusion(epilogue, desc.output_dtype, tuple(operands)), a, b, out).launch

    def apply_epilogue(self, epilogue: Epilogue, x: Any, operands: Sequence[Any], out: Any) -> None:
        """See `bitwise_core.plugins.launchers.EpilogueLauncher`."""
        import torch

        from bitwise_nvidia_sm90.gemm.fusions import Fusion
        from bitwise_nvidia_sm90.gemm.kernels.epilogues import apply
        from bitwise_nvidia_sm90.gemm.matrix_layouts import type_of

        fusion = Fusion(epilogue, type_of(x), tuple(operands))
        fusion.check()
        block, count = 512, x.numel()
        with torch.cuda.device(x.device):
            apply[(-(-count // block),)](
                x, out, x.shape[1], count, *x.stride(), *out.stride(), **fusion.arguments(), **fusion.constants(),
                BLOCK=block,
            )  # fmt: skip

    def prepare_scaled(
        self, desc: FinishedGEMM, a: Any, b: Any, scales_a: Any, scales_b: Any, out: Any
    ) -> EpilogueLaunch:
        """See `bitwise_core.plugins.launchers.BlockScalingLauncher`."""
        import torch

        from bitwise_nvidia_sm90.gemm.scaled_blocks import prepare_scaled
        from bitwise_nvidia_sm90.gemm.tuning import timed_at_first_call

        with torch.cuda.device(a.device):
            most = 1 if torch.cuda.is_current_stream_capturing() else timed_at_first_call() or 1
            return prepare_scaled(desc, a, b, scales_a, scales_b, out, most)

    def tune(self, desc: Record, a: Any, b: Any, out: Any, path: Path | None, most: int) -> tuple[str, float]:
        """See `bitwise_core.plugins.launchers.TunableLauncher`."""
        if not isinstance(desc, GEMMDesc):
            raise DescriptorError(f"{self.name} runs a GEMMDesc on a and b")
        import torch

        from bitwise_nvidia_sm90.gemm.tuning import tune

        with torch.cuda.device(a.device):
            chosen, seconds = tune(desc, a, b, out, path=path, most=most)
        return str(chosen), seconds

    def launch(self, desc: Record, *operands: Bits) -> Bits:
        """Return the bit patterns of the product.

        Raises DescriptorError for a descriptor that the kernels do not implement.
        """
        if not isinstance(desc, GEMMDesc) or len(operands) != 2:
            raise DescriptorError(f"{self.name} runs a GEMMDesc on a and b")
        import torch

        from bitwise_nvidia_sm90.gemm.matrix_layouts import TORCH_NAMES
        from bitwise_nvidia_sm90.gemm.run import run

        a, b = (_on_device(*each) for each in zip(operands, (desc.left_dtype, desc.right_dtype), strict=True))
        out = torch.empty(
            (a.shape[0], b.shape[1]), dtype=getattr(torch, TORCH_NAMES[desc.output_dtype]), device=a.device
        )
        run(desc, a, b, out)
        bits = FLOAT_FORMATS[desc.output_dtype].bits
        return np.asarray(out.view(getattr(torch, f"int{bits}")).cpu().numpy()).view(storage(bits))


def _on_device(patterns: Bits, dtype: str) -> Any:
    import torch

    from bitwise_nvidia_sm90.gemm.matrix_layouts import TORCH_NAMES

    if dtype not in TORCH_NAMES:
        raise DescriptorError(f"operands of {dtype}: torch has no such type; use one of {', '.join(TORCH_NAMES)}")
    signed = np.ascontiguousarray(patterns).view(f"i{patterns.dtype.itemsize}")
    return torch.from_numpy(signed).cuda().view(getattr(torch, TORCH_NAMES[dtype]))
