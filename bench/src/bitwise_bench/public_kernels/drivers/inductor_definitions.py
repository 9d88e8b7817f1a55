"""TorchInductor: kernels of compiled models of transformers, of families that no other driver has."""

from __future__ import annotations

from bitwise_bench.public_kernels.drivers.inductor_sizes import _image, _pair, _text
from bitwise_bench.public_kernels.sources import Driver

_TEXT: tuple[str, ...] = (
    "ChineseCLIPText", "Apertus", "GPTBigCode", "GPTNeoXJapanese", "BioGpt", "Qwen3VLMoeText", "Ernie4_5_Moe",
    "Mra", "Splinter", "BitNet", "HiggsAudioV2", "GraniteMoe", "IBert", "Gemma3Text", "Persimmon",
    "FalconMamba", "ExaoneMoe", "Longformer", "Ministral3", "Granite4VisionText", "PLBart", "Dots1", "LayoutLM",
    "LED", "AltCLIPText", "ClapText", "ModernBertDecoder", "Mvp", "HYV3", "Fuyu", "Phimoe", "Siglip2Text",
    "SolarOpen", "InstructBlipQFormer", "GroupViTText", "Ernie4_5", "MetaClip2Text", "Owlv2Text", "VaultGemma",
    "Step3p7Text", "InklingText", "MiniMaxM3VLText", "Mpt", "Glm4", "Arcee", "VisualBert", "Qwen3VLText",
    "Exaone4",
)  # fmt: skip
_PAIRS: tuple[str, ...] = (
    "NllbMoe", "SwitchTransformers", "MT5", "UMT5", "LongT5",
)  # fmt: skip
_IMAGES: tuple[str, ...] = (
    "IJepa", "Pixio", "JanusVision", "MetaClip2Vision", "Phi4MultimodalVision", "AltCLIPVision",
    "InstructBlipVision", "ViTMAE", "Aimv2Vision", "InstructBlipVideoVision", "OwlViTVision", "MLCDVision",
    "Blip2Vision", "GitVision", "Step3p7Vision",
)  # fmt: skip

CASES: dict[str, Driver] = {
    **{family.lower(): _text(family) for family in _TEXT},
    **{family.lower(): _pair(family) for family in _PAIRS},
    **{family.lower(): _image(family) for family in _IMAGES},
}
