"""Transformers under the batch-invariant mode: the bytes of a sequence in training, prefill and decode, and the cost.

    python -m bitwise_bench.train_equals_serve --out record.json

The logits of a sequence that runs alone are compared with those of the sequence in batches with other sequences of
other lengths, padded on either side, in prefill by chunks, and token by token with a cache of keys and values.  Then a
batch generates tokens, and the log-probabilities of a training forward are compared with those of the generation.  Each
comparison also runs without the mode, which is the negative control.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bitwise_bench.model_locks import MODELS, digest_of, model_of
from bitwise_torch import batch_invariant

LENGTH, PROMPT, GENERATED = 96, 40, 24
"""Tokens of the compared sequence, of the longest prompt, and tokens that are generated."""

BATCHES = (1, 3, 16, 64)
CHUNKS = (1, 17)
"""The numbers of tokens of a chunk of the prefill."""

_Scope = Callable[[], AbstractContextManager[Any]]


@contextmanager
def strict_mode() -> Iterator[None]:
    """The mode; an operator without a pinned order is an error."""
    with batch_invariant(strict=True):
        yield


def sequences(number: int, longest: int, vocabulary: int, device: str) -> list[Any]:
    """Return sequences of tokens; the first one has the greatest length."""
    import torch

    generator = torch.Generator().manual_seed(11)
    lengths = [longest, *torch.randint(1, longest, (number - 1,), generator=generator).tolist()]
    first = torch.randint(2, vocabulary, (longest,), generator=torch.Generator().manual_seed(3))
    others = [torch.randint(2, vocabulary, (each,), generator=generator) for each in lengths[1:]]
    return [each.to(device) for each in (first, *others)]


def padded(rows: Sequence[Any], left: bool) -> tuple[Any, Any, Any]:
    """Return the tokens of sequences as a matrix, its mask, and the positions."""
    import torch

    longest = max(len(each) for each in rows)
    tokens = torch.zeros((len(rows), longest), dtype=torch.long, device=rows[0].device)
    mask = torch.zeros_like(tokens)
    for row, each in enumerate(rows):
        part = slice(longest - len(each), longest) if left else slice(0, len(each))
        tokens[row, part] = each
        mask[row, part] = 1
    return tokens, mask, (mask.cumsum(1) - 1).clamp(min=0)


def row_in_batch(model: Any, number: int, left: bool, length: int) -> Any:
    """Return the logits of the compared sequence as the middle row of a batch, with a longer sequence beside it."""
    vocabulary, device = model.config.vocab_size, str(model.device)
    first, *others = sequences(number, length, vocabulary, device)
    if others:
        others[0] = others[0].repeat(-(-(length + 13) // len(others[0])))[: length + 13]
    place = number // 2
    tokens, mask, positions = padded([*others[:place], first, *others[place:]], left)
    logits = model(input_ids=tokens, attention_mask=mask, position_ids=positions).logits[place]
    return logits[-length:] if left else logits[:length]


def by_chunks(model: Any, sizes: Sequence[int], length: int) -> Any:
    """Return the logits of the compared sequence in parts of these sizes, the last one repeated, with a cache."""
    import torch

    (tokens,) = sequences(1, length, model.config.vocab_size, str(model.device))
    cache, found, begin, each = None, [], 0, 0
    while begin < length:
        end = min(length, begin + sizes[min(each, len(sizes) - 1)])
        result = model(input_ids=tokens[None, begin:end], past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        found.append(result.logits[0])
        begin, each = end, each + 1
    return torch.cat(found)


def generated(model: Any, number: int, prompt: int, steps: int) -> tuple[list[Any], list[Any]]:
    """Return the sequences of a batch, left-padded, after so many greedy tokens, and the distribution of each token."""
    import torch

    prompts = sequences(number, prompt, model.config.vocab_size, str(model.device))
    tokens, mask, positions = padded(prompts, left=True)
    cache, distributions, chosen = None, [], []
    for _ in range(steps):
        result = model(
            input_ids=tokens, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        cache = result.past_key_values
        distributions.append(torch.log_softmax(result.logits[:, -1].float(), -1))
        tokens = distributions[-1].argmax(-1, keepdim=True)
        chosen.append(tokens)
        mask = torch.cat([mask, torch.ones_like(tokens)], 1)
        positions = positions[:, -1:] + 1
    rows = torch.cat(chosen, 1)
    whole = [torch.cat([each, row]) for each, row in zip(prompts, rows, strict=True)]
    return whole, list(torch.stack(distributions, 1))


def trained(model: Any, rows: Sequence[Any], steps: int, checkpointing: bool) -> tuple[list[Any], str]:
    """Return the distributions of the last tokens of each sequence in a training forward, and a digest of gradients."""
    import torch

    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    model.zero_grad(set_to_none=True)
    tokens, mask, positions = padded(rows, left=False)
    result = model(input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=False)
    logarithms = torch.log_softmax(result.logits.float(), -1)
    found = [logarithms[row, len(each) - 1 - steps : len(each) - 1] for row, each in enumerate(rows)]
    # The mean negative log-probability of the generated tokens.
    chosen = [each.gather(-1, row[-steps:, None]) for each, row in zip(found, rows, strict=True)]
    (-torch.cat(chosen).mean()).backward()
    gradients = digest_of(*(each.grad for each in model.parameters() if each.grad is not None))
    if checkpointing:
        model.gradient_checkpointing_disable()
    model.eval()
    return [each.detach() for each in found], gradients


def divergence(left: Sequence[Any], right: Sequence[Any]) -> float:
    """Return the greatest absolute Kullback-Leibler divergence of pairs of log-distributions."""
    return max(
        float((x.double().exp() * (x.double() - y.double())).sum(-1).abs().max())
        for x, y in zip(left, right, strict=True)
    )


def comparisons(model: Any, scope: _Scope, batches: Sequence[int], length: int) -> dict[str, bool | float]:
    """Return what equals the logits of the sequence alone, and the greatest divergence of training from generation."""
    import torch

    found: dict[str, bool | float] = {}

    def note(what: str, equal: bool) -> None:
        found[what] = equal
        print(f"{what}: {'equal' if equal else 'DIFFERENT'}", flush=True)

    with scope():
        with torch.inference_mode():
            alone = row_in_batch(model, 1, left=False, length=length)
            for number in batches:
                for side in ("right", "left") if number > 1 else ():
                    in_batch = row_in_batch(model, number, side == "left", length)
                    note(f"batch of {number}, padded on the {side}", torch.equal(in_batch, alone))
            for chunk in CHUNKS:
                note(f"prefill by {chunk}", torch.equal(by_chunks(model, (chunk,), length), alone))
            half = by_chunks(model, (length // 2, 1), length)
            note("prefill, then token by token", torch.equal(half, alone))
            largest = batches[-1]
            rows, served = generated(model, largest, PROMPT, GENERATED)
            single = generated(model, 1, PROMPT, GENERATED)[1][0]
            note(f"generation alone and in a batch of {largest}", torch.equal(single, served[0]))
        rows = [each.clone() for each in rows]  # outside of the inference mode, for gradients
        plain, gradients = trained(model, rows[:8], GENERATED, checkpointing=False)
        checkpointed, again = trained(model, rows[:8], GENERATED, checkpointing=True)
        note("gradients with and without checkpointing", gradients == again)
        note("training and generation", all(map(torch.equal, plain, served[:8])))
        note("checkpointed training and generation", all(map(torch.equal, checkpointed, served[:8])))
    found["greatest divergence"] = divergence(plain, served[:8])
    return found


def milliseconds(model: Any, rounds: int) -> dict[str, dict[str, float]]:
    """Return the median times of a prefill, a decode step and a training step, of PyTorch and under the mode."""
    import torch

    vocabulary = model.config.vocab_size
    prompt = torch.stack([sequences(1, 1024, vocabulary, "cuda")[0]] * 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def prefill() -> None:
        with torch.inference_mode():
            model(input_ids=prompt, use_cache=False)

    def decode() -> None:
        with torch.inference_mode():
            cache = model(input_ids=prompt[:, :64], use_cache=True).past_key_values
            for place in range(64, 72):
                cache = model(input_ids=prompt[:, place : place + 1], past_key_values=cache).past_key_values

    def step() -> None:
        optimizer.zero_grad()
        model(input_ids=prompt, labels=prompt, use_cache=False).loss.backward()
        optimizer.step()

    found: dict[str, dict[str, float]] = {}
    work = {"prefill of 2 x 1024": prefill, "prefill of 2 x 64 and 8 tokens": decode, "training step of 2 x 1024": step}
    for what, run in work.items():
        times: dict[str, list[float]] = {"PyTorch": [], "mode": []}
        for turn in range(rounds + 2):
            for name, scope in (("PyTorch", nullcontext), ("mode", batch_invariant)):
                with scope():
                    torch.cuda.synchronize()
                    begun = time.perf_counter()
                    run()
                    torch.cuda.synchronize()
                if turn >= 2:
                    times[name].append(time.perf_counter() - begun)
        found[what] = {name: round(statistics.median(values) * 1e3, 3) for name, values in times.items()}
        print(what, found[what], flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and measure.  The exit status is 1 if bytes differ under the mode, or all agree without it."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.train_equals_serve", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["llama", "qwen3", "mixtral"])
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each time, 0 for none")
    given = parser.parse_args(arguments)
    import torch

    warnings.filterwarnings("ignore", message="the bytes of aten::(_foreach_norm|linalg_vector_norm) may depend")
    content: dict[str, Any] = {
        "environment": {
            "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
            "triton": version("triton"), "transformers": version("transformers"),
        },
        "shape": {"tokens": LENGTH, "batches": given.batches, "chunks": list(CHUNKS), "generated tokens": GENERATED},
        "models": {},
    }  # fmt: skip
    failed = False
    for name in given.models:
        begun = time.perf_counter()
        model = model_of(name).eval()
        under = comparisons(model, strict_mode, given.batches, LENGTH)
        seconds = round(time.perf_counter() - begun, 1)
        without = comparisons(model, nullcontext, given.batches, LENGTH)
        equal = all(each for what, each in under.items() if what != "greatest divergence")
        differing = [what for what, each in without.items() if each is False]
        failed |= not equal or bool(under["greatest divergence"]) or not differing
        found = {"seconds of the comparisons": seconds, "mode": under, "without the mode, differing": differing,
                 "without the mode, greatest divergence": without["greatest divergence"]}  # fmt: skip
        if given.rounds:
            found["milliseconds"] = milliseconds(model, given.rounds)
        content["models"][name] = found
        print(name, json.dumps(found, indent=1), flush=True)
        given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
