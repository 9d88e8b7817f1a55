"""Sets of products to measure: layers of models, squares, gradients, and sizes that are no multiple of 8.

Costs and schedules are fitted to the sets `fitted`, `spread`, `spread-unaligned`, `few-rows`, `between`, `tails`,
`drawn`, `small`, `broad`, `slow`, `varied`, `unaligned-lines`, `few-lines`, `gathered-rows`, `medium`,
`second-medium`, `large`, `part-lines`, `second-part-lines`, `mixed`, `gaps`, `few-k` and `short`, and to the products
of `sixth-held-out`, `seventh-held-out`, `part-lines-held-out` and `published` that were slow with costs fitted before.
Nothing is fitted to `one-wave`.
No model, square or odd size of `held-out`, and of the sets from `second-held-out` to `twelfth-held-out`, is in another
set, and no product of `drawn-held-out`, `broad-held-out`, `few-lines-held-out` and `part-lines-held-out`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from bitwise_bench.cublas.model_shapes import MODELS, Model, chosen, published


@dataclass(frozen=True, slots=True)
class Problem:
    """A product of m by n by k in PyTorch's dtype.

    `layout` has a letter for each operand: "n" for dense rows, "t" for dense columns, such as a transposed view.
    `gap` is the number of elements between the lines of each operand, `offset` that before the first one.
    """

    group: str
    m: int
    n: int
    k: int
    layout: str = "nn"
    dtype: str = "float16"
    gap: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Decoder:
    """Widths of a decoder in its `config.json`: hidden, query heads, fused query, key and value, feed-forward."""

    name: str
    hidden: int
    queries: int
    projected: int
    inner: int

    def layers(self) -> Iterator[tuple[str, int, int]]:
        """Yield the name, n and k of the layers."""
        yield "query key value", self.projected, self.hidden
        yield "attention out", self.hidden, self.queries
        yield "feed-forward up", self.inner, self.hidden
        yield "feed-forward down", self.hidden, self.inner


HELD_OUT = (
    Decoder("Llama-3.1-8B", 4096, 4096, 6144, 14336),
    Decoder("Qwen2.5-7B", 3584, 3584, 4608, 18944),
    Decoder("Phi-3-medium", 5120, 5120, 7680, 17920),
    Decoder("gemma-2-9b", 3584, 4096, 8192, 14336),
)
SECOND_HELD_OUT = (
    Decoder("Llama-3.2-3B", 3072, 3072, 5120, 8192),
    Decoder("Qwen2.5-14B", 5120, 5120, 7168, 13824),
    Decoder("Mistral-Small-24B", 5120, 4096, 6144, 32768),
    Decoder("gemma-2-2b", 2304, 2048, 4096, 9216),
    Decoder("OLMo-2-7B", 4096, 4096, 12288, 11008),
    Decoder("Qwen2.5-1.5B", 1536, 1536, 2048, 8960),
    Decoder("Falcon3-10B", 3072, 3072, 5120, 23040),
    Decoder("Yi-1.5-34B", 7168, 7168, 9216, 20480),
)
THIRD_HELD_OUT = (
    Decoder("Llama-3.1-70B", 8192, 8192, 10240, 28672),
    Decoder("gemma-3-12b", 3840, 4096, 8192, 15360),
    Decoder("gemma-3-27b", 5376, 4096, 8192, 21504),
    Decoder("Qwen3-4B", 2560, 4096, 6144, 9728),
    Decoder("Qwen3-32B", 5120, 8192, 10240, 25600),
    Decoder("InternLM2.5-20B", 6144, 6144, 8192, 16384),
    Decoder("StarCoder2-15B", 6144, 6144, 7168, 24576),
    Decoder("SmolLM3-3B", 2048, 2048, 3072, 11008),
)
FOURTH_HELD_OUT = (
    Decoder("Qwen2.5-72B", 8192, 8192, 10240, 29568),
    Decoder("Qwen3-14B", 5120, 5120, 7168, 17408),
    Decoder("Qwen3-1.7B", 2048, 2048, 4096, 6144),
    Decoder("Command-R-35B", 8192, 8192, 24576, 22528),
    Decoder("Falcon-40B", 8192, 8192, 9216, 32768),
    Decoder("DBRX", 6144, 6144, 8192, 10752),
    Decoder("MPT-30B", 7168, 7168, 21504, 28672),
    Decoder("Baichuan2-13B", 5120, 5120, 15360, 13696),
    Decoder("GPT-NeoX-20B", 6144, 6144, 18432, 24576),
    Decoder("Whisper-large", 1280, 1280, 3840, 5120),
)
FIFTH_HELD_OUT = (
    Decoder("Llama-2-13B", 5120, 5120, 15360, 13824),
    Decoder("Mixtral-8x22B", 6144, 6144, 8192, 16384),
    Decoder("OPT-2.7B", 2560, 2560, 7680, 10240),
    Decoder("GPT-2-XL", 1600, 1600, 4800, 6400),
    Decoder("BERT-large", 1024, 1024, 3072, 4096),
    Decoder("ViT-bigG", 1664, 1664, 4992, 8192),
    Decoder("ViT-g", 1408, 1408, 4224, 6144),
    Decoder("Phi-2", 2560, 2560, 7680, 10240),
    Decoder("Grok-1", 6144, 6144, 8192, 32768),
    Decoder("Jamba-1.5", 4096, 4096, 6144, 14336),
)
SIXTH_HELD_OUT = (
    Decoder("Phi-3-mini", 3072, 3072, 9216, 8192),
    Decoder("Qwen2-0.5B", 896, 896, 1152, 4864),
    Decoder("gemma-7b", 3072, 4096, 12288, 24576),
    Decoder("BLOOM-7b1", 4096, 4096, 12288, 16384),
    Decoder("Granite-20B-code", 6144, 6144, 6400, 24576),
    Decoder("Zamba2-7B", 3584, 3584, 10752, 14336),
    Decoder("MiniCPM-2B", 2304, 2304, 6912, 5760),
    Decoder("TinyLlama", 2048, 2048, 2560, 5632),
    Decoder("CodeLlama-34B", 8192, 8192, 10240, 22016),
    Decoder("StableLM-2-12B", 5120, 5120, 7680, 13824),
    Decoder("T5-xxl", 4096, 4096, 12288, 10240),
    Decoder("Persimmon-8B", 4096, 4096, 12288, 16384),
    Decoder("Falcon-7B", 4544, 4544, 4672, 18176),
    Decoder("GPT-J-6B", 4096, 4096, 12288, 16384),
    Decoder("DeBERTa-xxl", 1536, 1536, 4608, 6144),
    Decoder("CLIP-bigG-text", 1280, 1280, 3840, 5120),
)
SEVENTH_HELD_OUT = (
    Decoder("Mistral-Large-123B", 12288, 12288, 14336, 28672),
    Decoder("Mistral-Nemo-12B", 5120, 4096, 6144, 14336),
    Decoder("gemma-3-4b", 2560, 2048, 4096, 10240),
    Decoder("gemma-3-1b", 1152, 1024, 1536, 6912),
    Decoder("Qwen3-8B", 4096, 4096, 6144, 12288),
    Decoder("Qwen3-0.6B", 1024, 2048, 4096, 3072),
    Decoder("OLMo-2-32B", 5120, 5120, 7168, 27648),
    Decoder("Yi-6B", 4096, 4096, 5120, 11008),
    Decoder("Pythia-12B", 5120, 5120, 15360, 20480),
    Decoder("Pythia-1.4B", 2048, 2048, 6144, 8192),
    Decoder("OPT-66B", 9216, 9216, 27648, 36864),
    Decoder("SigLIP-so400m", 1152, 1152, 3456, 4304),
    Decoder("InternViT-6B", 3200, 3200, 9600, 12800),
    Decoder("Stable-Diffusion-3.5", 2432, 2432, 7296, 9728),
    Decoder("FLUX.1", 3072, 3072, 9216, 12288),
    Decoder("Hunyuan-Large", 6400, 10240, 12288, 18304),
    Decoder("Command-R-plus", 12288, 12288, 14336, 33792),
    Decoder("Nemotron-Mini-4B", 3072, 3072, 5120, 9216),
    Decoder("LLaMA-30B", 6656, 6656, 19968, 17920),
    Decoder("SmolLM2-360M", 960, 960, 1600, 2560),
    Decoder("ModernBERT-large", 1024, 1024, 3072, 2624),
    Decoder("EXAONE-3.5-32B", 5120, 5120, 7168, 27392),
    Decoder("EXAONE-3.5-2.4B", 2560, 2560, 3840, 7168),
)
EIGHTH_HELD_OUT = (
    Decoder("Llama-3.2-1B", 2048, 2048, 3072, 8192),
    Decoder("Llama-4-Scout", 5120, 5120, 7168, 16384),
    Decoder("gemma-2-27b", 4608, 4096, 8192, 36864),
    Decoder("Qwen2.5-3B", 2048, 2048, 2560, 11008),
    Decoder("Qwen1.5-110B", 8192, 8192, 10240, 49152),
    Decoder("Qwen3-235B-A22B", 4096, 8192, 9216, 12288),
    Decoder("Falcon-180B", 14848, 14848, 15872, 59392),
    Decoder("BLOOM-176B", 14336, 14336, 43008, 57344),
    Decoder("OPT-30B", 7168, 7168, 21504, 28672),
    Decoder("StarCoder2-3B", 3072, 3072, 3584, 12288),
    Decoder("StarCoder2-7B", 4608, 4608, 5632, 18432),
    Decoder("Nemotron-4-15B", 6144, 6144, 8192, 24576),
    Decoder("Kimi-K2", 7168, 8192, 12288, 18432),
    Decoder("MiniMax-Text-01", 6144, 8192, 10240, 9216),
    Decoder("DeepSeek-V2-Lite", 2048, 2048, 3072, 10944),
    Decoder("SmolLM2-135M", 576, 576, 960, 1536),
    Decoder("SmolLM2-1.7B", 2048, 2048, 6144, 8192),
    Decoder("BERT-base", 768, 768, 2304, 3072),
    Decoder("ESM-2-15B", 5120, 5120, 15360, 20480),
    Decoder("DiT-XL", 1152, 1152, 3456, 4608),
    Decoder("Wan2.1-14B", 5120, 5120, 15360, 13824),
    Decoder("DINOv2-giant", 1536, 1536, 4608, 8192),
    Decoder("Mamba-2.8B", 2560, 5120, 10240, 5120),
    Decoder("Aya-23-8B", 4096, 4096, 6144, 22528),
)
NINTH_HELD_OUT = (
    Decoder("GLM-4-9B", 4096, 4096, 4608, 13696),
    Decoder("GLM-4-32B", 6144, 6144, 6656, 23040),
    Decoder("Granite-3-8B", 4096, 4096, 6144, 12800),
    Decoder("Galactica-120B", 10240, 10240, 30720, 40960),
    Decoder("Orion-14B", 5120, 5120, 15360, 15360),
    Decoder("Skywork-13B", 4608, 4608, 13824, 12288),
    Decoder("H2O-Danube-1.8B", 2560, 2560, 3840, 6912),
    Decoder("StableLM-3B", 2560, 2560, 7680, 6912),
    Decoder("StableLM-2-1.6B", 2048, 2048, 6144, 5632),
    Decoder("EVA-02-E", 1792, 1792, 5376, 15360),
    Decoder("CogVideoX-2B", 1920, 1920, 5760, 7680),
    Decoder("T5-3B", 1024, 4096, 12288, 16384),
    Decoder("mT5-xl", 2048, 2048, 6144, 5120),
    Decoder("gemma-3-270m", 640, 1024, 1536, 2048),
    Decoder("ERNIE-4.5-21B", 2560, 2560, 3584, 12288),
    Decoder("Seed-OSS-36B", 5120, 10240, 12288, 27648),
    Decoder("Apertus-8B", 4096, 4096, 6144, 21504),
    Decoder("Apertus-70B", 8192, 8192, 10240, 43008),
    Decoder("EXAONE-4.0-1.2B", 2048, 2048, 3072, 4096),
    Decoder("Arctic", 7168, 7168, 9216, 4864),
    Decoder("Jais-13B", 5120, 5120, 15360, 13653),
    Decoder("Cerebras-GPT-6.7B", 4096, 4096, 12288, 16384),
    Decoder("OPT-125M", 768, 768, 2304, 3072),
    Decoder("Llama-3.1-405B", 16384, 16384, 18432, 53248),
)
TENTH_HELD_OUT = (
    Decoder("GPT-3-13B", 5140, 5140, 15420, 20560),
    Decoder("GPT-3-175B", 12288, 12288, 36864, 49152),
    Decoder("Jurassic-1", 13824, 13824, 41472, 55296),
    Decoder("Gopher-280B", 16384, 16384, 49152, 65536),
    Decoder("Nemotron-4-340B", 18432, 18432, 20480, 73728),
    Decoder("Griffin-2B", 2560, 2560, 3072, 7680),
    Decoder("RWKV-6-3B", 2560, 2560, 2560, 8960),
    Decoder("DeepSeek-V2-236B", 5120, 16384, 24576, 12288),
    Decoder("MobileLLM-1B", 1280, 1280, 2112, 3584),
    Decoder("MobileLLM-600M", 1152, 1152, 1536, 3072),
)
ELEVENTH_HELD_OUT = (
    Decoder("Turing-NLG-17B", 4256, 4256, 12768, 17024),
    Decoder("YaLM-100B", 10240, 10240, 30720, 27308),
    Decoder("LaMDA-137B", 8192, 16384, 49152, 65536),
    Decoder("GLM-130B", 12288, 12288, 36864, 32768),
    Decoder("TeleChat-52B", 8192, 8192, 24576, 21824),
    Decoder("Yuan-2.0-102B", 8192, 8192, 24576, 36864),
    Decoder("dots.llm1", 4096, 4096, 12288, 10944),
    Decoder("Qwen2-57B-A14B", 3584, 3584, 4608, 20480),
    Decoder("Moonlight-16B", 2048, 2048, 3072, 11264),
    Decoder("gemma-2b", 2048, 2048, 2560, 16384),
    Decoder("Qwen-1.8B", 2048, 2048, 6144, 5504),
    Decoder("Sana-4.8B", 2240, 2240, 6720, 5600),
    Decoder("Whisper-base", 512, 512, 1536, 2048),
)
TWELFTH_HELD_OUT = (
    Decoder("PaLM-540B", 18432, 12288, 12800, 73728),
    Decoder("BloombergGPT-50B", 7680, 7680, 23040, 30720),
    Decoder("Nemotron-H-47B", 8192, 8192, 10240, 30720),
    Decoder("Nemotron-Nano-9B-v2", 4480, 5120, 7168, 15680),
    Decoder("GLM-4.5", 5120, 12288, 14336, 12288),
    Decoder("Falcon-H1-34B", 5120, 2560, 3584, 21504),
    Decoder("Zamba-7B", 3712, 3712, 11136, 14848),
    Decoder("Minitron-8B", 4096, 6144, 8192, 16384),
    Decoder("Evo-7B", 4096, 4096, 12288, 10928),
    Decoder("OpenLLaMA-3B", 3200, 3200, 9600, 8640),
    Decoder("MiniCPM3-4B", 2560, 2560, 7680, 6400),
    Decoder("BTLM-3B", 2560, 2560, 7680, 6826),
    Decoder("SantaCoder", 2048, 2048, 2304, 8192),
    Decoder("Stable-Diffusion-XL", 1280, 1280, 3840, 10240),
    Decoder("Cerebras-GPT-256M", 1088, 1088, 3264, 4352),
    Decoder("Qwen1.5-0.5B", 1024, 1024, 3072, 2816),
    Decoder("Flan-T5-small", 512, 384, 1152, 1024),
)
_VOCABULARIES = ((50257, 768), (30522, 1024), (51865, 1280), (50265, 1024), (64139, 1024), (40478, 768))
_HELD_OUT_VOCABULARIES = ((28996, 768), (51866, 1280), (32001, 4096), (58101, 512), (62834, 512), (49409, 1024))
"""Words and widths of models' embeddings whose number of words no tensor map has as a leading dimension."""
_SIXTH_VOCABULARIES = ((32003, 4096), (50295, 2560), (119547, 768), (65025, 1024), (21128, 768), (31090, 768))
_EIGHTH_VOCABULARIES = ((129280, 896), (100277, 512), (32021, 1280), (49155, 768), (131073, 640), (73448, 512))
_NINTH_VOCABULARIES = ((250112, 512), (59246, 640), (64793, 512), (46145, 1024), (105879, 512), (30003, 1280))
_TENTH_VOCABULARIES = ((60515, 640), (42001, 1024), (119548, 512), (80541, 768), (32101, 1152), (99303, 512))
_ELEVENTH_VOCABULARIES = ((256206, 1024), (58101, 512), (59514, 512), (62518, 512), (246534, 1280), (30145, 2048))
_TWELFTH_VOCABULARIES = ((257153, 640), (128258, 512), (92553, 896), (61873, 512), (151851, 768), (37003, 1536))
_SEVENTH_VOCABULARIES = ((250002, 1024), (32005, 768), (68729, 1024), (64001, 768), (32100, 768), (65001, 512))
_ROW_RANGES = ((1, 1), (2, 16), (17, 64), (65, 256), (257, 1024), (1025, 4096), (4097, 8192))
_SEED = 20261123
_SIXTH_PRODUCTS, _SEVENTH_PRODUCTS = 150, 160
_MOST_MULTIPLICATIONS, _MOST_OF_MEDIUM = 4e11, 3e10
"""Those of the largest drawn product, which takes about a millisecond, and of the largest of `medium_products`."""
_BROAD_ROWS = (
    (1, 1), (2, 16), (2, 16), (17, 64), (17, 64), (65, 128), (129, 256), (65, 256), (257, 600), (257, 600), (601, 1200),
    (1201, 4096), (2048, 8192),
)  # fmt: skip
_PART_LINES = (
    ((129, 700), (2048, 20480), (6000, 20480)),
    ((129, 1400), (512, 2600), (3000, 17000)),
    ((17, 128), (512, 20480), (2000, 18000)),
    ((65, 320), (256, 1100), (6000, 16000)),
    ((160, 640), (4096, 20480), (8192, 20480)),
    ((700, 4096), (512, 8000), (512, 8000)),
    ((257, 1400), (768, 4096), (1024, 9000)),
    ((1, 8192), (512, 5000), (512, 5000)),
)
"""The rows, columns and values of k of products of `part_lines`, in turn."""
_MIXED = (
    ((700, 4200), (512, 4200), (512, 9000), 8),
    ((700, 2400), (700, 2400), (2000, 9000), 8),
    ((1025, 8192), (1024, 8192), (1024, 8192), 8),
    ((65, 700), (1024, 16384), (2048, 12288), 8),
    ((65, 1024), (512, 8192), (512, 8192), 128),
    ((700, 8192), (768, 8192), (768, 8192), 64),
    ((2, 128), (512, 8192), (512, 8192), 8),
    ((65, 2000), (400, 4200), (400, 6000), 2),
)
"""The rows, columns and values of k of products of `mixed_products`, in turn, and of what these are multiples."""
_FEW_K = (8, 8, 16, 16, 24, 32, 32, 48, 64, 96, 128)
"""The values of k of products of `few_k`: the ranks of adapters."""
_FEWEST_OF_WAVE, _MOST_OF_WAVE = 3 << 30, 8 << 30
"""The multiplications of a product whose tiles fill the device about once."""
_MOST_OF_SHORT = 6e9
"""The multiplications of the largest product of `short_products`."""
_MOST_OF_PART_LINES, _FEWEST_OF_LARGE = 11e10, 2e10
"""The multiplications of the largest product of `part_lines`, and of the smallest one of `large_products`."""
_LARGEST_WEIGHT = 15e7
"""The elements of the largest weight of `broad_products`."""
_HELD_OUT_ROWS = (1, 8, 32, 96, 384, 1536, 6144)
_FITTED_ROWS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_FITTED_MODELS = ("DeepSeek-V4-Pro", "GLM-5.2", "GLM-4.7-Flash", "gpt-oss-20b", "Qwen3.8-27B", "granite-4.1-8b")


def held_out() -> list[Problem]:
    """Return layers, gradients, squares and odd sizes that no cost and no schedule was fitted to."""
    found = [
        Problem(group, m, n, k, "nt", "bfloat16")
        for m in _HELD_OUT_ROWS
        for model in HELD_OUT
        for group, n, k in model.layers()
    ]
    found += [each for model in HELD_OUT[:2] for _, n, k in model.layers() for each in _gradients(1792, n, k)]
    found += [
        Problem("square", size, size, size, layout, dtype)
        for size in (500, 1000, 1536, 2500, 3000, 5000, 7168)
        for layout, dtype in (("nn", "float16"), ("nt", "bfloat16"))
    ]
    odd = (
        (384, 1001, 3001),
        (1537, 4095, 2047),
        (97, 2050, 5122),
        (2001, 2001, 2001),
        (6001, 1025, 3003),
        (30, 777, 4001),
    )
    return found + [Problem("odd", *sizes, "nt", "bfloat16") for sizes in odd]


def second_held_out() -> list[Problem]:
    """Return layers of models that are in no other set, with drawn numbers of rows, and drawn odd sizes."""
    dice = random.Random(_SEED)
    others = {(each.n, each.k) for each in (*fitted(), *held_out())}
    layers = [(group, n, k) for model in SECOND_HELD_OUT for group, n, k in model.layers() if (n, k) not in others]
    found = []
    for first, last in _ROW_RANGES:
        found += [
            Problem(*each, "nt", "bfloat16")
            for group, n, k in dict.fromkeys(layers)
            for each in [(group, round(math.exp(dice.uniform(math.log(first), math.log(last)))), n, k)]
        ]
    for first, last in _ROW_RANGES:
        found += [_odd(dice, first, last) for _ in range(4)]
    return found


def third_held_out() -> list[Problem]:
    """Return layers and gradients of models that are in no other set, with drawn rows, and drawn odd sizes."""
    dice = random.Random(_SEED + 20)
    return _of_unseen_layers(dice, THIRD_HELD_OUT, (*_FITTED_SETS, held_out, second_held_out), 10)


def fourth_held_out() -> list[Problem]:
    """Return layers and gradients of models that are in no other set, squares, and odd sizes: 100 products."""
    dice = random.Random(_SEED + 30)
    found = _of_unseen_layers(dice, FOURTH_HELD_OUT, (*_FITTED_SETS, held_out, second_held_out, third_held_out), 9)
    for _ in range(7):
        size = _drawn(dice, 500, 8192, 4)
        found.append(
            Problem("square", size, size, size, dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16")))
        )
    dice.shuffle(found)
    return found


def fifth_held_out() -> list[Problem]:
    """Return layers and gradients of models that are in no other set, and products without tensor maps of operands."""
    dice = random.Random(_SEED + 40)
    others = (*_FITTED_SETS, held_out, second_held_out, third_held_out, fourth_held_out)
    known = _pairs_of(others)
    known |= {(each.n, each.k) for each in unaligned_lines(_SEED + 41, 160, _VOCABULARIES)}
    found = _of_unseen_layers(dice, FIFTH_HELD_OUT, others, 4)
    found += unaligned_lines(_SEED + 42, 96, _HELD_OUT_VOCABULARIES)
    dice.shuffle(found)
    return [each for each in dict.fromkeys(found) if (each.n, each.k) not in known or "gradient" in each.group]


def sixth_held_out() -> list[Problem]:
    """Return 150 products: layers and gradients of models that are in no other set, squares, odd sizes, gaps, offsets.

    No pair of n and k is in another set, except those of gradients, whose layers are not.
    """
    dice = random.Random(_SEED + 50)
    others = tuple(make for name, make in SETS.items() if name not in ("layers", "published", *_SETS_AFTER_SIXTH))
    known = _pairs_of(others)
    found = _of_unseen_layers(dice, SIXTH_HELD_OUT, others, 6)
    sizes = [_drawn(dice, 500, 8192, 4) for _ in range(24)]
    for size in [each for each in sizes if (each, each) not in known][:8]:
        layout, dtype = dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16"))
        found.append(Problem("square", size, size, size, layout, dtype))
    drawn = [*unaligned_lines(_SEED + 51, 96, _SIXTH_VOCABULARIES), *few_lines(_SEED + 52, 96)]
    found += [each for each in drawn[::2] if (each.n, each.k) not in known][: _SIXTH_PRODUCTS - len(found)]
    dice.shuffle(found)
    return found


def seventh_held_out() -> list[Problem]:
    """Return 160 products: layers and gradients of models that are in no other set, squares, odd sizes, gaps, offsets.

    No pair of n and k is in another set.
    """
    dice = random.Random(_SEED + 70)
    others = tuple(make for name, make in SETS.items() if name not in ("seventh-held-out", *_SETS_AFTER_SEVENTH))
    known = _pairs_of(others)
    found = [each for each in _of_unseen_layers(dice, SEVENTH_HELD_OUT, others, 8) if (each.n, each.k) not in known]
    sizes = [_drawn(dice, 500, 8192, 4) for _ in range(24)]
    for size in [each for each in sizes if (each, each) not in known][:8]:
        layout, dtype = dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16"))
        found.append(Problem("square", size, size, size, layout, dtype))
    drawn = [*unaligned_lines(_SEED + 71, 96, _SEVENTH_VOCABULARIES), *few_lines(_SEED + 72, 96)]
    found += [each for each in drawn[::2] if (each.n, each.k) not in known][: _SEVENTH_PRODUCTS - len(found)]
    dice.shuffle(found)
    return found


def eighth_held_out() -> list[Problem]:
    """Return about 200 products: those of `seventh_held_out` of other models, and others in all layouts.

    No pair of n and k is in another set.
    """
    dice = random.Random(_SEED + 110)
    others = tuple(
        make for name, make in SETS.items() if name not in ("eighth-held-out", "published", *_SETS_AFTER_EIGHTH)
    )
    known = _pairs_of(others)
    found = _of_unseen_layers(dice, EIGHTH_HELD_OUT, others, 6)
    for size in [_drawn(dice, 500, 8192, 4) for _ in range(8)]:
        layout, dtype = dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16"))
        found.append(Problem("square", size, size, size, layout, dtype))
    found += part_lines(_SEED + 111, 40) + mixed_products(_SEED + 112, 56)
    drawn = [*unaligned_lines(_SEED + 113, 48, _EIGHTH_VOCABULARIES), *few_lines(_SEED + 114, 48)]
    found += drawn[::4]
    dice.shuffle(found)
    return [each for each in dict.fromkeys(found) if (each.n, each.k) not in known]


def ninth_held_out() -> list[Problem]:
    """Return about 200 products of the kinds of `eighth_held_out`, of other models, and of those of few k and of gaps.

    No pair of n and k is in another set.
    """
    dice = random.Random(_SEED + 130)
    others = _others_than("ninth-held-out", "tenth-held-out", "eleventh-held-out")
    known = _pairs_of(others)
    found = _of_unseen_layers(dice, NINTH_HELD_OUT, others, 6)
    for size in [_drawn(dice, 500, 8192, 4) for _ in range(8)]:
        layout, dtype = dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16"))
        found.append(Problem("square", size, size, size, layout, dtype))
    found += part_lines(_SEED + 131, 32) + mixed_products(_SEED + 132, 48)
    found += short_products(_SEED + 135, 16) + few_k(_SEED + 136, 16) + gapped(_SEED + 137, 24)
    drawn = [*unaligned_lines(_SEED + 133, 48, _NINTH_VOCABULARIES), *few_lines(_SEED + 134, 48)]
    found += drawn[::4]
    dice.shuffle(found)
    return [each for each in dict.fromkeys(found) if (each.n, each.k) not in known]


def tenth_held_out() -> list[Problem]:
    """Return about 190 products of the kinds of `ninth_held_out`, of other models.

    No pair of n and k is in another set.
    """
    dice = random.Random(_SEED + 150)
    others = _others_than("tenth-held-out", "eleventh-held-out")
    known = _pairs_of(others)
    found = _of_unseen_layers(dice, TENTH_HELD_OUT, others, 4)
    for size in [_drawn(dice, 500, 8192, 4) for _ in range(8)]:
        layout, dtype = dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16"))
        found.append(Problem("square", size, size, size, layout, dtype))
    found += part_lines(_SEED + 151, 32) + mixed_products(_SEED + 152, 48)
    found += short_products(_SEED + 155, 24) + few_k(_SEED + 156, 16) + gapped(_SEED + 157, 24)
    drawn = [*unaligned_lines(_SEED + 153, 48, _TENTH_VOCABULARIES), *few_lines(_SEED + 154, 64)]
    found += drawn[::4]
    dice.shuffle(found)
    return [each for each in dict.fromkeys(found) if (each.n, each.k) not in known]


def eleventh_held_out() -> list[Problem]:
    """Return about 230 products of the kinds of `ninth_held_out`, of other models.

    No pair of n and k is in another set.
    """
    dice = random.Random(_SEED + 170)
    others = _others_than("eleventh-held-out")
    known = _pairs_of(others)
    found = _of_unseen_layers(dice, ELEVENTH_HELD_OUT, others, 6)
    for size in [_drawn(dice, 500, 8192, 4) for _ in range(8)]:
        layout, dtype = dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16"))
        found.append(Problem("square", size, size, size, layout, dtype))
    found += part_lines(_SEED + 171, 32) + mixed_products(_SEED + 172, 48)
    found += short_products(_SEED + 175, 24) + few_k(_SEED + 176, 16) + gapped(_SEED + 177, 24)
    drawn = [*unaligned_lines(_SEED + 173, 48, _ELEVENTH_VOCABULARIES), *few_lines(_SEED + 174, 64)]
    found += drawn[::4]
    dice.shuffle(found)
    return [each for each in dict.fromkeys(found) if (each.n, each.k) not in known]


def twelfth_held_out() -> list[Problem]:
    """Return about 200 products of the kinds of `ninth_held_out` and of those of one wave, of other models.

    No pair of n and k is in another set.
    """
    dice = random.Random(_SEED + 190)
    others = tuple(make for name, make in SETS.items() if name not in ("twelfth-held-out", "published"))
    known = _pairs_of(others)
    found = _of_unseen_layers(dice, TWELFTH_HELD_OUT, others, 5)
    for size in [_drawn(dice, 500, 8192, 4) for _ in range(6)]:
        layout, dtype = dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16"))
        found.append(Problem("square", size, size, size, layout, dtype))
    found += part_lines(_SEED + 191, 28) + mixed_products(_SEED + 192, 40) + one_wave(_SEED + 198, 24)
    found += short_products(_SEED + 195, 20) + few_k(_SEED + 196, 12) + gapped(_SEED + 197, 20)
    drawn = [*unaligned_lines(_SEED + 193, 48, _TWELFTH_VOCABULARIES), *few_lines(_SEED + 194, 48)]
    found += drawn[::6]
    dice.shuffle(found)
    return [each for each in dict.fromkeys(found) if (each.n, each.k) not in known]


def _others_than(*names: str) -> tuple[Callable[[], list[Problem]], ...]:
    """Return the sets but for these, the published one and those that were made after the eleventh held-out set."""
    return tuple(make for name, make in SETS.items() if name not in (*names, "published", *_SETS_AFTER_ELEVENTH))


def gapped(seed: int, count: int) -> list[Problem]:
    """Return drawn products of 17 to 700 rows in which no tensor map has an operand, in all layouts.

    There are gaps between the lines, an offset before the first one, or odd n and k, in turn.
    """
    dice = random.Random(seed)
    found = []
    for number in range(count):
        m = _drawn(dice, *((65, 300), (17, 128), (65, 300), (257, 700))[number % 4], 1)
        n, k = _drawn(dice, 400, 6000, 8), _drawn(dice, 400, 6000, 8)
        gap, offset = ((dice.randint(1, 7), 0), (0, dice.randint(1, 7)), (dice.randint(1, 7), 0), (0, 0))[
            number // 4 % 4
        ]
        if not gap and not offset:
            n, k = n + 1, k + 1
        layout, dtype = dice.choice(("tn", "tn", "tt", "nn", "nt")), dice.choice(("bfloat16", "float16"))
        m = 8 * -(-m // 8) if layout[0] == "t" else m
        found.append(Problem(f"gaps-{number % 5}", m, n, k, layout, dtype, gap, offset))
    return _outside_of_eighth(found)


def few_k(seed: int, count: int) -> list[Problem]:
    """Return drawn aligned products of 8 to 128 values of k, as adapters of low rank have, most with many rows."""
    dice = random.Random(seed)
    found = []
    for number in range(count):
        layout, dtype = dice.choice(("nt", "nt", "nn", "nn", "tn", "tt")), dice.choice(("bfloat16", "float16"))
        m = _drawn(dice, *((2048, 16384), (512, 4096))[number % 2], (1, 64)[number // 2 % 2])
        n, k = _drawn(dice, 512, 12288, (64, 8)[number // 4 % 2]), dice.choice(_FEW_K)
        m = 8 * -(-m // 8) if layout[0] == "t" else m
        found.append(Problem(f"few-k-{number % 5}", m, n, k, layout, dtype))
    return _outside_of_eighth(found)


def short_products(seed: int, count: int) -> list[Problem]:
    """Return drawn aligned products that take some five to thirty microseconds, in all layouts and both types."""
    dice = random.Random(seed)
    found = []
    for number in range(count):
        layout, dtype = dice.choice(("nn", "nt", "tn", "tt")), dice.choice(("bfloat16", "float16"))
        rows, columns, sums = (
            ((257, 2000), (512, 2000), (512, 3000)), ((129, 600), (512, 4000), (1024, 8000)),
            ((65, 320), (1024, 6000), (1024, 8000)), ((700, 4000), (256, 2000), (256, 2000)),
        )[number % 4]  # fmt: skip
        while True:
            m, n, k = _drawn(dice, *rows, 8), _drawn(dice, *columns, 8), _drawn(dice, *sums, 8)
            if m * n * k <= _MOST_OF_SHORT:
                break
        if number % 8 == 7:
            m = n = k
        found.append(Problem(f"short-{number % 5}", m, n, k, layout, dtype))
    return _outside_of_eighth(found)


def one_wave(seed: int, count: int) -> list[Problem]:
    """Return drawn aligned products of 257 to 1,000 rows whose tiles fill the device about once, with many k.

    They take some fifteen to thirty microseconds, in all layouts and both types.
    """
    dice = random.Random(seed)
    found = []
    for number in range(count):
        layout, dtype = dice.choice(("nn", "nt", "tn", "tt")), dice.choice(("bfloat16", "float16"))
        while True:
            m = _drawn(dice, 257, 1000, 8 if layout[0] == "t" else 1)
            n, k = _drawn(dice, 768, 4096, (64, 8)[number % 2]), _drawn(dice, 2048, 6144, 8)
            if _FEWEST_OF_WAVE <= m * n * k <= _MOST_OF_WAVE:
                break
        found.append(Problem(f"wave-{number % 5}", m, n, k, layout, dtype))
    unseen = _pairs_of((
        *_FIRST_HELD_OUT, seventh_held_out, eighth_held_out, ninth_held_out, tenth_held_out, eleventh_held_out,
    ))  # fmt: skip
    return [each for each in found if (each.n, each.k) not in unseen]


def gathered_rows(seed: int, count: int) -> list[Problem]:
    """Return drawn products in which no tensor map has an operand: 97 to 288 rows in most, in all layouts.

    Every eighth one has up to 16 rows whose other operand has no contiguous k, and every eighth one up to 64 rows.
    """
    dice = random.Random(seed)
    found = []
    for number in range(count):
        kind, dtype = number % 8, dice.choice(("bfloat16", "float16"))
        first, last = ((97, 288), (97, 288), (97, 288), (97, 288), (65, 160), (289, 1200), (2, 16), (17, 64))[kind]
        layout = dice.choice(("nn", "nn", "nt", "tn", "tt") if kind != 6 else ("nn", "nn", "tn"))
        m, n, k = _drawn(dice, first, last, 1), _unaligned(dice, 250, 1600), _unaligned(dice, 1000, 14000)
        if kind in (3, 7):
            n, k = _unaligned(dice, 1200, 7000), _unaligned(dice, 400, 5000)
        elif kind == 6:
            n, k = _unaligned(dice, 400, 7000), _unaligned(dice, 400, 3000)
        found.append(Problem(f"gathered-{number % 5}", m, n, k, layout, dtype))
    return _outside_of_held_out(found)


def medium_products(seed: int, count: int) -> list[Problem]:
    """Return drawn products of aligned layers of 65 to 2,048 rows that take some ten microseconds, and of few k.

    Every fourth one has 8 to 128 values of k, as adapters of low rank have.
    """
    dice = random.Random(seed)
    found = []
    for number in range(count):
        kind = number % 4
        layout, dtype = (("nt", "bfloat16"), ("nn", "float16"))[dice.randint(0, 1)]
        if kind == 3:
            m, k = _drawn(dice, 4, 8192, 1), dice.choice((8, 16, 32, 64, 128))
            n = _drawn(dice, 1024, 12288, 256)
        else:
            m = _drawn(dice, *((65, 320), (321, 700), (701, 2048))[kind], 1 if number % 2 else 64)
            n, k = _drawn(dice, 512, 8192, 128), _drawn(dice, 512, 10240, 128)
            while m * n * k > _MOST_OF_MEDIUM:
                n, k = _drawn(dice, 512, 8192, 128), _drawn(dice, 512, 10240, 128)
        found.append(Problem(f"medium-{number % 5}", m, n, k, layout, dtype))
    return _outside_of_held_out(found)


def part_lines(seed: int, count: int) -> list[Problem]:
    """Return drawn products whose lines start inside lines of the cache, most with many k and up to 1,400 rows.

    Tensor maps have all operands: leading dimensions are multiples of 8 elements, but in most products not of 64.
    """
    dice = random.Random(seed)
    found = []
    for number in range(count):
        layout, dtype = dice.choice(("nt",) * 6 + ("nn", "nn", "tn")), dice.choice(("bfloat16", "float16"))
        rows, columns, sums = _PART_LINES[number % len(_PART_LINES)]
        m, n, k = _drawn(dice, *rows, 1), _drawn(dice, *columns, 8), _drawn(dice, *sums, 8)
        while m * n * k > _MOST_OF_PART_LINES:
            n, k = _drawn(dice, *columns, 8), _drawn(dice, *sums, 8)
        m = 8 * -(-m // 8) if layout == "tn" else m
        found.append(Problem(f"parts-{number % 5}", m, n, k, layout, dtype))
    unseen = _pairs_of((*_FIRST_HELD_OUT, seventh_held_out))
    return [each for each in found if (each.n, each.k) not in unseen]


def mixed_products(seed: int, count: int) -> list[Problem]:
    """Return drawn products in all layouts and both types, of all numbers of rows.

    In half of them lines start inside lines of the cache, and in a quarter no tensor map has an operand.
    """
    dice = random.Random(seed)
    found = []
    for number in range(count):
        kind, gap, offset = number % 8, 0, 0
        layout, dtype = dice.choice(("nn", "nt", "tn", "tt")), dice.choice(("bfloat16", "float16"))
        rows, columns, sums, step = _MIXED[kind]
        while True:
            m = _drawn(dice, *rows, step if layout[0] == "t" else 1)
            n, k = _drawn(dice, *columns, step), _drawn(dice, *sums, step)
            if m * n * k <= _MOST_MULTIPLICATIONS / 2:
                break
        if kind == 6:  # gaps between lines, or an offset before the first one
            gap, offset = ((dice.randint(1, 7), 0), (0, dice.randint(1, 7)))[number // 8 % 2]
        elif kind == 7:
            n, k = n + 1, k + 1
        found.append(Problem(f"mixed-{number % 5}", m, n, k, layout, dtype, gap, offset))
    unseen = _pairs_of((*_FIRST_HELD_OUT, seventh_held_out))
    return [each for each in found if (each.n, each.k) not in unseen]


def large_products() -> list[Problem]:
    """Return the large products of the sets to fit costs to, in a drawn order: those whose times power limits."""
    every = (*broad_products(_SEED + 9), *varied_products(_SEED + 31), *slow_products(_SEED + 21))
    found = [each for each in dict.fromkeys(every) if each.m * each.n * each.k > _FEWEST_OF_LARGE]
    random.Random(_SEED + 93).shuffle(found)
    return found


def _outside_of_held_out(given: Sequence[Problem]) -> list[Problem]:
    """Return the products whose n and k are not those of a product of a held-out set before the seventh one."""
    unseen = _pairs_of(_FIRST_HELD_OUT)
    return [each for each in given if (each.n, each.k) not in unseen]


def _outside_of_eighth(given: Sequence[Problem]) -> list[Problem]:
    """Return the products whose n and k are not those of a product of a held-out set up to the eighth one."""
    unseen = _pairs_of((*_FIRST_HELD_OUT, seventh_held_out, eighth_held_out))
    return [each for each in given if (each.n, each.k) not in unseen]


@cache
def _pairs(make: Callable[[], list[Problem]]) -> frozenset[tuple[int, int]]:
    """Return the n and k of each product of a set."""
    return frozenset((each.n, each.k) for each in make())


def _pairs_of(makers: Iterable[Callable[[], list[Problem]]]) -> frozenset[tuple[int, int]]:
    """Return the n and k of each product of several sets."""
    return frozenset[tuple[int, int]]().union(*map(_pairs, makers))


def few_lines(seed: int, count: int) -> list[Problem]:
    """Return drawn products of 1 to 16 rows in which no tensor map has an operand.

    There are gaps between the lines, or an offset before the first one; every fourth product has odd n and k instead.
    """
    dice = random.Random(seed)
    found = []
    for number in range(count):
        m, layout = (1, 2, 4, 8, 16)[number % 5], dice.choice(("nt", "nt", "nn", "tn", "tt"))
        m = m if number % 2 else dice.randint(1, 16)
        n, k = _drawn(dice, 200, 6000, 8), _drawn(dice, 400, 6000, 8)
        gap, offset = ((1, 0), (3, 0), (0, 1), (0, 0))[number % 4]
        if number % 4 == 3:
            n, k = n + 1, k + 1
        else:
            gap, offset = (dice.randint(1, 7) if each else 0 for each in (gap, offset))
        found.append(Problem("few lines", m, n, k, layout, dice.choice(("bfloat16", "float16")), gap, offset))
    return found


def unaligned_lines(seed: int, count: int, vocabularies: Sequence[tuple[int, int]]) -> list[Problem]:
    """Return drawn products in which no tensor map has an operand, in all layouts; most have few rows and many k.

    Every eighth one has the embedding of a model as an operand, and every eighth one a gap between its lines.
    """
    dice = random.Random(seed)
    found = []
    for number in range(count):
        kind, dtype = number % 8, dice.choice(("bfloat16", "float16"))
        layout, gap = dice.choice(("nn", "nt", "nn", "nt", "tn", "tt")), 0
        first, last = ((2, 16), (17, 64), (65, 256), (65, 256), (1, 1), (17, 600), (257, 2048), (2, 400))[kind]
        m, n, k = _drawn(dice, first, last, 1), _unaligned(dice, 300, 6000), _unaligned(dice, 400, 6000)
        if kind in (1, 2):
            n, k = _unaligned(dice, 250, 1200), _unaligned(dice, 2000, 16000)
        elif kind == 5:  # scores of words, and the gradients of the input and of the weight
            words, width = dice.choice(vocabularies)
            layout, m, n, k = (("nt", m, words, width), ("nn", m, width, words), ("tn", words, width, m))[
                number // 8 % 3
            ]
            dtype = "bfloat16"
        elif kind == 7:
            n, k = (_drawn(dice, 256, 6000, 8) for _ in range(2))
            m, gap = (8 * -(-m // 8) if layout[0] == "t" else m), dice.choice((1, 2, 3, 4, 5, 7))
        found.append(Problem("odd", m, n, k, layout, dtype, gap))
    return found


def spread() -> list[Problem]:
    """Return drawn products to fit costs to: sizes between those of layers, in all layouts, most with few rows."""
    dice = random.Random(_SEED + 1)
    found = []
    for number in range(320):
        first, last = _ROW_RANGES[(0, 1, 2, 3, 3, 4, 4, 5)[number % 8]]
        m = round(math.exp(dice.uniform(math.log(first), math.log(last))))
        n, k = (64 * round(math.exp(dice.uniform(math.log(1024), math.log(18000))) / 64) for _ in range(2))
        layout = dice.choice(("nt", "nt", "nt", "nn", "tn"))
        found.append(Problem(f"drawn-{number % 5}", m, n, k, layout, "bfloat16"))
    unseen = _pairs_of((held_out, second_held_out))
    return [each for each in found if (each.n, each.k) not in unseen]


def fitted() -> list[Problem]:
    """Return the problems whose times the costs are fitted to, in an order whose every part is spread over all."""
    found = []
    for model in (each for each in MODELS if each.name in _FITTED_MODELS):
        for group, n, k in _dense_layers(model):
            found += [Problem(f"{model.name} {group}", m, n, k, "nt", "bfloat16") for m in _FITTED_ROWS]
            found += [Problem(f"{model.name} {each.group}", *_sizes(each)) for each in _gradients(2048, n, k)]
    found += [
        Problem("square", size, size, size, layout, "float16")
        for size in (768, 2048, 3072, 4096, 8192)
        for layout in ("nn", "nt")
    ]
    found += unaligned()
    unseen = {(each.m, each.n, each.k) for each in held_out()}
    found = [each for each in dict.fromkeys(found) if (each.m, each.n, each.k) not in unseen]
    step = 37 if len(found) % 37 else 41  # coprime to the number of problems
    return [found[place * step % len(found)] for place in range(len(found))]


def unaligned() -> list[Problem]:
    """Return products whose leading dimensions are no multiples of 8 elements."""
    sizes = (
        (256, 1003, 2051), (1023, 4099, 2049), (129, 3074, 4098), (3001, 3001, 3001), (4097, 1031, 2047),
        (17, 1555, 3333), (64, 5001, 5001), (513, 2050, 2050), (2050, 7170, 1026), (1, 4099, 4099), (4, 2051, 8195),
        (8200, 1025, 1025),
    )  # fmt: skip
    return [Problem("odd", *each, "nt", "bfloat16") for each in sizes]


def spread_unaligned() -> list[Problem]:
    """Return drawn products to fit costs to whose leading dimensions are no multiples of 8 elements."""
    dice = random.Random(_SEED + 2)
    found = []
    for number in range(48):
        first, last = _ROW_RANGES[(0, 1, 2, 3, 1, 2, 3, 4)[number % 8]]
        step = (1, 1, 2)[number % 3]  # odd lengths, or even ones that are no multiples of 4
        n, k = (step * (2 * dice.randint(200, 3000 // step) + 1) for _ in range(2))
        layout, dtype = dice.choice(("nt", "nt", "nn", "tn")), dice.choice(("bfloat16", "float16"))
        found.append(Problem(f"drawn-odd-{number % 4}", dice.randint(first, last), n, k, layout, dtype))
    unseen = _pairs_of((held_out, second_held_out))
    return [each for each in found if (each.n, each.k) not in unseen]


def few_rows() -> list[Problem]:
    """Return every second problem of `fitted` and `spread` with 17 to 1,024 rows, in a drawn order."""
    found = [each for each in (*fitted(), *spread()) if each.group != "odd" and 17 <= each.m <= 1024][::2]
    random.Random(_SEED + 3).shuffle(found)
    return found


def between() -> list[Problem]:
    """Return drawn products to fit costs to: 65 to 600 rows, lines that are parts of two of the cache, other rows."""
    dice = random.Random(_SEED + 4)
    found = []
    for number in range(96):
        kind, layout = number % 8, dice.choice(("nt", "nn", "tn"))
        if kind < 4:
            layout = "nt"
            sizes = (_drawn(dice, 65, 600, 1), _drawn(dice, 1536, 16384, 128), _drawn(dice, 1536, 16384, 128))
        elif kind < 6:
            m, n, k = (_drawn(dice, 800, 5200, 64) + 8 * dice.randint(1, 7) for _ in range(3))
            sizes = (m, m, m) if number % 16 < 8 else (m, n, k)
        elif kind == 6:
            sizes = (_drawn(dice, 1400, 7000, 1), _drawn(dice, 2048, 9216, 128), _drawn(dice, 1536, 9216, 128))
            sizes = sizes if layout != "tn" else (128 * (sizes[0] // 128), *sizes[1:])
        else:
            layout = "nt"
            sizes = (_drawn(dice, 1, 64, 1), _drawn(dice, 1536, 16384, 128), _drawn(dice, 1536, 10240, 128))
        found.append(Problem(f"between-{number % 5}", *sizes, layout, dice.choice(("bfloat16", "float16"))))
    unseen = _pairs_of((held_out, second_held_out))
    return [each for each in found if (each.n, each.k) not in unseen]


def tails() -> list[Problem]:
    """Return drawn products like those whose schedules are hardest to choose, in a drawn order.

    They have 65 to 600 rows, few tiles, leading dimensions that are no multiples of 8 elements, or one row.
    """
    dice = random.Random(_SEED + 5)
    found: list[tuple[int, int, int, str, str]] = []
    for _ in range(72):
        n, k = (_drawn(dice, 1536, 20480, 128) for _ in range(2))
        found.append((_drawn(dice, 65, 600, 1), n, k, "nt", "bfloat16"))
    for number in range(20):
        size = _drawn(dice, 640, 1800, 8)
        m, n, k = (size, size, size) if number % 2 else (_drawn(dice, 512, 1800, 8) for _ in range(3))
        found.append((m, n, k, dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16"))))
    for _ in range(16):
        n, k = (_drawn(dice, 2048, 16384, 128) for _ in range(2))
        found.append((_drawn(dice, 2, 64, 1), n, k, "nt", "bfloat16"))
    for number in range(52):
        m = _drawn(dice, 65, 1600, 1) if number % 2 else (1 if number % 4 else _drawn(dice, 2, 64, 1))
        n, k = (2 * _drawn(dice, 200, 3000, 1) + 1 for _ in range(2))
        found.append((m, n, k, dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16"))))
    dice.shuffle(found)
    unseen = _pairs_of((held_out, second_held_out))
    return [
        Problem(f"tail-{number % 5}", *each) for number, each in enumerate(found) if (each[1], each[2]) not in unseen
    ]


def drawn_products(seed: int) -> list[Problem]:
    """Return drawn products of many kinds, in a drawn order: layers of few and of many rows, small ones, odd widths."""
    dice = random.Random(seed)
    found: list[tuple[int, int, int, str, str]] = []
    for number in range(96):
        first, last = ((65, 600), (65, 600), (2, 64), (1024, 8192))[number % 4]
        m, n, k = _drawn(dice, first, last, 1), *(_drawn(dice, 1536, 18000, 128) for _ in range(2))
        while m * n * k > _MOST_MULTIPLICATIONS:
            n, k = (_drawn(dice, 1536, 18000, 128) for _ in range(2))
        found.append((m, n, k, "nt", "bfloat16"))
    for number in range(16):
        size = _drawn(dice, 640, 2000, 8)
        m, n, k = (size, size, size) if number % 2 else (_drawn(dice, 512, 2000, 8) for _ in range(3))
        found.append((m, n, k, ("nt", "nn")[number // 2 % 2], dice.choice(("bfloat16", "float16"))))
    for number in range(16):
        n, k = (2 * _drawn(dice, 200, 3000, 1) + 1 for _ in range(2))
        m = 1 if number % 4 == 3 else _drawn(dice, 4, 600, 1)
        found.append((m, n, k, ("nt", "nn")[number // 2 % 2], dice.choice(("bfloat16", "float16"))))
    dice.shuffle(found)
    unseen = _pairs_of((held_out, second_held_out))
    return [
        Problem(f"drawn-{number % 5}", *each) for number, each in enumerate(found) if (each[1], each[2]) not in unseen
    ]


def small_products(seed: int) -> list[Problem]:
    """Return drawn products that take few microseconds, in a drawn order: squares and others, odd widths, one row."""
    dice = random.Random(seed)
    found: list[tuple[int, int, int, str, str]] = []
    for number in range(44):
        size = _drawn(dice, 384, 2000, 8)
        m, n, k = (size, size, size) if number % 2 else (_drawn(dice, 128, 2600, 8) for _ in range(3))
        found.append((m, n, k, ("nt", "nn", "tn", "nn")[number // 2 % 4], dice.choice(("bfloat16", "float16"))))
    for number in range(28):
        n, k = (2 * _drawn(dice, 200, 2600, 1) + 1 for _ in range(2))
        m = 1 if number % 2 else _drawn(dice, 4, 400, 1)
        found.append((m, n, k, ("nn", "nt", "nn")[number % 3], dice.choice(("bfloat16", "float16"))))
    dice.shuffle(found)
    unseen = _pairs_of((held_out, second_held_out))
    return [
        Problem(f"small-{number % 5}", *each) for number, each in enumerate(found) if (each[1], each[2]) not in unseen
    ]


def broad_products(seed: int) -> list[Problem]:
    """Return drawn products of all numbers of rows, most of them layers with weights of up to 300 MB."""
    dice = random.Random(seed)
    found: list[tuple[int, int, int, str, str]] = []
    for number in range(384):
        kind = number % 16
        layout, dtype = dice.choice(("nt", "nt", "nt", "nt", "nn", "tn")), "bfloat16"
        if kind < 13:
            first, last = _BROAD_ROWS[kind]
            m = _drawn(dice, first, last, 1 if layout != "tn" or last < 600 else 8)
            n, k = (_drawn(dice, 1536, 24576, 128) for _ in range(2))
            while n * k > _LARGEST_WEIGHT or m * n * k > _MOST_MULTIPLICATIONS:
                n, k = (_drawn(dice, 1536, 24576, 128) for _ in range(2))
            m = m if layout != "tn" else 8 * -(-m // 8)
        elif kind == 13:
            m, n, k = (_drawn(dice, 256, 2600, 8) for _ in range(3))
        else:
            m, n, k = _drawn(dice, *((1, 64), (65, 1200))[kind - 14], 1), *(_drawn(dice, 400, 6000, 1) for _ in "nk")
            layout, dtype = dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16"))
        found.append((m, n, k, layout, dtype))
    unseen = _pairs_of((held_out, second_held_out))
    return [
        Problem(f"broad-{number % 5}", *each) for number, each in enumerate(found) if (each[1], each[2]) not in unseen
    ]


def slow_products(seed: int) -> list[Problem]:
    """Return drawn products of the kinds that are slowest with a fitted choice, in an order spread over the kinds.

    65 to 600 rows with few or many values of k, one row, many rows with few rounds of tiles, and odd sizes.
    """
    dice = random.Random(seed)
    found: list[tuple[int, int, int, str, str]] = []
    for number in range(96):
        kind, layout, dtype = number % 12, "nt", "bfloat16"
        if kind < 4:  # a short sum
            sizes = (_drawn(dice, 65, 600, 1), _drawn(dice, 1536, 10240, 256), _drawn(dice, 1280, 4096, 128))
        elif kind < 6:  # a long one
            sizes = (_drawn(dice, 160, 640, 1), _drawn(dice, 2048, 8192, 256), _drawn(dice, 8192, 24576, 256))
        elif kind == 6:
            sizes = (1, _drawn(dice, 6144, 16384, 256), _drawn(dice, 3072, 6144, 256))
        elif kind < 9:
            sizes = (_drawn(dice, 1100, 8192, 1), _drawn(dice, 2048, 10240, 256), _drawn(dice, 2048, 12288, 256))
        else:  # odd sizes
            rows = (1, _drawn(dice, 17, 160, 1), _drawn(dice, 160, 700, 1))[kind - 9]
            sizes = (rows, 2 * _drawn(dice, 300, 3000, 1) + 1, 2 * _drawn(dice, 300, 3000, 1) + 1)
            layout, dtype = "nn", dice.choice(("bfloat16", "float16"))
        found.append((*sizes, layout, dtype))
    unseen = _pairs_of((held_out, second_held_out, third_held_out))
    return [
        Problem(f"slow-{number % 5}", *each) for number, each in enumerate(found) if (each[1], each[2]) not in unseen
    ]


def varied_products(seed: int) -> list[Problem]:
    """Return drawn products of the kinds of the held-out sets: layers and gradients, squares, odd sizes.

    No pair of n and k is that of a held-out set.  Every sixteenth part of the set has all kinds.
    """
    dice = random.Random(seed)
    found: list[tuple[int, int, int, str, str]] = []
    for number in range(512):
        kind, layout, dtype = number % 16, "nt", "bfloat16"
        n, k = (_drawn(dice, 1280, 24576, 256 if number % 3 else 64) for _ in range(2))
        while n * k > _LARGEST_WEIGHT:
            n, k = (_drawn(dice, 1280, 24576, 256) for _ in range(2))
        if kind < 10:
            m = _drawn(dice, *(*_ROW_RANGES, (65, 256), (257, 1024), (1025, 4096))[kind], 1)
        elif kind < 12:
            m, layout = _drawn(dice, 256, 4096, 8), "nn"
            if kind == 11:  # the gradient of a weight
                (m, n, k), layout = (n, k, m), "tn"
        elif kind == 12:
            m = n = k = _drawn(dice, 400, 6000, 4)
            layout, dtype = dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16"))
        else:
            first, last = _ROW_RANGES[number // 16 % 6]
            m, n, k = dice.randint(first, last), 2 * dice.randint(200, 3000) + 1, 2 * dice.randint(200, 3000) + 1
            layout, dtype = dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16"))
        if m * n * k > _MOST_MULTIPLICATIONS:
            m = max(8, int(_MOST_MULTIPLICATIONS / (n * k)) // 8 * 8)
        found.append((m, n, k, layout, dtype))
    makers = (held_out, second_held_out, third_held_out, fourth_held_out)
    unseen = _pairs_of(makers)
    return [
        Problem(f"varied-{number % 5}", *each) for number, each in enumerate(found) if (each[1], each[2]) not in unseen
    ]


def _of_unseen_layers(
    dice: random.Random, models: Sequence[Decoder], others: Sequence[Callable[[], list[Problem]]], count: int
) -> list[Problem]:
    """Return `count` layers and two odd sizes for each range of rows, and gradients of eight layers.

    The layers are those of models that have other sizes than the products of the other sets.
    """
    known = _pairs_of(others)
    layers = [(group, n, k) for model in models for group, n, k in model.layers() if (n, k) not in known]
    layers = list(dict.fromkeys(layers))
    found = []
    for first, last in _ROW_RANGES:
        for group, n, k in dice.sample(layers, count):
            found.append(Problem(group, _drawn(dice, first, last, 1), n, k, "nt", "bfloat16"))
        found += [_odd(dice, first, last) for _ in range(2)]
    for _, n, k in dice.sample(layers, 8):
        found += _gradients(_drawn(dice, 256, 4096, 8), n, k)
    return found


def _odd(dice: random.Random, first: int, last: int) -> Problem:
    """Return a product of drawn rows, from first to last, with odd n and k."""
    m, n, k = dice.randint(first, last), 2 * dice.randint(200, 3000) + 1, 2 * dice.randint(200, 3000) + 1
    return Problem("odd", m, n, k, dice.choice(("nt", "nn")), dice.choice(("bfloat16", "float16")))


def _unaligned(dice: random.Random, first: int, last: int) -> int:
    """Return a drawn number that is no multiple of 8, and in most cases odd."""
    step = dice.choice((1, 1, 1, 2, 4))
    return step * (_drawn(dice, first // step, last // step, 2) + 1)


def _drawn(dice: random.Random, first: int, last: int, step: int) -> int:
    """Return a multiple of `step` near a number between `first` and `last`, whose logarithm is uniform."""
    return step * round(math.exp(dice.uniform(math.log(first), math.log(last))) / step)


def _sizes(given: Problem) -> tuple[int, int, int, str, str]:
    return given.m, given.n, given.k, given.layout, given.dtype


def _dense_layers(model: Model) -> Iterator[tuple[str, int, int]]:
    inner = model.dense or model.expert
    yield "attention", model.hidden, model.hidden
    yield "up", inner, model.hidden
    yield "down", model.hidden, inner


def _gradients(rows: int, n: int, k: int) -> Iterator[Problem]:
    """Yield the gradients of the input and of the weight of a layer of n outputs and k inputs."""
    yield Problem("input gradient", rows, k, n, "nn", "bfloat16")
    yield Problem("weight gradient", n, k, rows, "tn", "bfloat16")


def _of_groups(problems: list[tuple[str, int, int, int]], layout: str, dtype: str) -> list[Problem]:
    return [Problem(*each, layout, dtype) for each in problems]


_FITTED_SETS: tuple[Callable[[], list[Problem]], ...] = (
    fitted, spread, spread_unaligned, between, tails, lambda: drawn_products(_SEED + 6),
    lambda: small_products(_SEED + 8), lambda: broad_products(_SEED + 9),
)  # fmt: skip
"""The sets that costs were fitted to, but for `slow` and `varied`, which are drawn around the held-out ones."""
_SETS_AFTER_ELEVENTH = ("one-wave", "twelfth-held-out")
"""The sets that were made after the eleventh held-out set."""
_SETS_AFTER_EIGHTH = (
    "gaps", "few-k", "short", "ninth-held-out", "tenth-held-out", "eleventh-held-out", *_SETS_AFTER_ELEVENTH,
)  # fmt: skip
"""The sets that were made after the eighth held-out set."""
_SETS_AFTER_SEVENTH = (
    "large", "part-lines", "second-part-lines", "part-lines-held-out", "mixed", "eighth-held-out", *_SETS_AFTER_EIGHTH,
)  # fmt: skip
"""The sets that were made after the seventh held-out set."""
_SETS_AFTER_SIXTH = (
    "sixth-held-out", "seventh-held-out", "gathered-rows", "medium", "second-medium", *_SETS_AFTER_SEVENTH,
)  # fmt: skip
"""The sixth held-out set, and the sets whose products were drawn after it."""
_FIRST_HELD_OUT: tuple[Callable[[], list[Problem]], ...] = (
    held_out, second_held_out, third_held_out, fourth_held_out, fifth_held_out, sixth_held_out,
)  # fmt: skip
SETS: Mapping[str, Callable[[], list[Problem]]] = MappingProxyType({
    "layers": lambda: _of_groups(chosen(9), "nn", "float16"),
    "published": lambda: [
        each
        for layout, dtype in (("nn", "float16"), ("nt", "bfloat16"))
        for each in _of_groups(published(), layout, dtype)
    ],
    "fitted": fitted,
    "unaligned": unaligned,
    "held-out": held_out,
    "second-held-out": second_held_out,
    "third-held-out": third_held_out,
    "fourth-held-out": fourth_held_out,
    "fifth-held-out": fifth_held_out,
    "sixth-held-out": sixth_held_out,
    "seventh-held-out": seventh_held_out,
    "eighth-held-out": eighth_held_out,
    "ninth-held-out": ninth_held_out,
    "tenth-held-out": tenth_held_out,
    "eleventh-held-out": eleventh_held_out,
    "twelfth-held-out": twelfth_held_out,
    "spread": spread,
    "spread-unaligned": spread_unaligned,
    "few-rows": few_rows,
    "between": between,
    "tails": tails,
    "drawn": lambda: drawn_products(_SEED + 6),
    "small": lambda: small_products(_SEED + 8),
    "broad": lambda: broad_products(_SEED + 9),
    "slow": lambda: slow_products(_SEED + 21),
    "varied": lambda: varied_products(_SEED + 31),
    "unaligned-lines": lambda: unaligned_lines(_SEED + 41, 160, _VOCABULARIES),
    "few-lines": lambda: few_lines(_SEED + 61, 80),
    "few-lines-held-out": lambda: few_lines(_SEED + 62, 80),
    "gathered-rows": lambda: gathered_rows(_SEED + 80, 112),
    "medium": lambda: medium_products(_SEED + 81, 112),
    "second-medium": lambda: medium_products(_SEED + 82, 112),
    "large": large_products,
    "part-lines": lambda: part_lines(_SEED + 91, 160),
    "second-part-lines": lambda: part_lines(_SEED + 94, 160),
    "part-lines-held-out": lambda: part_lines(_SEED + 92, 80),
    "mixed": lambda: mixed_products(_SEED + 101, 320),
    "gaps": lambda: gapped(_SEED + 121, 96),
    "few-k": lambda: few_k(_SEED + 122, 56),
    "short": lambda: short_products(_SEED + 123, 80),
    "one-wave": lambda: one_wave(_SEED + 181, 72),
    "broad-held-out": lambda: broad_products(_SEED + 10),
    "drawn-held-out": lambda: drawn_products(_SEED + 7),
})  # fmt: skip
