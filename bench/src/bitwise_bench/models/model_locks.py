"""Transformers with random weights, recorded in a lock and replayed from it: the bytes of a step and of a generation.

    python -m bitwise_bench.models.model_locks --out locks.json --folder locks
    python -m bitwise_bench.models.model_locks --out replayed.json --folder locks --replay    # on another GPU
    python -m bitwise_bench.models.model_locks --out locks.json --folder locks --attention pinned

A model trains, and then generates tokens.  The bytes are those of the logits, the gradients, the weights after the
steps, the tokens, and the logits after the steps.  The first command records a lock of each model and replays it on
the same GPU.  The second one compares the samples of the operators that the lock leaves to PyTorch, replays the lock,
and also runs the model without it.  `lock_costs` measures times.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from bitwise_core.errors import BitwiseError
from bitwise_torch import locked_products, recorded_products
from bitwise_torch.locks import Lock, read_lock
from bitwise_torch.operator_samples import checked_operators
from bitwise_torch.receipts.environments import VARIABLES

BATCH, STEPS, PROMPT, GENERATED = 2, 2, 64, 16
"""Sequences of a batch, training steps, tokens of a prompt, and tokens that are generated."""

TOKENS, LONG = 512, 2048
"""Tokens of a training sequence; with the larger number, the GPU is the bottleneck of a training step."""

_SIZES = {
    "vocab_size": 32000, "num_hidden_layers": 4, "max_position_embeddings": 4096, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any], int]] = {
    "llama": ("LlamaForCausalLM", {**_SIZES, "hidden_size": 2048, "intermediate_size": 5632}, TOKENS),
    "qwen2": ("Qwen2ForCausalLM", {**_SIZES, "hidden_size": 2048, "intermediate_size": 5504}, TOKENS),
    "qwen3": ("Qwen3ForCausalLM", {**_SIZES, "hidden_size": 1024, "intermediate_size": 3072}, TOKENS),
    "mixtral": (
        "MixtralForCausalLM",
        {**_SIZES, "hidden_size": 1024, "intermediate_size": 1792, "num_local_experts": 4, "num_experts_per_tok": 2},
        TOKENS,
    ),
    "llama-8b": (
        "LlamaForCausalLM",
        {
            **_SIZES, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
            "num_key_value_heads": 8, "num_hidden_layers": 2,
        },
        LONG,
    ),
}  # fmt: skip
"""The class of each model in transformers, the fields of its configuration, and the tokens of a training sequence.

llama-8b has two layers of the widths of Llama 3 8B.
"""

HELD_OUT: dict[str, tuple[str, dict[str, Any], int]] = {
    "gemma": (
        "GemmaForCausalLM",
        {
            **_SIZES, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 8,
            "num_key_value_heads": 1, "head_dim": 256,
        },
        TOKENS,
    ),
    "phi": (
        "PhiForCausalLM",
        {
            **_SIZES, "hidden_size": 1536, "intermediate_size": 6144, "num_key_value_heads": 16, "head_dim": 96,
            "partial_rotary_factor": 0.5,
        },
        TOKENS,
    ),
    "olmo2": ("Olmo2ForCausalLM", {**_SIZES, "hidden_size": 1664, "intermediate_size": 4480, "num_key_value_heads": 16,
                                   "num_attention_heads": 16, "head_dim": 104}, TOKENS),
    "mistral": ("MistralForCausalLM", {**_SIZES, "hidden_size": 2304, "intermediate_size": 7168}, TOKENS),
    "gpt-neox": ("GPTNeoXForCausalLM", {**_SIZES, "hidden_size": 1280, "intermediate_size": 5120}, TOKENS),
    "qwen2-moe": (
        "Qwen2MoeForCausalLM",
        {
            **_SIZES, "hidden_size": 1024, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 768,
            "shared_expert_intermediate_size": 2816,
        },
        TOKENS,
    ),
    "nanochat": ("NanoChatForCausalLM", {**_SIZES, "hidden_size": 1536, "intermediate_size": 6144}, TOKENS),
    "minimax-m2": (
        "MiniMaxM2ForCausalLM",
        {**_SIZES, "hidden_size": 1280, "intermediate_size": 960, "num_local_experts": 4, "num_experts_per_tok": 2},
        TOKENS,
    ),
    "ministral3": ("Ministral3ForCausalLM", {**_SIZES, "hidden_size": 2560, "intermediate_size": 6656}, TOKENS),
    "jais2": ("Jais2ForCausalLM", {**_SIZES, "hidden_size": 1792, "intermediate_size": 7424}, TOKENS),
}  # fmt: skip
"""Models that no part of a lock was made or tuned for; the fields are those of MODELS."""

MODELS |= HELD_OUT

RECORDED_BY = "recorded-by.json"
"""The file of a folder of locks with the environment that recorded them."""

Attention = Literal["library", "pinned"]
_Scope = Callable[[], AbstractContextManager[Any]]


def environment() -> dict[str, Any]:
    """Return the GPU, its driver, the versions of all that takes part, and variables that select kernels."""
    import torch

    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return {
        "gpu": torch.cuda.get_device_name(), "driver": driver_version(), "torch": torch.__version__,
        "cuda": torch.version.cuda, "triton": version("triton"), "transformers": version("transformers"),
        **({"variables": variables} if variables else {}),
    }  # fmt: skip


def driver_version() -> str:
    """Return the version of the GPU's driver."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.split("\n")[0].strip()
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"


def model_of(name: str) -> Any:
    """Return a model with random weights of bf16 on the GPU; equal names give equal weights."""
    kind, fields, _ = MODELS[name]
    return built_model(kind, fields)


def built_model(kind: str, fields: dict[str, Any], device: str = "cuda") -> Any:
    """Return a model of a class of transformers with random weights of bf16; equal fields give equal weights.

    Attention is that of "sdpa", unless a field names another one.
    """
    import torch

    from bitwise_torch import register_attention

    register_attention()
    model_type: Any = getattr(import_module("transformers"), kind)
    torch.manual_seed(7)
    with torch.device(device):
        found: Any = model_type(model_type.config_class(**{"attn_implementation": "sdpa", **fields}))
    return found.bfloat16()


def tokens(seed: int, length: int) -> Any:
    """Return the tokens of a batch."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, 32000, (BATCH, length), generator=generator).cuda()


def digest_of(*tensors: Any) -> str:
    """Return the SHA-256 of the tensors' bytes, in hexadecimal digits."""
    import torch

    found = hashlib.sha256()
    for each in tensors:
        found.update(each.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes())
    return found.hexdigest()


def training_step(model: Any, optimizer: Any, batch: Any) -> Any:
    """Run a step, and return the logits; the gradients remain."""
    optimizer.zero_grad()
    found = model(input_ids=batch, labels=batch)
    found.loss.backward()
    optimizer.step()
    return found.logits


def bytes_of_run(name: str, scope: _Scope) -> tuple[Any, dict[str, str]]:
    """Return the value of a scope, and the digests of a model's run inside of it."""
    import torch

    model = model_of(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = {}
    with scope() as value:
        for step in range(STEPS):
            logits = training_step(model, optimizer, tokens(step, MODELS[name][-1]))
            found[f"logits of step {step}"] = digest_of(logits)
            found[f"gradients of step {step}"] = digest_of(*(each.grad for each in model.parameters()))
        found["weights"] = digest_of(*model.parameters())
        model.eval()
        with torch.inference_mode():
            prompt = tokens(STEPS, PROMPT)
            generated = model.generate(prompt, max_new_tokens=GENERATED, do_sample=False)
            found["tokens"] = digest_of(generated)
            found["logits after the steps"] = digest_of(model(input_ids=generated).logits)
    return value, found


def recorded(name: str, folder: Path, operators: bool = True, attention: Attention = "library") -> dict[str, Any]:
    """Record a model's lock into a folder, replay it, and return the comparison.

    Without `operators`, the lock has samples of those that multiply alone.  `attention` is that of `recorded_products`.
    """
    begun = time.perf_counter()
    scope = partial(recorded_products, "cublas", operators=operators, attention=attention)
    recording, wanted = bytes_of_run(name, scope)
    lock = recording.lock()
    seconds = round(time.perf_counter() - begun, 1)
    print(f"{name}: recorded in {seconds} s", flush=True)
    lock.write(folder / f"{name}.json")
    (folder / f"{name}.digests.json").write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
    found: dict[str, Any] = {
        "seconds of the recording": seconds, "products": len(lock.entries), "declined": lock.declined,
        "operators": len(lock.operators),
        "operators without a sample": sorted({
            f"{each.operator}: {each.reason}" for each in lock.operators if each.reason is not None
        }),
        "not locked": dict(recording.not_locked),
        "pinned attention": [each.text for each in lock.attention or ()],
        "operators whose own runs may differ": sorted(lock.undetermined),
    }  # fmt: skip
    return found | replayed(name, lock, wanted)


def replayed(name: str, lock: Lock, wanted: dict[str, str]) -> dict[str, Any]:
    """Return which digests of a run from the lock, and of one without it, equal those of the recorded run."""
    compared: dict[str, Any] = {}
    begun = time.perf_counter()
    replay, locked = bytes_of_run(name, lambda: locked_products(lock))
    seconds = round(time.perf_counter() - begun, 1)
    _, free = bytes_of_run(name, nullcontext)
    for each, found in (("lock", locked), ("library", free)):
        compared[f"{each}: other bytes"] = [what for what in wanted if found[what] != wanted[what]]
    return compared | {
        "seconds of the first replay": seconds,
        "replayed": replay.replayed.total(),
        "left to PyTorch": dict(replay.library),
        "calls of pinned attention": 0 if replay.attention is None else replay.attention.calls,
    }


def replayed_here(name: str, folder: Path) -> dict[str, Any]:
    """Compare the samples of a lock on this GPU, replay it, and return the comparison; the lock keeps the digests."""
    path = folder / f"{name}.json"
    lock = read_lock(path)
    checked = checked_operators(lock.operators)
    lock = lock.model_copy(update={"operators": tuple(each.operator for each in checked)})
    lock.write(path)
    verdicts: dict[str, list[str]] = {}
    for each in checked:
        verdicts.setdefault(each.verdict, []).append(each.operator.operator)
    summary = {
        verdict: len(names) if verdict == "agrees" else sorted(set(names)) for verdict, names in verdicts.items()
    }
    wanted = json.loads((folder / f"{name}.digests.json").read_text(encoding="utf-8"))
    return {"samples": summary} | replayed(name, lock, wanted)


def attempted(measure: Callable[[str, Path], dict[str, Any]], name: str, folder: Path) -> dict[str, Any]:
    """Return the result of a model, or the sentence of an error."""
    try:
        return measure(name, folder)
    except BitwiseError as error:
        return {"error": str(error)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Record or replay.  The exit status is 1 if bytes of a lock differ or a model could not run."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.models.model_locks", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="the folder of the locks")
    parser.add_argument("--replay", action="store_true", help="replay the locks of the folder")
    parser.add_argument(
        "--products-only", action="store_true", help="record no operators that multiply nothing; shorter"
    )
    parser.add_argument(
        "--attention", choices=["library", "pinned"], default="library", help="who computes attention while recording"
    )
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--jobs", type=int, default=1, help="models that run at once")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    measure = (
        replayed_here
        if given.replay
        else partial(recorded, operators=not given.products_only, attention=given.attention)
    )
    content: dict[str, Any] = {
        "environment": environment(),
        "shape": {
            "sequences": BATCH, "tokens": {each: MODELS[each][-1] for each in given.models}, "steps": STEPS,
            "prompt": PROMPT, "generated tokens": GENERATED,
        },
        "models": {},
    }  # fmt: skip
    origin = given.folder / RECORDED_BY
    if given.replay:
        content["recorded by"] = json.loads(origin.read_text(encoding="utf-8")) if origin.exists() else None
    else:
        origin.write_text(json.dumps(content["environment"], indent=1) + "\n", encoding="utf-8")

    def write(name: str) -> None:
        print(name, json.dumps(content["models"][name], indent=1), flush=True)
        given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {pool.submit(attempted, measure, name, given.folder): name for name in given.models}
        for each in as_completed(running):
            failed = each.exception()
            error = {"error": f"{type(failed).__name__}: {failed}"}
            content["models"][running[each]] = each.result() if failed is None else error
            write(running[each])
    content["models"] = {name: content["models"][name] for name in given.models}
    given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    results = content["models"].values()
    return 1 if any("error" in each or each["lock: other bytes"] for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
