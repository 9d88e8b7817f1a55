"""Bytes and time of compiled models that TorchInductor tunes freely, and inside `same_bits`.

    python -m bitwise_bench.inductor_same_bits --record records/inductor-same-bits.json

A GPU is needed.  Each model is compiled, tuned and trained for one step in processes of their own with empty caches:
two inside `same_bits`, two free.  The record holds the digests of outputs and gradients, the seconds of a step, and
what the proofs kept and dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment

MODELS = ("transformer block", "mlp")
MODES = ("same bits", "free")
_STEPS = 40


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or measure one model in this process."""
    parser = command_parser("inductor_same_bits", __doc__)
    parser.add_argument("--record", type=Path, help="write the result here, as JSON")
    parser.add_argument("--repeats", type=int, default=2, help="processes for each model and mode (default 2)")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "MODE"), help="measure in this process and print JSON")
    parser.add_argument("--templates", choices=("library", "triton"), default="library", help="see same_bits")
    chosen = parser.parse_args(arguments)
    if chosen.one:
        model, mode = chosen.one
        print(json.dumps(_measured(model, mode, chosen.templates)))
        return 0
    found = []
    for model in MODELS:
        for mode in MODES:
            for _ in range(chosen.repeats):
                found.append({"model": model, "mode": mode, **_in_process(model, mode, chosen.templates)})
                print({name: value for name, value in found[-1].items() if name != "dropped"}, flush=True)
    record = {"environment": {**analysis_environment(), **_gpu()}, "templates": chosen.templates, "runs": found}
    if chosen.record is not None:
        chosen.record.write_text(json.dumps(record, indent=1) + "\n")
    print(summary(record))
    return 0 if all(_digests(record, model, "same bits") == 1 for model in MODELS) else 1


def summary(record: dict[str, Any]) -> str:
    """Return digests and times by model, as text."""
    lines = []
    for model in MODELS:
        times = {}
        for mode in MODES:
            runs = [run for run in record["runs"] if (run["model"], run["mode"]) == (model, mode)]
            times[mode] = statistics.median(run["step seconds"] for run in runs)
            lines.append(
                f"{model}, {mode}: {_digests(record, model, mode)} byte patterns in {len(runs)} processes, "
                f"{1000 * times[mode]:.3f} ms a step"
            )
        lines.append(f"{model}: same bits takes {times['same bits'] / times['free']:.3f} of the free time")
    return "\n".join(lines)


def _digests(record: dict[str, Any], model: str, mode: str) -> int:
    return len({run["digest"] for run in record["runs"] if (run["model"], run["mode"]) == (model, mode)})


def _in_process(model: str, mode: str, templates: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        command = [sys.executable, "-m", "bitwise_bench.inductor_same_bits", "--templates", templates]
        done = subprocess.run(
            [*command, "--one", model, mode], env={**os.environ, **caches}, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{model}, {mode}: {done.stderr.strip()[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _gpu() -> dict[str, str]:
    import torch

    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}


def _measured(model: str, mode: str, templates: Any) -> dict[str, Any]:
    """Compile and tune a model, and return the digest of a step's results and the median seconds of a step."""
    import torch

    from bitwise_triton.inductor import same_bits

    torch.manual_seed(7)
    network, batch = _block(torch) if model == MODELS[0] else _mlp(torch)
    reports: Any = []
    if mode == MODES[0]:
        reports = same_bits(templates=templates).enable()
    compiled = torch.compile(network, mode="max-autotune-no-cudagraphs")
    start = time.perf_counter()
    digest = _step(torch, network, compiled, batch)
    tuning = time.perf_counter() - start
    again = _step(torch, network, compiled, batch)
    if again != digest:
        raise RuntimeError(
            "two steps of one process return different bytes: an operation of the model is not determined"
        )
    times = []
    for _ in range(_STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        compiled(batch).float().square().mean().backward()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return {
        "digest": digest,
        "step seconds": statistics.median(times),
        "tuning seconds": tuning,
        "proof seconds": sum(each.seconds for each in reports),
        "kernels tuned": len(reports),
        "kept": sum(len(each.kept) for each in reports),
        "dropped": [
            [each.kernel, one.configuration, one.outcome, one.reason[:200]] for each in reports for one in each.dropped
        ],
    }


def _step(torch: Any, network: Any, compiled: Any, batch: Any) -> str:
    """Return the digest of the outputs and of every gradient of a training step."""
    network.zero_grad()
    batch.grad = None
    output = compiled(batch)
    output.float().square().mean().backward()
    hasher = hashlib.sha256()
    for tensor in (output, batch.grad, *(each.grad for each in network.parameters())):
        hasher.update(tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return hasher.hexdigest()


def _block(torch: Any) -> tuple[Any, Any]:
    """Return a transformer block in bf16, and its input: 8 sequences of 512 tokens of width 1,024."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = 1024, heads: int = 16) -> None:
            super().__init__()
            self.heads = heads
            self.before, self.between = nn.LayerNorm(width), nn.RMSNorm(width)
            self.projections, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.gate, self.down = (nn.Linear(*each) for each in ((width, 2816), (width, 2816), (2816, width)))

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            parts = self.projections(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            scores = (parts[0] @ parts[1].transpose(-1, -2)) * (width // self.heads) ** -0.5
            weights = torch.softmax(scores.float(), -1).to(x.dtype)
            mixed = (weights @ parts[2]).transpose(1, 2).reshape(batch, length, width)
            x = x + self.out(mixed)
            y = self.between(x)
            return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    network = Block().cuda().bfloat16()
    return network, torch.randn(8, 512, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def _mlp(torch: Any) -> tuple[Any, Any]:
    """Return a network of three layers in bf16 with norms and GELU, and its input of 4,096 rows."""
    nn = torch.nn
    layers: list[Any] = []
    for _ in range(3):
        layers += [nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)]
    network = nn.Sequential(*layers, nn.Softmax(-1)).cuda().bfloat16()
    return network, torch.randn(4096, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)


if __name__ == "__main__":
    sys.exit(main())
