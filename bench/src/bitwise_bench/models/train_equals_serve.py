"""Transformers under the batch-invariant mode: the bytes of a sequence in training, prefill and decode, and the cost.

    python -m bitwise_bench.models.train_equals_serve --out record.json
    python -m bitwise_bench.models.train_equals_serve --out other.json --against record.json    # on another GPU
    python -m bitwise_bench.models.train_equals_serve --out drawn.json --seed 5                 # with drawn sizes

The logits of a sequence that runs alone are compared with those of the sequence in batches with other sequences of
other lengths, padded on either side, packed into a row with others, in prefill by chunks, and token by token with a
cache of keys and values.  Then a batch generates tokens, and the log-probabilities of a training forward are compared
with those of the generation.  Each comparison also runs without the mode, which is the negative control.  The record
has a digest of what each comparison computed, which `--against` compares with those of another GPU.
`mode_costs` measures times.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bitwise_bench.models.drawn_models import drawn_fields
from bitwise_bench.models.model_locks import MODELS, built_model, digest_of, environment
from bitwise_core.errors import BitwiseError
from bitwise_core.output_files import write_text
from bitwise_torch import batch_invariant

LENGTH, PROMPT, GENERATED = 96, 40, 24
"""Tokens of the compared sequence, of the longest prompt, and tokens that are generated."""

BATCHES = (1, 3, 16, 64)
CHUNKS = (1, 17)
"""The numbers of tokens of a chunk of the prefill."""

PACKS = (2, 7)
"""The numbers of sequences of a packed row."""

SECONDS = 1
"""Seconds after which the record is written again with what is known."""

DIFFERING = "digests that differ"
"""The field with the names of what differs from another GPU's record."""

_SMALL = {
    "vocab_size": 16000, "num_hidden_layers": 2, "max_position_embeddings": 4096, "num_attention_heads": 8,
    "num_key_value_heads": 4, "hidden_size": 1024, "intermediate_size": 2816, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": None,
}  # fmt: skip
_WINDOWS = {"sliding_window": 48, "layer_types": ["sliding_attention", "full_attention"]}
HELD_OUT: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma": ("GemmaForCausalLM", {**_SMALL, "head_dim": 256}),
    "phi3": ("Phi3ForCausalLM", {**_SMALL, "intermediate_size": 2688}),
    "olmo2": ("Olmo2ForCausalLM", {**_SMALL, "num_key_value_heads": 8}),
    "mistral": ("MistralForCausalLM", {**_SMALL, "head_dim": 96, "hidden_size": 1152}),
    "glm4": ("Glm4ForCausalLM", {**_SMALL, "num_key_value_heads": 2, "head_dim": 64}),
    "granite": ("GraniteForCausalLM", {**_SMALL, "intermediate_size": 3000, "hidden_size": 1280}),
    "qwen2-moe": (
        "Qwen2MoeForCausalLM",
        {
            **_SMALL, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 704,
            "shared_expert_intermediate_size": 1408,
        },
    ),
    "smollm3": ("SmolLM3ForCausalLM", {**_SMALL, "num_hidden_layers": 4, "intermediate_size": 2560}),
    "stablelm": ("StableLmForCausalLM", {**_SMALL, "num_key_value_heads": 8, "use_qkv_bias": True}),
    "olmoe": (
        "OlmoeForCausalLM", {**_SMALL, "intermediate_size": 512, "num_experts": 8, "num_experts_per_tok": 3}
    ),
    # Sliding windows are shorter than the compared sequence.
    "gemma3": ("Gemma3ForCausalLM", {**_SMALL, "head_dim": 256, **_WINDOWS}),
    "cohere2": ("Cohere2ForCausalLM", {**_SMALL, **_WINDOWS}),
    "exaone4": ("Exaone4ForCausalLM", {**_SMALL, "head_dim": 64, **_WINDOWS}),
    "starcoder2": ("Starcoder2ForCausalLM", {**_SMALL, "sliding_window": 48}),
    "gpt-oss": (
        "GptOssForCausalLM",
        {
            **_SMALL, "head_dim": 64, "intermediate_size": 704, "num_local_experts": 4, "num_experts_per_tok": 2,
            **_WINDOWS, "attn_implementation": "bitwise",
        },
    ),
    "deepseek-v3": (
        "DeepseekV3ForCausalLM",
        {
            **_SMALL, "num_key_value_heads": 8, "q_lora_rank": 384, "kv_lora_rank": 256, "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2,
            "topk_group": 1, "moe_intermediate_size": 512, "n_shared_experts": 1, "first_k_dense_replace": 1,
        },
    ),
    "nemotron": ("NemotronForCausalLM", _SMALL),
    "falcon": (
        "FalconForCausalLM",
        {
            **_SMALL, "num_kv_heads": 2, "new_decoder_architecture": True, "alibi": False, "bias": False,
        },
    ),
    "ernie4.5": ("Ernie4_5ForCausalLM", {**_SMALL, "use_bias": True}),
    "hunyuan": ("HunYuanDenseV1ForCausalLM", {**_SMALL, "head_dim": 128}),
    "phi": ("PhiForCausalLM", {**_SMALL, "num_key_value_heads": 8, "partial_rotary_factor": 0.5}),
    "apertus": ("ApertusForCausalLM", _SMALL),
    "arcee": ("ArceeForCausalLM", {**_SMALL, "head_dim": 128}),
    "cohere": ("CohereForCausalLM", _SMALL),
    "deepseek-v2": (
        "DeepseekV2ForCausalLM",
        {
            **_SMALL, "num_key_value_heads": 8, "q_lora_rank": 384, "kv_lora_rank": 256, "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1,
            "topk_group": 1, "moe_intermediate_size": 512, "n_shared_experts": 1, "first_k_dense_replace": 1,
        },
    ),
    "dots1": (
        "Dots1ForCausalLM",
        {
            **_SMALL, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
            "moe_intermediate_size": 512, "n_shared_experts": 1, "first_k_dense_replace": 1,
        },
    ),
    "gpt-neox": ("GPTNeoXForCausalLM", {**_SMALL, "hidden_size": 768}),
    "granite-moe": (
        "GraniteMoeForCausalLM",
        {**_SMALL, "intermediate_size": 704, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "helium": ("HeliumForCausalLM", {**_SMALL, "head_dim": 128}),
    "olmo3": ("Olmo3ForCausalLM", {**_SMALL, **_WINDOWS}),
    "seed-oss": (
        "SeedOssForCausalLM", {**_SMALL, "head_dim": 64, "attention_dropout": 0.0, "residual_dropout": 0.0}
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        {
            "vocab_size": 16000, "n_layer": 2, "n_head": 8, "n_embd": 768, "pad_token_id": 0, "bos_token_id": 1,
            "eos_token_id": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        },
    ),
    "nanochat": ("NanoChatForCausalLM", {**_SMALL, "hidden_size": 1280, "intermediate_size": 5120}),
    "minimax-m2": (
        "MiniMaxM2ForCausalLM",
        {**_SMALL, "head_dim": 128, "intermediate_size": 576, "num_local_experts": 6, "num_experts_per_tok": 2},
    ),
    "ministral3": ("Ministral3ForCausalLM", {**_SMALL, "head_dim": 128, "intermediate_size": 3200}),
    "exaone-moe": (
        "ExaoneMoeForCausalLM",
        {
            **_SMALL, **_WINDOWS, "head_dim": 64, "num_experts": 8, "num_experts_per_tok": 2, "n_group": 1,
            "topk_group": 1, "moe_intermediate_size": 448, "is_moe_layer": [False, True],
            "mlp_layer_types": ["dense", "sparse"],
        },
    ),
    "gpt-bigcode": (
        "GPTBigCodeForCausalLM",
        {
            "vocab_size": 16000, "n_layer": 2, "n_head": 8, "n_embd": 1024, "n_inner": 3072, "pad_token_id": 0,
            "bos_token_id": 1, "eos_token_id": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        },
    ),
    "diffllama": ("DiffLlamaForCausalLM", {**_SMALL, "intermediate_size": 2240}),
    "minicpm3": (
        "MiniCPM3ForCausalLM",
        {
            **_SMALL, "num_key_value_heads": 8, "q_lora_rank": 320, "kv_lora_rank": 192, "qk_rope_head_dim": 32,
            "qk_nope_head_dim": 64, "v_head_dim": 64,
        },
    ),
    "flex-olmo": (
        "FlexOlmoForCausalLM", {**_SMALL, "intermediate_size": 640, "num_experts": 6, "num_experts_per_tok": 3}
    ),
    "jais2": ("Jais2ForCausalLM", {**_SMALL, "head_dim": 128, "hidden_size": 960}),
    "vaultgemma": (
        "VaultGemmaForCausalLM", {**_SMALL, **_WINDOWS, "head_dim": 128, "attn_implementation": "bitwise"}
    ),
    "hunyuan-moe": (
        "HunYuanMoEV1ForCausalLM",
        {**_SMALL, "head_dim": 128, "intermediate_size": 832, "num_experts": 4, "moe_topk": 2},
    ),
    "llama4": (
        "Llama4ForCausalLM",
        {
            **_SMALL, "head_dim": 128, "intermediate_size": 640, "intermediate_size_mlp": 2048,
            "num_local_experts": 4, "num_experts_per_tok": 1, "attention_chunk_size": 64,
        },
    ),
    "laguna": (
        "LagunaForCausalLM",
        {**_SMALL, "head_dim": 128, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 384},
    ),
    "codegen": (
        "CodeGenForCausalLM",
        {
            "vocab_size": 16000, "n_layer": 2, "n_head": 8, "n_embd": 1024, "n_ctx": 4096, "n_positions": 4096,
            "rotary_dim": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "resid_pdrop": 0.0,
            "embd_pdrop": 0.0, "attn_pdrop": 0.0, "attn_implementation": "eager",
        },
    ),
    # transformers' own call of scaled_dot_product_attention has no soft cap.
    "gemma2": (
        "Gemma2ForCausalLM",
        {
            **_SMALL, **_WINDOWS, "head_dim": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
            "query_pre_attn_scalar": 256, "attn_implementation": "bitwise",
        },
    ),
    "ernie4.5-moe": (
        "Ernie4_5_MoeForCausalLM",
        {
            **_SMALL, "moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 704, "moe_num_shared_experts": 1,
            "moe_layer_start_index": 1,
        },
    ),
    "glm4-moe-lite": (
        "Glm4MoeLiteForCausalLM",
        {
            **_SMALL, "num_key_value_heads": 8, "q_lora_rank": 384, "kv_lora_rank": 256, "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128, "v_head_dim": 192, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1,
            "topk_group": 1, "moe_intermediate_size": 512, "n_shared_experts": 1,
        },
    ),
}  # fmt: skip
"""Models that no kernel, schedule or test was made for; the fields are those of `COMPARED`."""

NOT_PACKED = frozenset({"falcon", "gpt-oss", "lfm2", "llama4", "opt"})
"""Models whose sequences see each other in a packed row: transformers gives such a row no mask of its own."""

OWN_ATTENTION = frozenset({"codegen"})
"""Models that compute attention by products and a softmax of their own, in an order of the places of keys in a row:
beside padding on the left and packed, their bytes may be others.
"""

COMPARED: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: MODELS[name][:2] for name in ("llama", "qwen3", "mixtral")},
    "hyperclovax": ("HyperCLOVAXForCausalLM", {**_SMALL, "head_dim": 80}),
    "opt": (
        "OPTForCausalLM",
        {
            "vocab_size": 16000, "hidden_size": 1280, "ffn_dim": 5120, "num_hidden_layers": 2,
            "num_attention_heads": 16, "word_embed_proj_dim": 1280, "max_position_embeddings": 4096, "dropout": 0.0,
            "attention_dropout": 0.0, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
        },
    ),
    "lfm2": ("Lfm2ForCausalLM", {**_SMALL, "layer_types": ["conv", "full_attention"]}),
    **HELD_OUT,
}  # fmt: skip
"""By name: the class of a model in transformers, and the fields of its configuration."""

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


def row_in_pack(model: Any, number: int, length: int) -> Any:
    """Return the logits of the compared sequence amid others that are packed into one row with it."""
    import torch

    first, *others = sequences(number, length, model.config.vocab_size, str(model.device))
    place = number // 2
    packed = [*others[:place], first, *others[place:]]
    positions = torch.cat([torch.arange(len(each), device=each.device) for each in packed])
    begin = sum(map(len, others[:place]))
    logits = model(input_ids=torch.cat(packed)[None], position_ids=positions[None], use_cache=False).logits[0]
    return logits[begin : begin + length]


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


_Found = dict[str, bool | float]
_Save = Callable[[_Found, dict[str, str]], None]


def comparisons(
    model: Any, scope: _Scope, batches: Sequence[int], length: int, label: str = "",
    save: _Save = lambda found, digests: None, packs: Sequence[int] = PACKS,
) -> tuple[_Found, dict[str, str]]:  # fmt: skip
    """Return what equals the logits of the sequence alone, with the greatest divergence of training from generation,
    and digests.  `save` receives both after each comparison, as far as they are known.
    """
    import torch

    found: _Found = {}
    digests = {"weights": digest_of(*model.parameters())}

    def note(what: str, computed: Sequence[Any], wanted: Sequence[Any]) -> None:
        found[what] = equal = len(computed) == len(wanted) and all(map(torch.equal, computed, wanted))
        digests[what] = digest_of(*computed)
        print(f"{label}{what}: {'equal' if equal else 'DIFFERENT'}", flush=True)
        save(found, digests)

    def note_gradients(what: str, one: str, other: str) -> None:
        found[what] = equal = one == other
        print(f"{label}{what}: {'equal' if equal else 'DIFFERENT'}", flush=True)
        save(found, digests)

    with scope():
        with torch.inference_mode():
            alone = row_in_batch(model, 1, left=False, length=length)
            digests["logits"] = digest_of(alone)
            for number in batches:
                for side in ("right", "left") if number > 1 else ():
                    in_batch = row_in_batch(model, number, side == "left", length)
                    note(f"batch of {number}, padded on the {side}", [in_batch], [alone])
            for number in packs:
                note(f"packed with {number - 1} others", [row_in_pack(model, number, length)], [alone])
            for chunk in CHUNKS:
                note(f"prefill by {chunk}", [by_chunks(model, (chunk,), length)], [alone])
            half = by_chunks(model, (length // 2, 1), length)
            note("prefill, then token by token", [half], [alone])
            largest = batches[-1]
            rows, served = generated(model, largest, PROMPT, GENERATED)
            single = generated(model, 1, PROMPT, GENERATED)[1][0]
            digests["distributions of generated tokens"] = digest_of(*served)
            note(f"generation alone and in a batch of {largest}", [single], served[:1])
        rows = [each.clone() for each in rows]  # outside of the inference mode, for gradients
        plain, gradients = trained(model, rows[:8], GENERATED, checkpointing=False)
        checkpointed, again = trained(model, rows[:8], GENERATED, checkpointing=True)
        digests["gradients"] = gradients
        note_gradients("gradients with and without checkpointing", gradients, again)
        note("training and generation", plain, served[:8])
        note("checkpointed training and generation", checkpointed, served[:8])
        # Without padding there is no mask, and attention has the gradients of its kernels.
        unmasked, gradients = trained(model, rows[:1], GENERATED, checkpointing=False)
        digests["gradients of one sequence"] = gradients
        note("training of one sequence and generation", unmasked, served[:1])
        again = trained(model, rows[:1], GENERATED, checkpointing=True)[1]
        note_gradients("its gradients with and without checkpointing", gradients, again)
    found["greatest divergence"] = divergence(plain, served[:8])
    return found, digests


def compared(
    name: str, batches: Sequence[int], device: str = "cuda", part: Path | None = None, seed: int | None = None
) -> dict[str, Any]:
    """Return the comparisons of a model in the mode and without it; `device` is where it runs.

    The file `part` has what is known after each comparison.  With a seed the sizes of the model are drawn.
    """
    warnings.filterwarnings("ignore", message="the bytes of aten::(_foreach_norm|linalg_vector_norm) may depend")
    begun = time.perf_counter()
    kind, fields = COMPARED[name]
    drawn = {} if seed is None else {"fields": drawn_fields(fields, name, seed)}
    model = built_model(kind, drawn.get("fields", fields), device).eval()
    held_out = name in HELD_OUT or seed is not None
    kept: dict[str, Any] = {"held out": held_out, **drawn, "unfinished": True}

    def save_mode(found: _Found, digests: dict[str, str]) -> None:
        write(kept | {"mode": found, "without the mode, differing": [], "digests": digests})

    def save_control(found: _Found, _: dict[str, str]) -> None:
        write(kept | {"mode": under, "without the mode, differing": differing(found), "digests": digests})

    def write(found: dict[str, Any]) -> None:
        if part is not None:
            write_text(part, json.dumps(found))

    packs = () if name in NOT_PACKED else PACKS
    under, digests = comparisons(model, strict_mode, batches, LENGTH, f"{name}: ", save_mode, packs)
    seconds = round(time.perf_counter() - begun, 1)
    if model.config._attn_implementation == "bitwise":  # the control is transformers' own attention
        model.set_attn_implementation("eager")
    without, _ = comparisons(model, nullcontext, batches, LENGTH, f"{name} without the mode: ", save_control, packs)
    return {
        "held out": held_out, **drawn, "seconds of the comparisons": seconds, "mode": under,
        "without the mode, differing": differing(without),
        "without the mode, greatest divergence": without["greatest divergence"], "digests": digests,
    }  # fmt: skip


def differing(found: _Found) -> list[str]:
    """Return the names of the comparisons that differ."""
    return [what for what, each in found.items() if each is False]


def holds(found: dict[str, Any]) -> bool:
    """Return whether all bytes of a model that has finished agree in the mode, and some differ without it."""
    if "error" in found or "unfinished" in found:
        return False
    equal = all(each for what, each in found["mode"].items() if what != "greatest divergence")
    control = bool(found["without the mode, differing"])
    return equal and control and not found["mode"]["greatest divergence"] and not found.get(DIFFERING)


def unfinished(parts: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return what is known of models that have not finished, from the files of `compared`."""
    files = {name: parts / f"{name}.json" for name in names}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items() if path.exists()}


def differing_digests(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names of the digests of a model that two records have and that differ.

    Other weights are other numbers of PyTorch's generator on that GPU, and then nothing else can be compared.
    """
    mine, wanted = one["digests"], other["digests"]
    if mine["weights"] != wanted["weights"]:
        return ["weights"]
    return [name for name, digest in mine.items() if name in wanted and digest != wanted[name]]


def other_record(path: Path, shape: dict[str, Any]) -> dict[str, Any]:
    """Return another GPU's record.  Raises BitwiseError where it cannot be compared with one of this shape."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BitwiseError(f"--against: {path} cannot be read ({error})") from None
    if found.get("shape") != shape:
        raise BitwiseError(f"--against: {path} has the shape {found.get('shape')}, and this run has {shape}")
    if not any("digests" in each for each in found["models"].values()):
        raise BitwiseError(f"--against: {path} has no digests: record it again on its GPU")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and write a record.

    The exit status is 1 if bytes differ under the mode or from the other record, or all agree without the mode, and 2
    if the other record cannot be compared.
    """
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.models.train_equals_serve", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    usual = [name for name in COMPARED if name not in OWN_ATTENTION]
    parser.add_argument("--models", nargs="*", choices=list(COMPARED), default=usual)
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    parser.add_argument("--jobs", type=int, default=1, help="models that are compared at once")
    parser.add_argument(
        "--seed", type=int, help="draw the sizes of the models; without it they are those of the module"
    )
    parser.add_argument("--against", type=Path, metavar="RECORD", help="another GPU's record, with the same shape")
    given = parser.parse_args(arguments)
    content: dict[str, Any] = {
        "environment": environment(),
        "shape": {
            "tokens": LENGTH, "batches": given.batches, "packed": list(PACKS), "chunks": list(CHUNKS),
            "generated tokens": GENERATED, **({} if given.seed is None else {"seed": given.seed}),
        },
        "models": {},
    }  # fmt: skip

    other: dict[str, Any] = {"models": {}}
    if given.against is not None:
        try:
            other = other_record(given.against, content["shape"])
        except BitwiseError as error:
            print(error, file=sys.stderr)
            return 2
        content["compared with"] = other["environment"]

    def write() -> None:
        finished = content["models"]
        known = finished | unfinished(parts, [name for name in given.models if name not in finished])
        text = json.dumps(content | {"models": {name: known[name] for name in given.models if name in known}}, indent=1)
        write_text(given.out, text + "\n")

    parts = Path(tempfile.mkdtemp())
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {
            pool.submit(compared, name, tuple(given.batches), part=parts / f"{name}.json", seed=given.seed): name
            for name in given.models
        }
        left = set(running)
        while left:
            done, left = wait(left, timeout=SECONDS, return_when=FIRST_COMPLETED)
            for each in done:
                name, failed = running[each], each.exception()
                if failed is None:
                    found: dict[str, Any] = each.result()
                else:
                    sentence = f"{type(failed).__name__}: {failed}"
                    found = unfinished(parts, [name]).get(name, {}) | {"error": sentence}
                if "digests" in found and "digests" in other["models"].get(name, {}):
                    found[DIFFERING] = differing_digests(found, other["models"][name])
                content["models"][name] = found
                print(name, json.dumps(found, indent=1), flush=True)
            write()
    return 0 if all(map(holds, content["models"].values())) else 1


if __name__ == "__main__":
    sys.exit(main())
