"""The times of transformers under the batch-invariant mode beside PyTorch's own, for the layer widths of dense models.

    python -m bitwise_bench.models.mode_costs --out costs.json
    python -m bitwise_bench.models.mode_costs --out costs.json --models --drawn 4 --seed 7    # of drawn widths

Each model has two layers of the widths of a model of 1 to 8 billion parameters, and random weights of bf16.  Prefill,
decoding and a training step run in turns under PyTorch, under the mode, and under the package batch_invariant_ops where
it is installed, and afterwards under PyTorch in a process whose library has no workspaces.  A ratio is such a time,
divided by that of PyTorch.  Prefill and decoding also run as CUDA graphs, whose time has no part of the host's.  Every
measured run repeats one of the same shapes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from operator import truediv
from pathlib import Path
from queue import Empty
from typing import Any

from bitwise_bench.models.drawn_models import drawn_widths
from bitwise_bench.models.model_locks import built_model, environment
from bitwise_torch import batch_invariant
from bitwise_torch.interception import restore_kernels

PREFILL, DECODE, TRAINING = (512, 2048, 8192), (1, 8, 64), 2048
"""Tokens of a prefill, sequences that decode together, and tokens of a training step."""

CONTEXT = 512
"""Tokens of each sequence before those that are decoded."""

TOKENS_OF_A_TURN, REPLAYS = 8, 10
"""Tokens that are decoded in a measured turn, and replays of a CUDA graph."""

_FIELDS = {
    "vocab_size": 8192, "num_hidden_layers": 2, "max_position_embeddings": 16384, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": None, "num_key_value_heads": 8,
}  # fmt: skip
WIDTHS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-3.2-1b": (
        "LlamaForCausalLM",
        {**_FIELDS, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "head_dim": 64},
    ),
    "llama-3.2-3b": (
        "LlamaForCausalLM",
        {**_FIELDS, "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 24, "head_dim": 128},
    ),
    "qwen3-4b": (
        "Qwen3ForCausalLM",
        {**_FIELDS, "hidden_size": 2560, "intermediate_size": 9728, "num_attention_heads": 32, "head_dim": 128},
    ),
    "llama-3.1-8b": (
        "LlamaForCausalLM",
        {**_FIELDS, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "head_dim": 128},
    ),
    "starcoder2-3b": (
        "Starcoder2ForCausalLM",
        {
            **_FIELDS, "hidden_size": 3072, "intermediate_size": 12288, "num_attention_heads": 24,
            "num_key_value_heads": 2, "sliding_window": 4096,
        },
    ),
    "exaone-3.5-2.4b": (
        "LlamaForCausalLM",
        {**_FIELDS, "hidden_size": 2560, "intermediate_size": 7168, "num_attention_heads": 32, "head_dim": 80},
    ),
}  # fmt: skip
HELD_OUT: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2.5-3b": (
        "Qwen2ForCausalLM",
        {
            **_FIELDS, "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
            "num_key_value_heads": 2,
        },
    ),
    "olmo-2-7b": (
        "Olmo2ForCausalLM",
        {
            **_FIELDS, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
            "num_key_value_heads": 32,
        },
    ),
    "qwen2.5-7b": (
        "Qwen2ForCausalLM",
        {
            **_FIELDS, "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
            "num_key_value_heads": 4,
        },
    ),
    "falcon3-3b": (
        "LlamaForCausalLM",
        {
            **_FIELDS, "hidden_size": 3072, "intermediate_size": 9216, "num_attention_heads": 12,
            "num_key_value_heads": 4, "head_dim": 256,
        },
    ),
    "internlm3-8b": (
        "LlamaForCausalLM",
        {
            **_FIELDS, "hidden_size": 4096, "intermediate_size": 10240, "num_attention_heads": 32,
            "num_key_value_heads": 2, "head_dim": 128,
        },
    ),
    "tinyllama-1.1b": (
        "LlamaForCausalLM",
        {
            **_FIELDS, "hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 32,
            "num_key_value_heads": 4, "head_dim": 64,
        },
    ),
    "qwen3-1.7b": (
        "Qwen3ForCausalLM",
        {**_FIELDS, "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16, "head_dim": 128},
    ),
    "phi-3-mini": (
        "Phi3ForCausalLM",
        {
            **_FIELDS, "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 32,
            "num_key_value_heads": 32, "original_max_position_embeddings": 16384,
        },
    ),
    "yi-1.5-6b": (
        "LlamaForCausalLM",
        {
            **_FIELDS, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
            "num_key_value_heads": 4, "head_dim": 128,
        },
    ),
    "granite-3.1-8b": (
        "GraniteForCausalLM",
        {**_FIELDS, "hidden_size": 4096, "intermediate_size": 12800, "num_attention_heads": 32},
    ),
    # The next six were drawn from 24 public models.
    "apertus-8b": (
        "ApertusForCausalLM",
        {**_FIELDS, "hidden_size": 4096, "intermediate_size": 21504, "num_attention_heads": 32},
    ),
    "afm-4.5b": (
        "ArceeForCausalLM",
        {
            **_FIELDS, "hidden_size": 2560, "intermediate_size": 18432, "num_attention_heads": 20,
            "num_key_value_heads": 4, "head_dim": 128,
        },
    ),
    "smollm3-3b": (
        "SmolLM3ForCausalLM",
        {
            **_FIELDS, "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
            "num_key_value_heads": 4,
        },
    ),
    "pythia-6.9b": (
        "GPTNeoXForCausalLM",
        {**_FIELDS, "hidden_size": 4096, "intermediate_size": 16384, "num_attention_heads": 32},
    ),
    "olmo-2-1b": (
        "Olmo2ForCausalLM",
        {
            **_FIELDS, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16,
            "num_key_value_heads": 16,
        },
    ),
    "chatglm3-6b": (
        "GlmForCausalLM",
        {
            **_FIELDS, "hidden_size": 4096, "intermediate_size": 13696, "num_attention_heads": 32,
            "num_key_value_heads": 2, "head_dim": 128,
        },
    ),
}  # fmt: skip
"""Widths that no kernel or schedule was chosen for."""
WIDTHS |= HELD_OUT
"""By the model whose widths they are: the class of transformers, and the fields of its configuration."""

MEASURED = [*WIDTHS, "rows"]
"""What is measured: models, and the operators of rows."""

DRAWN = "drawn"
"""The beginning of the name of a model of drawn widths, before the seed and the number of the draw."""

STARVED = "starved workspaces"
"""The scope of PyTorch in a process whose library has no workspaces, and the end of the name of a model there."""

NO_WORKSPACES = {"CUBLAS_WORKSPACE_CONFIG": ":0:0", "CUBLASLT_WORKSPACE_SIZE": "0"}
"""The variables of such a process: the setting of which the fewest exceptions from batch invariance are known."""


def widths_of(name: str) -> tuple[str, dict[str, Any]]:
    """Return the class of a model in transformers, and the fields of its configuration."""
    if not name.startswith(DRAWN):
        return WIDTHS[name]
    kind, fields = drawn_widths(*map(int, name.split()[1:]))
    return kind, {**_FIELDS, **fields}


Scope = Callable[[], AbstractContextManager[Any]]
Work = Callable[[], Any]


def scopes() -> dict[str, Scope]:
    """Return the measured scopes by name; "PyTorch" is the base of the ratios."""
    found: dict[str, Scope] = {"PyTorch": nullcontext, "mode": batch_invariant}
    if importlib.util.find_spec("batch_invariant_ops") is not None:
        found["batch_invariant_ops"] = _alternative
    return found


@contextmanager
def _alternative() -> Iterator[None]:
    """The mode of batch_invariant_ops, which cannot replace kernels that the end of a mode left replaced."""
    restore_kernels()
    with import_module("batch_invariant_ops").set_batch_invariant_mode():
        yield


def installed_alternative() -> str:
    """Return what the package batch_invariant_ops says of itself, or that it is not installed."""
    if importlib.util.find_spec("batch_invariant_ops") is None:
        return "not installed"
    text = import_module("batch_invariant_ops").__doc__ or "measured"
    return text.strip().split("\n")[0].rstrip(".")


def tokens_of(model: Any, sequences: int, length: int) -> Any:
    """Return tokens on the model's device."""
    import torch

    generator = torch.Generator().manual_seed(sequences + length)
    return torch.randint(2, model.config.vocab_size, (sequences, length), generator=generator).to(model.device)


def prefill(model: Any, tokens: Any) -> None:
    """Compute the logits of the last token."""
    import torch

    with torch.inference_mode():
        model(input_ids=tokens, use_cache=False, logits_to_keep=1)


def filled_cache(model: Any, tokens: Any) -> Any:
    """Return the cache of keys and values of a context."""
    import torch

    with torch.inference_mode():
        return model(input_ids=tokens, use_cache=True, logits_to_keep=1).past_key_values


def decode(model: Any, cache: Any, token: Any, steps: int) -> None:
    """Compute the logits of so many tokens, one after the other; the cache is as before."""
    import torch

    kept = [dict(vars(each)) for each in cache.layers]
    with torch.inference_mode():
        for _ in range(steps):
            model(input_ids=token, past_key_values=cache, use_cache=True)
    for layer, state in zip(cache.layers, kept, strict=True):
        vars(layer).update(state)  # a layer with a window also counts the tokens that it has seen


@dataclass(frozen=True)
class _Replay:
    """A CUDA graph of a run, and the run, which keeps the graph's inputs alive."""

    graph: Any
    run: Work

    def __call__(self) -> None:
        """Replay the graph."""
        self.graph.replay()


def captured(run: Work, scope: Scope) -> Work:
    """Return the replay of a CUDA graph of a run in a scope."""
    import torch

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with scope(), torch.cuda.stream(stream):
        for _ in range(3):
            run()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            run()
    return _Replay(graph, run)


@contextmanager
def timed(found: list[float], parts: int) -> Iterator[None]:
    """Append the milliseconds of a part of a block, until the GPU has finished, to a list."""
    import torch

    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    synchronize()
    begun = time.perf_counter()
    yield
    synchronize()
    found.append((time.perf_counter() - begun) * 1e3 / parts)


Times = dict[str, list[float]]
"""The milliseconds of each turn, by scope."""


def eager_times(run: Work, parts: int, scopes: Mapping[str, Scope], rounds: int) -> Times:
    """Return the milliseconds of a part of a run in each scope; the scopes take turns, in both orders."""
    times: Times = {name: [] for name in scopes}
    for turn in range(rounds):
        for name in in_turn(scopes, turn):
            with scopes[name]():
                run()  # look-ups of the first call after an entry
                with timed(times[name], parts):
                    run()
    return times


def graph_times(replays: Mapping[str, Work], rounds: int) -> Times:
    """Return the milliseconds of a replay of each scope's CUDA graph; the scopes take turns, in both orders."""
    times: Times = {name: [] for name in replays}
    for turn in range(rounds):
        for name in in_turn(replays, turn):
            replays[name]()
            with timed(times[name], REPLAYS):
                for _ in range(REPLAYS):
                    replays[name]()
    return times


def in_turn(names: Iterable[str], turn: int) -> list[str]:
    """Return names, backwards in each second turn."""
    return list(names)[:: -1 if turn % 2 else 1]


def medians(times: Times) -> dict[str, float]:
    """Return the median of each list, to four digits behind the point."""
    return {name: round(statistics.median(values), 4) for name, values in times.items() if values}


def quartiles(times: Times) -> dict[str, list[float]]:
    """Return the first and the third quartile of each list of two numbers or more, to four digits behind the point."""
    return {
        name: [round(each, 4) for each in statistics.quantiles(values, n=4, method="inclusive")[::2]]
        for name, values in times.items() if len(values) > 1
    }  # fmt: skip


ROWS = ((4096, 4096), (2048, 5120), (65536, 128), (64, 4096), (512, 32000), (64, 128256), (333, 3001))
"""Numbers of rows, and of columns."""


def row_operators(rows: int, columns: int) -> dict[str, Work]:
    """Return the operators of rows on bf16 numbers of a shape, by name."""
    import torch
    from torch.nn import functional

    random = torch.Generator(device="cuda").manual_seed(rows + columns)
    x, g = (torch.randn(rows, columns, device="cuda", generator=random).bfloat16() for _ in range(2))
    weight = torch.randn(columns, device="cuda", generator=random).bfloat16()
    wide, y = x.float(), torch.softmax(x, -1)
    _, scale = torch.ops.aten._fused_rms_norm(x, [columns], weight, 1e-6)
    return {
        "rms_norm": lambda: torch.rms_norm(x, (columns,), weight, 1e-6),
        "layer_norm": lambda: functional.layer_norm(x, (columns,), weight, weight),
        "softmax": lambda: torch.softmax(x, -1),
        "log_softmax of fp32": lambda: torch.log_softmax(wide, -1),
        "mean of fp32": lambda: wide.mean(-1, keepdim=True),
        "sum": lambda: x.sum(-1),
        "sum over rows": lambda: x.sum(0),
        "gradient of rms_norm": lambda: torch.ops.aten._fused_rms_norm_backward(
            g, x, [columns], scale, weight, [True, False]
        ),
        "gradient of softmax": lambda: torch.ops.aten._softmax_backward_data(g, y, -1, torch.bfloat16),
    }


@dataclass(frozen=True)
class Measured:
    """Work whose first runs are over: the parts of a run, its CUDA graphs, and its scopes; one of the first may be
    missing.
    """

    run: Work | None
    parts: int
    replays: Mapping[str, Work] | None
    scopes: Mapping[str, Scope] = field(default_factory=scopes)


def ready_work(run: Work, parts: int, scopes: Mapping[str, Scope], graph: Work | None = None) -> Measured:
    """Run a work of so many parts in each scope, and capture the CUDA graphs of `graph`."""
    for scope in scopes.values():
        with scope():
            run()
    replays = None if graph is None else {each: captured(graph, scope) for each, scope in scopes.items()}
    return Measured(run, parts, replays, scopes)


def prepared(name: str) -> dict[str, Measured]:
    """Return the works of a model, whose kernels are compiled and whose graphs are captured in each scope.

    With the name of a model and STARVED behind it, this process gets no workspaces for its library.
    """
    import torch

    measured: Mapping[str, Scope] = scopes()
    if name.endswith(STARVED):
        name, measured = name.removesuffix(f" {STARVED}"), {STARVED: nullcontext}
        os.environ |= NO_WORKSPACES
    model = built_model(*widths_of(name)).eval()
    found: dict[str, Measured] = {}

    def add(what: str, run: Work, parts: int = 1, graph: Work | None = None) -> None:
        found[what] = ready_work(run, parts, measured, graph)
        print(f"{name}: {what} is ready", flush=True)

    for length in PREFILL:
        run = partial(prefill, model, tokens_of(model, 1, length))
        add(f"prefill of {length}", run, graph=run)
    for sequences in DECODE:
        given = (model, filled_cache(model, tokens_of(model, sequences, CONTEXT)), tokens_of(model, sequences, 1))
        turn = partial(decode, *given, TOKENS_OF_A_TURN)
        add(f"decode of {sequences}", turn, TOKENS_OF_A_TURN, partial(decode, *given, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    tokens = tokens_of(model, 1, TRAINING)

    def step() -> None:
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
        optimizer.step()

    add(f"training step of {TRAINING}", step)
    return found


def prepared_rows() -> dict[str, Measured]:
    """Return the operators of rows as CUDA graphs."""
    return {
        f"{name} of {rows} x {columns}": Measured(
            None, 1, {each: captured(run, scope) for each, scope in scopes().items()}
        )
        for rows, columns in ROWS
        for name, run in row_operators(rows, columns).items()
    }


def costs(works: Mapping[str, Measured], rounds: int) -> dict[str, Times]:
    """Return the milliseconds of each work in each scope."""
    found = {}
    for what, each in works.items():
        if each.run is not None:
            found[what] = eager_times(each.run, each.parts, each.scopes, rounds)
        if each.replays is not None:
            found[f"{what}, graph"] = graph_times(each.replays, rounds)
    return found


_Prepare = Callable[[str], Mapping[str, Measured]]


def prepared_by_name(name: str) -> dict[str, Measured]:
    """Return the works of a model, or the operators of rows."""
    return prepared_rows() if name == "rows" else prepared(name)


def _prepare_and_measure(
    prepare: _Prepare, name: str, rounds: int, ready: Any, begin: Any, alone: Any, results: Any
) -> None:
    """Prepare a model, wait until all are prepared, and measure it alone; one that cannot be prepared has no costs."""
    works: Mapping[str, Measured] = {}
    try:
        works = prepare(name)
    except Exception:  # the other models are still measured
        traceback.print_exc()
        print(f"{name} could not be prepared", flush=True)
    ready.set()
    begin.wait()
    with alone:
        results.put((name, costs(works, rounds)))


class Costs:
    """The costs of models, which are prepared at once, each in a process, and measured one after the other.

    Models that take more than `seconds` to be prepared are not measured.
    """

    def __init__(
        self, names: Sequence[str], rounds: int, prepare: _Prepare = prepared_by_name, seconds: float = math.inf
    ) -> None:
        context = get_context("spawn")
        # A process opens these when it starts; they end with the last reference to them here.
        self._begin, self._alone, self._results = context.Event(), context.Lock(), context.Queue()
        self._ready = {name: context.Event() for name in names}
        self._processes = {
            name: context.Process(
                target=_prepare_and_measure,
                args=(prepare, name, rounds, ready, self._begin, self._alone, self._results),
                daemon=True,
            )
            for name, ready in self._ready.items()
        }
        self._end = time.monotonic() + seconds
        for each in self._processes.values():
            each.start()

    def measured(self) -> Iterator[tuple[str, dict[str, Times]]]:
        """Let the models be measured, and yield each with its times; one that was not prepared in time has none.

        Raises RuntimeError where a process failed.
        """
        while not all(each.is_set() for each in self._ready.values()) and time.monotonic() < self._end:
            self._check()
            time.sleep(0.05)
        for name in [name for name, ready in self._ready.items() if not ready.is_set()]:
            process = self._processes.pop(name)
            process.kill()
            process.join()
            print(f"{name} was not prepared in time", flush=True)
            yield name, {}
        self._begin.set()
        left = len(self._processes)
        while left:
            try:
                yield self._results.get(timeout=1)
            except Empty:
                self._check()
            else:
                left -= 1
        for each in self._processes.values():
            each.join()

    def _check(self) -> None:
        """Raise RuntimeError where a process failed."""
        if any(each.exitcode for each in self._processes.values()):
            raise RuntimeError("a model could not be measured; its error is printed above")


def add_preparation(parser: argparse.ArgumentParser) -> None:
    """Add the option of the seconds in which models are prepared."""
    parser.add_argument(
        "--preparation", type=float, default=math.inf, metavar="SECONDS",
        help="do not measure models that take more time to be prepared",
    )  # fmt: skip


def ratios_of_turns(times: Times) -> dict[str, list[float]]:
    """Return the quartiles of the times beside PyTorch's in the same turn, by scope, to four digits behind the point.

    What slows a machine down for a while slows both.
    """
    base = times.get("PyTorch", [])
    return {
        scope: [round(each, 4) for each in statistics.quantiles(map(truediv, values, base), n=4, method="inclusive")]
        for scope, values in times.items() if scope != "PyTorch" and len(values) == len(base) > 1
    }  # fmt: skip


def ratios(content: Mapping[str, Any], names: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return, by kind of work and scope, the geometric mean over models and sizes of the times beside PyTorch's.

    A ratio is the median of those of the turns, or that of the medians for a scope that has no turns with PyTorch.
    """
    kinds: dict[str, dict[str, list[float]]] = {}
    for name in names:
        for what, times in content["milliseconds"][name].items():
            kind = what.removesuffix(", graph").rsplit(" of ", 1)[0] + (", graph" if what.endswith("graph") else "")
            for scope in times if "PyTorch" in times else ():
                if scope == "PyTorch":
                    continue
                turns = content["ratios of turns"][name][what].get(scope)
                ratio = times[scope] / times["PyTorch"] if turns is None else turns[1]
                kinds.setdefault(kind, {}).setdefault(scope, []).append(ratio)
    return {
        kind: {scope: round(math.exp(statistics.fmean(map(math.log, each))), 4) for scope, each in found.items()}
        for kind, found in kinds.items()
    }


def no_costs() -> dict[str, Any]:
    """Return a record's part of the costs, without any."""
    return {
        "shape": {
            "prefill": PREFILL, "decode": DECODE, "context of decoding": CONTEXT, "training": TRAINING,
            "layers": _FIELDS["num_hidden_layers"], "vocabulary": _FIELDS["vocab_size"],
        },
        "held out": list(HELD_OUT), **no_times(),
    }  # fmt: skip


def no_times() -> dict[str, Any]:
    """Return a record's part of the times, without any; "quartiles" are the first and the third one."""
    return {"milliseconds": {}, "quartiles": {}, "ratios of turns": {}, "ratios": {}}


def add_costs(content: dict[str, Any], name: str, measured: Mapping[str, Times]) -> None:
    """Add the times of a model to a record's part of the times, and compute the ratios anew.

    A time of rows is that of a CUDA graph.
    """
    if name == "rows":
        measured = {what.removesuffix(", graph"): each for what, each in measured.items()}
    name = name.removesuffix(f" {STARVED}")
    summaries = (("milliseconds", medians), ("quartiles", quartiles), ("ratios of turns", ratios_of_turns))
    for kind, summary in summaries:
        of_model = content[kind].setdefault(name, {})
        for what, each in measured.items():
            of_model[what] = {**of_model.get(what, {}), **summary(each)}
    models = [each for each in content["milliseconds"] if each != "rows"]
    content["ratios of held-out models"] = ratios(content, [each for each in models if each in content["held out"]])
    content["ratios"] = (
        ratios(content, models)
        | ({"rows": ratios(content, [name])} if name == "rows" else {})
        | {kind: each for kind, each in content["ratios"].items() if kind == "rows" and name != "rows"}
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write a record.  The exit status is 1 where a model could not be measured."""
    parser = argparse.ArgumentParser(prog="bitwise_bench.models.mode_costs", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="*", choices=MEASURED, default=MEASURED)
    parser.add_argument("--rounds", type=int, default=7, help="measured turns of each scope")
    parser.add_argument(
        "--no-starved", action="store_true", help="do not measure PyTorch in processes without workspaces; shorter"
    )
    parser.add_argument("--drawn", type=int, default=0, metavar="COUNT", help="also measure models of drawn widths")
    parser.add_argument("--seed", type=int, default=1, help="the seed of drawn widths")
    add_preparation(parser)
    given = parser.parse_args(arguments)
    drawn = [f"{DRAWN} {given.seed} {number}" for number in range(given.drawn)]
    models = [*given.models, *drawn]
    content = {
        "environment": environment(),
        "batch_invariant_ops": installed_alternative(),
        **no_costs(),
    }
    if drawn:
        content["held out"] += drawn
        content["drawn"] = {name: widths_of(name) for name in drawn}
    starved = [f"{name} {STARVED}" for name in models if name != "rows" and not given.no_starved]
    for name, times in Costs([*models, *starved], given.rounds, seconds=given.preparation).measured():
        add_costs(content, name, times)
        print(name, json.dumps({what: medians(each) for what, each in times.items()}, indent=1), flush=True)
        given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0 if all(content["milliseconds"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
