"""TorchInductor: kernels of compiled models of transformers, of families that no other driver has.

The families are those that run forward and backward in a small size; the size, the length, the batch and the type of
the numbers are drawn from the name.
"""

from __future__ import annotations

from bitwise_bench.public_kernels.drivers.inductor_sizes import _image, _text
from bitwise_bench.public_kernels.sources import Driver

_TEXT: tuple[str, ...] = (
    "DeepseekV32", "BlipText", "MiniMax", "Canine", "FlexOlmo", "Glm4MoeLite", "Aimv2Text", "HrmText",
    "AlignText", "Olmo3", "BarkCoarse", "SiglipText", "NomicBert", "Bart", "XLMRoberta", "JinaEmbeddingsV3",
    "OwlViTText", "GraniteMoeShared", "OpenAIGPT", "MarkupLM", "HunYuanMoEV1", "Cohere2", "CTRL", "HyperCLOVAX",
    "MllamaText", "Emu3Text", "PPFormulaNetText", "Flaubert", "DeepseekV4", "Jais2", "Sam3LiteTextText",
    "NanoChat", "Ministral", "BarkSemantic", "InstructBlipVideoQFormer", "XCLIPText", "FSMT", "CLIPSegText",
)  # fmt: skip
_IMAGES: tuple[str, ...] = (
    "Data2VecVision", "SiglipVision", "DPT", "DeiT", "ViTMSN", "MobileNetV1", "CLIPVision", "SwiftFormer",
    "SamHQVision", "CLIPSegVision", "Dinov2WithRegisters", "Owlv2Vision", "BlipVision", "Radio",
    "PixtralVision",
)  # fmt: skip

CASES: dict[str, Driver] = {
    **{family.lower(): _text(family) for family in _TEXT},
    **{family.lower(): _image(family) for family in _IMAGES},
}
