"""Bytes and time of compiled models that TorchInductor tunes freely, and inside `same_bits`.

    python -m bitwise_bench.inductor_same_bits --record records/inductor-same-bits.json

A GPU is needed.  Each model is compiled, tuned and trained for one step in processes of their own with empty caches:
two inside `same_bits`, two free.  They tune side by side; when all have tuned, each measures its steps alone.  The
record holds the digests of outputs and gradients, the seconds of a step, and what the proofs kept and dropped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment

MODELS = ("transformer block", "mlp")
MODES = ("same bits", "free")
_STEPS = 200
_MEETING = "BITWISE_BENCH_MEETING"
"""The variable with the folder in which processes say that they have tuned, and their number."""
_SECONDS_BETWEEN_LOOKS = 0.2


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
    found = _side_by_side([(model, mode) for model in MODELS for mode in MODES] * chosen.repeats, chosen.templates)
    for each in found:
        print({name: value for name, value in each.items() if name != "dropped"}, flush=True)
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


def _side_by_side(jobs: Sequence[tuple[str, str]], templates: str) -> list[dict[str, Any]]:
    """Run each model and mode in a process of its own, all at once.  Raises RuntimeError if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder, "meeting")
        meeting.mkdir()
        command = [sys.executable, "-m", "bitwise_bench.inductor_same_bits", "--templates", templates, "--one"]
        processes = []
        for number, job in enumerate(jobs):
            own = Path(folder, str(number))
            caches = {"TORCHINDUCTOR_CACHE_DIR": f"{own}/inductor", "TRITON_CACHE_DIR": f"{own}/triton"}
            environment = {**os.environ, **caches, _MEETING: f"{len(jobs)} {meeting}"}
            own.mkdir()
            with open(own / "output", "w") as output, open(own / "errors", "w") as errors:
                processes.append(subprocess.Popen([*command, *job], env=environment, stdout=output, stderr=errors))
        while any(each.poll() is None for each in processes):
            if any(each.poll() for each in processes):
                for each in processes:
                    each.kill()
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        found = []
        for number, ((model, mode), process) in enumerate(zip(jobs, processes, strict=True)):
            if process.returncode > 0:
                errors_text = Path(folder, str(number), "errors").read_text()
                raise RuntimeError(f"{model}, {mode}: {errors_text.strip()[-3000:]}")
            if process.returncode == 0:
                output_text = Path(folder, str(number), "output").read_text()
                found.append({"model": model, "mode": mode, **json.loads(output_text.strip().splitlines()[-1])})
    return found


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until all processes of the meeting have tuned, and until no other one measures."""
    count, _, folder = os.environ.get(_MEETING, "1 ").partition(" ")
    if not folder:
        yield
        return
    Path(folder, f"tuned-{os.getpid()}").touch()
    while len(list(Path(folder).glob("tuned-*"))) < int(count):
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    with open(Path(folder, "measuring"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
    with _alone():
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
