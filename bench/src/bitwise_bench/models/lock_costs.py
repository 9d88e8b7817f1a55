"""The times of transformers under a lock beside the library's: training steps, decoding, CUDA graphs, torch.compile.

    python -m bitwise_bench.models.lock_costs --out costs.json

Each model of `model_locks` is recorded in a lock, and runs in turns in the library and from the lock, in a process of
its own; models are measured one after the other.  A compiled model is one function of torch.compile.  The record has
the medians and the quartiles of the turns.  `model_locks` compares bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from bitwise_bench.models.mode_costs import (
    Costs,
    Measured,
    Scope,
    Work,
    add_costs,
    add_preparation,
    captured,
    decode,
    filled_cache,
    no_times,
    ready_work,
)
from bitwise_bench.models.model_locks import (
    BATCH,
    HELD_OUT,
    MODELS,
    Attention,
    environment,
    model_of,
    tokens,
    training_step,
)
from bitwise_torch import locked_products, recorded_products

CONTEXT, TOKENS_OF_A_TURN, PREFILL = 64, 4, 512
"""Tokens before those that are decoded, tokens that are decoded in a turn, and tokens of a compiled prefill."""

COMPILED = " compiled"
"""The end of the name of a model that is measured as a function of torch.compile as well."""

PINNED = " with pinned attention"
"""The end of the name of a model whose lock pins attention."""

MEASURED = [f"{name}{end}" for name in MODELS for end in ("", PINNED, COMPILED)]
"""What can be measured."""


def works_of(name: str) -> dict[str, tuple[Work, int, Work | None]]:
    """Return the works of a model by name: a run, its parts, and what a CUDA graph captures or None.

    Pinned attention has no graph here: transformers gives it a mask in a capture, which cannot be read there.
    """
    import torch

    compiled, pinned = name.endswith(COMPILED), name.endswith(PINNED)
    name = name.removesuffix(COMPILED).removesuffix(PINNED)
    model = model_of(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    batch = tokens(0, MODELS[name][-1])
    if not compiled:
        cache = filled_cache(model, tokens(1, CONTEXT))
        turn, one = (partial(decode, model, cache, batch[:, :1].contiguous(), each) for each in (TOKENS_OF_A_TURN, 1))
        return {
            "training step": (partial(training_step, model, optimizer, batch), 1, None),
            "decode": (turn, TOKENS_OF_A_TURN, None if pinned else one),
        }
    model.config.use_cache = False
    function = torch.compile(model, fullgraph=True, dynamic=False)
    prompt = batch[:, :PREFILL].contiguous()

    def prefill() -> None:
        with torch.inference_mode():
            function(input_ids=prompt)

    return {
        "compiled training step": (partial(training_step, function, optimizer, batch), 1, None),
        "compiled prefill": (prefill, 1, prefill),
    }


def prepared(name: str) -> dict[str, Measured]:
    """Return the works of a model, which a lock holds, in the library and under the lock."""
    works = works_of(name)
    attention: Attention = "pinned" if name.endswith(PINNED) else "library"
    with recorded_products("cublas", operators=False, attention=attention) as recording:
        for run, _, graph in works.values():
            run()
            if graph is not None:  # transformers gives attention a mask in a capture
                captured(graph, nullcontext)
    lock = recording.lock()
    print(f"{name}: recorded {len(lock.entries)} products", flush=True)
    # Two runs of the gradients of a compiled model's attention differ, so that a lock has no sample of them.
    locked = partial(locked_products, lock, missing="pass" if name.endswith(COMPILED) else "error")
    scopes: Mapping[str, Scope] = {"PyTorch": nullcontext, "lock": locked}
    found = {}
    for what, (run, parts, graph) in works.items():
        found[what] = ready_work(run, parts, scopes, graph)
        with locked() as replay:
            run()
        print(f"{name}: {what} is ready", *replay.report(), sep="\n    ", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write a record.  The exit status is 1 where a model could not be measured."""
    parser = argparse.ArgumentParser(prog="bitwise_bench.models.lock_costs", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="+", choices=MEASURED, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=15, help="measured turns of each scope")
    add_preparation(parser)
    given = parser.parse_args(arguments)
    content: dict[str, Any] = {
        "environment": environment(),
        "shape": {
            "sequences": BATCH, "tokens": {name: fields[-1] for name, fields in MODELS.items()}, "context": CONTEXT,
            "compiled prefill": PREFILL,
        },
        "held out": [f"{name}{end}" for name in HELD_OUT for end in ("", PINNED, COMPILED)], "turns": given.rounds,
        **no_times(),
    }  # fmt: skip
    for name, times in Costs(given.models, given.rounds, prepared, given.preparation).measured():
        add_costs(content, name, times)
        print(name, json.dumps({each: content[each][name] for each in ("milliseconds", "quartiles")}), flush=True)
        given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0 if all(content["milliseconds"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
