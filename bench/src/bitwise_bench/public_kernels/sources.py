"""The public packages whose kernels are recorded, with their versions and licences."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

Driver: TypeAlias = Callable[[Any], None]
"""A function that calls operators of a package on small tensors, which it takes from a `tensors.Tensors`."""


@dataclass(frozen=True, slots=True)
class Source:
    """A public package.

    `distribution` and `version` name it on PyPI; `archive` is the form in which it is published there, "installed" for
    a package that the environment has.  `root` is the folder of its modules in the archive; `only` are the beginnings
    of the paths of the modules that are needed.  `needs` are pure Python packages that its modules import, with their
    versions.  `licence` is its SPDX identifier.  `inductor`: the kernels are those that TorchInductor makes of models
    of the package.  The drivers are those of the module `drivers.<name>`.
    """

    name: str
    distribution: str
    version: str
    licence: str
    archive: Literal["wheel", "sdist", "installed"] = "wheel"
    root: str = ""
    only: str | tuple[str, ...] = ""
    needs: tuple[tuple[str, str], ...] = ()
    inductor: bool = False

    def drivers(self) -> Mapping[str, Driver]:
        """Return the drivers by the name of the case."""
        module = importlib.import_module(f"bitwise_bench.public_kernels.drivers.{self.name}")
        found: Mapping[str, Driver] = module.CASES
        return found


_EINOPS = ("einops", "0.8.2")

SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        source.name: source
        for source in (
            Source("liger", "liger-kernel", "0.8.5", "BSD-2-Clause"),
            Source("linear_attention", "fla-core", "0.6.0", "MIT"),
            Source("gems", "flag_gems", "5.0.2", "Apache-2.0"),
            Source("conch", "conch-triton-kernels", "1.3", "Apache-2.0"),
            Source("cut_cross_entropy", "cut-cross-entropy", "25.1.1", "LicenseRef-AMLR"),
            Source("lightllm", "lightllm", "0.0.1", "Apache-2.0"),
            Source("sglang", "sglang", "0.5.23", "Apache-2.0", only="sglang/kernels/ops"),
            Source("xformers", "xformers", "0.0.35", "BSD-3-Clause", "sdist", "xformers-0.0.35"),
            Source(
                "deepspeed",
                "deepspeed",
                "0.19.8",
                "Apache-2.0",
                "sdist",
                "deepspeed-0.19.8",
                "deepspeed-0.19.8/deepspeed",
            ),
            Source("mamba", "mamba-ssm", "2.3.2.post1", "Apache-2.0", "sdist", "mamba_ssm-2.3.2.post1"),
            Source(
                "flash_attention",
                "flash-attn",
                "2.8.3.post2",
                "BSD-3-Clause",
                "sdist",
                "flash_attn-2.8.3.post2",
                "flash_attn-2.8.3.post2/flash_attn",
            ),
            Source("sage_attention", "sageattention", "1.0.6", "Apache-2.0"),
            Source("mlstm", "mlstm-kernels", "2.0.6", "LicenseRef-NXAI-Community", needs=(_EINOPS,)),
            Source("adasplash", "adasplash", "0.2.2", "MIT"),
            Source("bitsandbytes", "bitsandbytes", "0.50.2", "MIT", only="bitsandbytes"),
            Source(
                "gemlite",
                "gemlite",
                "0.6.0.post2",
                "Apache-2.0",
                "sdist",
                "gemlite-0.6.0.post2",
                "gemlite-0.6.0.post2/gemlite",
            ),
            Source("torchao", "torchao", "0.18.0", "BSD-3-Clause", only="torchao"),
            Source("flashlib", "flashlib", "0.4.0", "Apache-2.0", only="flashlib"),
            Source(
                "vllm",
                "vllm",
                "0.33.0",
                "Apache-2.0",
                "sdist",
                "vllm-0.33.0",
                tuple(
                    f"vllm-0.33.0/vllm/{each}"
                    for each in (
                        *("v1/attention/ops/triton_", "v1/worker/gpu/sample", "model_executor/determinism"),
                        *("model_executor/layers/quantization/awq_triton", "model_executor/layers/lightning_attn"),
                        *("model_executor/layers/quantization/utils/int8_utils", "model_executor/layers/mamba/ops"),
                    )
                ),
                (_EINOPS,),
            ),
            Source("inductor", "transformers", "", "Apache-2.0", "installed", inductor=True),
            Source("torch_norm", "torchnorm", "0.1.2", "MIT"),
            Source("cross_entropy", "crossentropy-triton", "0.1.2", "MIT"),
            Source("saga", "saga-activation", "0.2.0", "MIT"),
            Source("muon", "triton-muon-adamw", "1.0.0", "MIT"),
            Source("moe_operators", "moe-ops", "0.1.0", "MIT"),
            Source("column_sums", "flash-colsum", "0.1.0", "MIT"),
            Source("lanczos", "lanczos-triton", "0.1.0", "MIT"),
            Source("grouped_products", "grouped-mm-bf16", "0.1.7", "MIT"),
            Source("kmeans", "flash-kmeans", "0.3.1", "Apache-2.0"),
            Source("slices", "flashslice", "0.3.0", "Apache-2.0", needs=(_EINOPS,)),
            Source("mase", "mase-triton", "0.0.7", "Apache-2.0"),
            Source("augmentation", "triton-augment", "0.3.0", "Apache-2.0"),
            Source("packed_adam", "turboadam", "0.2.0", "MIT"),
            Source("siglip", "siglip-kernel", "0.1.2", "Apache-2.0"),
            Source("contrastive", "memeff", "0.3.1", "Apache-2.0"),
            Source("scans", "mingru-scans", "0.2.0", "MIT"),
            Source("local_correlation", "localcorr", "0.1.1", "MIT"),
            Source("late_interaction", "late-interaction-kernels", "0.4.5", "Apache-2.0"),
            Source("error_correction", "tridec", "0.2.2", "Apache-2.0"),
            Source("submodular", "triton-submodular", "0.1.0a1", "MIT"),
            Source("trinix", "trinix", "0.1.4", "Apache-2.0"),
            Source("triformer", "triformer", "3.0.7", "MIT"),
            Source("accelerated", "rotalabs-accel", "1.1.1", "Apache-2.0"),
            Source("gated_recurrences", "gru-qat", "0.5.0", "MIT"),
            Source("decode_kernels", "fasterkernels", "0.2.0", "MIT"),
            Source("denoising", "bm3d-triton", "0.1.1", "BSD-2-Clause"),
            Source("colour_transfer", "colortransfer-triton", "0.1.0", "MIT"),
            Source("sparse_convolution", "spconv-triton", "1.0.0", "Apache-2.0"),
            Source("random_numbers", "triton-csprng", "0.1.5", "MIT"),
            Source("singular_updates", "eigentune", "0.2.0", "Apache-2.0"),
            Source("compressed_cache", "fused-turboquant", "0.1.0", "Apache-2.0"),
            Source("transport", "flash-sinkhorn", "0.4.1", "MIT"),
            Source("point_sampling", "torch-fps", "0.6.0", "MIT"),
            Source("sigmoid_attention", "triton-sigmoid", "0.1.2", "MIT"),
            Source("attention_derivatives", "jvp-flash-attention", "0.14.0", "MIT"),
            Source("quantum_circuits", "triton-qml", "0.1.0", "MIT"),
            Source("flash_nn", "flashnn", "0.1.1", "Apache-2.0"),
            Source("chalk", "freesolo-chalk", "0.5.7", "BSD-2-Clause"),
            Source("attention_with_dropout", "flash-attn-triton", "0.1.1", "BSD-3-Clause"),
            Source("causal_attention", "flash-attention-triton", "0.1.1", "MIT"),
            Source("energy_attention", "ebt-flash-attention", "0.2.0", "MIT"),
            Source("disentangled", "disentangled-flash", "1.1.1", "Apache-2.0"),
            Source("landmarks", "dsalt", "1.0.0", "Apache-2.0"),
            Source("distillation", "orda-kernel", "0.1.0", "Apache-2.0"),
            Source("spiking", "tetherpy", "0.2.0", "Apache-2.0"),
            Source("local_linear_attention", "parallax-kernel", "0.1.1", "MIT"),
            Source("curves", "hilbertsfc", "0.5.1", "MIT"),
            Source("compressed_keys", "turboquant-vllm", "1.5.0", "Apache-2.0"),
            Source("boosting", "ibu-boost", "0.1.1", "MIT"),
            Source("quantised_vision", "qattn", "0.1.1", "MIT"),
            Source("packed_weights", "onecomp-runtime", "0.1.0", "MIT"),
            Source("speech", "qwen3-tts-triton", "0.3.0", "Apache-2.0"),
            Source("hadamard", "turbopress", "0.5.2", "Apache-2.0"),
            Source("gated_products", "flash-swiglu-mlp", "0.4.3", "Apache-2.0"),
            Source("speculation", "flashspec", "0.3.1", "Apache-2.0"),
            Source("strips", "kernel-fun", "0.2.0", "Apache-2.0"),
            Source("inductor_families", "transformers", "", "Apache-2.0", "installed", inductor=True),
            Source("inductor_networks", "torch", "", "BSD-3-Clause", "installed", inductor=True),
            Source("inductor_sizes", "transformers", "", "Apache-2.0", "installed", inductor=True),
            Source("inductor_programs", "torch", "", "BSD-3-Clause", "installed", inductor=True),
            Source(
                "lmdeploy",
                "lmdeploy",
                "0.18.0",
                "Apache-2.0",
                only=tuple(f"lmdeploy/{each}" for each in ("pytorch/kernels/cuda", "pytorch/envs", "pytorch/backends")),
            ),
            Source(
                "unsloth", "unsloth", "2026.10.9", "Apache-2.0", only=("unsloth/kernels", "unsloth/bnb_availability")
            ),
            Source(
                "axolotl",
                "axolotl",
                "0.21.0",
                "Apache-2.0",
                only=tuple(
                    f"axolotl/{each}"
                    for each in (
                        *("kernels", "integrations/kernels/libs", "monkeypatch/attention", "utils/logging"),
                        *("utils/optimizers/sinkgd_triton", "core/trainers/ebft/kernels"),
                    )
                ),
            ),
            Source("modelopt", "nvidia-modelopt", "0.47.0", "Apache-2.0", only="modelopt/torch/kernels"),
            Source("optimi", "torch-optimi", "0.3.3", "MIT", only="optimi"),
            Source("multiple_architectures", "cuda-triton-multiarch", "0.1.3", "MIT", only=("kernels", "globals")),
            Source("softmax_plus_n", "flash-attention-softmax-n", "0.3.2", "GPL-3.0-only"),
            Source("multiple_vectors", "colsearch", "0.1.7", "CC-BY-NC-4.0", only="colsearch/_internal"),
            Source("voices", "omnivoice-triton", "0.1.0", "Apache-2.0", only="omnivoice_triton/kernels"),
            Source("feature_correlation", "local-corr-lumi", "0.1.0", "MIT", only="local_corr"),
            Source(
                "vision_transformers",
                "vit-pytorch",
                "1.26.14",
                "MIT",
                only="vit_pytorch",
                needs=(_EINOPS,),
                inductor=True,
            ),
            Source(
                "sequence_transformers",
                "x-transformers",
                "2.31.10",
                "MIT",
                only="x_transformers",
                needs=(_EINOPS, ("torch_einops_utils", "0.2.0"), ("loguru", "0.7.3")),
                inductor=True,
            ),
            Source("maximum_similarity", "flash-maxsim", "0.3.0", "Apache-2.0"),
            Source("four_bit_products", "gptq-triton", "0.0.4", "Apache-2.0"),
            Source("chunked_lstm", "flash-xlstm-exp", "0.1.0", "LicenseRef-NXAI-Community", needs=(_EINOPS,)),
            Source("gated_halves", "hackers-kernels", "0.1.6", "LicenseRef-Unstated"),
            Source("routed_products", "tokenspeed-triton-kernels", "1.0.0.post20260510", "LicenseRef-Unstated"),
            Source("four_bit_experts", "grouped-nf4-gemm", "0.51.0", "MIT"),
            Source(
                "image_models",
                "timm",
                "1.0.31",
                "Apache-2.0",
                only=("timm/models", "timm/layers", "timm/data/constants"),
                inductor=True,
            ),
            Source(
                "diffusion",
                "diffusers",
                "0.37.1",
                "Apache-2.0",
                inductor=True,
                only=tuple(
                    f"diffusers/{each}"
                    for each in (
                        "models",
                        "utils",
                        "loaders",
                        "hooks",
                        "quantizers",
                        "configuration_utils",
                        "image_processor",
                        "video_processor",
                        "callbacks",
                        "schedulers",
                        "__init__",
                        "dependency_versions",
                    )
                ),
            ),
            Source("optimisers", "pytorch_optimizer", "4.1.0", "Apache-2.0", inductor=True, only="pytorch_optimizer"),
            Source("sequence_memory", "performer-pytorch", "1.1.4", "MIT", needs=(_EINOPS,), inductor=True),
            Source("selective_scans", "mambapy", "1.2.0", "MIT", inductor=True),
            Source(
                "codebooks",
                "vector-quantize-pytorch",
                "1.32.0",
                "MIT",
                inductor=True,
                needs=(
                    _EINOPS,
                    ("einx", "0.4.3"),
                    ("torch_einops_utils", "0.2.0"),
                    ("loguru", "0.7.3"),
                    ("frozendict", "2.5.1"),
                ),
            ),
            Source("equivariant_graphs", "egnn-pytorch", "0.2.8", "MIT", needs=(_EINOPS,), inductor=True),
            Source(
                "vision_networks",
                "torchvision",
                "0.29.1",
                "BSD-3-Clause",
                inductor=True,
                only=(
                    "torchvision/models",
                    "torchvision/ops",
                    "torchvision/_",
                    "torchvision/utils",
                    "torchvision/transforms",
                ),
            ),
            Source("recurrence_scans", "accelerated-scan", "0.3.1", "MIT"),
            Source("custom_masks", "flashattention2-custom-mask", "0.1.1", "LicenseRef-Unstated"),
            Source("plied", "ply-ai", "1.0.5", "LicenseRef-Unstated", only="ply"),
            Source("four_bit_linear", "otf-llm", "4.1.0", "MIT", only="otf_llm/otf_triton_kernel"),
            Source("ragged_rows", "ring-flash-attn", "0.1.8", "MIT", only="ring_flash_attn/triton_utils"),
            Source("power_attention", "retention", "1.0.7", "MIT", only="retention"),
            Source("rounded_weights", "auto-round", "0.16.1", "Apache-2.0", only="auto_round_extension/triton"),
            Source("spans", "superlinear", "0.1.0", "Apache-2.0", only="superlinear/kernels"),
            Source(
                "token_similarity", "voyager-index", "0.1.6", "CC-BY-NC-4.0", only="voyager_index/_internal/kernels"
            ),
            Source("triangle_attention", "trifast", "0.1.13", "MIT", needs=(_EINOPS,)),
            Source("column_reductions", "flash-colreduce", "0.2.2", "MIT"),
            Source("attention_residuals", "flash-attn-res", "0.1.12", "Apache-2.0"),
            Source("semi_markov", "flash-semicrf", "0.2.0", "MIT", only="flash_semicrf"),
            Source("volume_rendering", "flashdrr", "0.6.0", "MIT", only="flashdrr"),
            Source("packed_optimisers", "flashoptim", "0.1.4", "Apache-2.0"),
            Source("ring_attention", "ring-attention-pytorch", "0.5.20", "MIT", needs=(_EINOPS,)),
            Source("selected_attention", "native-sparse-attention-pytorch", "0.2.3", "MIT", needs=(_EINOPS,)),
            Source("nuggets", "transformer-nuggets", "0.0.4", "BSD-3-Clause", only="transformer_nuggets"),
            Source("sparse_attention", "flash-sparse-attn", "2.0.6", "BSD-3-Clause", only="flash_sparse_attn"),
            Source("masked_models", "flash-mlm", "1.2.3", "MIT", only="flash_mlm"),
            Source("rotations", "triton-kernels", "0.1.0", "MIT", only="triton_kernels"),
            Source("softpick_attention", "simpler-flash", "1.3.5", "MIT", only="simpler_flash", needs=(_EINOPS,)),
            Source("lightning_attention", "lasp", "0.0.1", "MIT", only="lasp"),
            Source("density_estimates", "flash-sd-kde", "0.1.0", "BSD-3-Clause", only=("kernels", "globals")),
            Source("fused_models", "axiomlm", "0.1.0", "MIT", only="axiomlm/kernels"),
            Source("video_sparse", "vsa", "0.0.4", "Apache-2.0", only="vsa"),
            Source(
                "window_states",
                "sketchssm",
                "0.1.15",
                "Apache-2.0",
                only="sketchssm/calibration/collection/hooks",
            ),
            Source("stream_products", "tokenspeed-tritonblas", "0.1.0.post20260510", "MIT", only="tritonblas"),
            Source("open_weights", "tritonllm", "0.1.1", "MIT", only="tritonllm"),
            Source(
                "causal_variants",
                "flash-attention-x",
                "0.0.1",
                "MIT",
                "sdist",
                "flash_attention_x-0.0.1",
                "flash_attention_x-0.0.1/flash_attention_x",
            ),
            Source("moon_optimisers", "luminamoon", "1.0.6.post1", "Apache-2.0", only="luminamoon/optimizer"),
            Source(
                "decayed_attention",
                "leetDecoding",
                "0.0.3",
                "MIT",
                "sdist",
                "leetDecoding-0.0.3",
                "leetDecoding-0.0.3/leetDecoding/methods",
            ),
            Source(
                "gated_units",
                "FLASH-pytorch",
                "0.1.9",
                "MIT",
                only="flash_pytorch",
                needs=(_EINOPS, ("rotary_embedding_torch", "0.9.1")),
                inductor=True,
            ),
            Source("spline_networks", "flashkan", "0.2.0", "MIT", only="flashkan", inductor=True),
            Source("expert_mixtures", "mixture-of-experts", "0.2.3", "MIT", only="mixture_of_experts", inductor=True),
            Source(
                "taylor_attention",
                "taylor-series-linear-attention",
                "0.2.0",
                "MIT",
                only="taylor_series_linear_attention",
                needs=(_EINOPS, ("rotary_embedding_torch", "0.9.1")),
                inductor=True,
            ),
            Source(
                "gated_states",
                "gated-state-spaces-pytorch",
                "0.1.0",
                "MIT",
                only="gated_state_spaces_pytorch",
                needs=(_EINOPS,),
                inductor=True,
            ),
            Source("activation_weights", "autoawq", "0.2.7.post3", "MIT", only="awq/modules/triton"),
            Source("cached_diffusion", "cache-dit", "1.5.3", "Apache-2.0", only="cache_dit/kernels"),
            Source("atoms", "fairchem-core", "2.24.0", "MIT", only="fairchem/core/models/uma/triton"),
            Source("sign_updates", "lion-pytorch", "0.2.5", "MIT", only="lion_pytorch"),
            Source(
                "adapter_training",
                "nemo-automodel",
                "0.7.0",
                "Apache-2.0",
                only=tuple(
                    f"nemo_automodel/{each}"
                    for each in (
                        *("shared/import_utils", "components/_peft/lora_kernel", "components/loss/triton"),
                        *("components/models/common/rope_triton", "components/models/kimi_k3/attn_res_triton"),
                        *("components/models/kimi_k3/situ_triton", "components/models/kimi_k3/kda_fused"),
                        "components/moe/megatron",
                    )
                ),
            ),
            Source("strided_atoms", "nequip-allegro", "0.8.3", "MIT", only="allegro/nn/_strided"),
            Source("tiled_arrays", "ninetoothed", "0.26.0", "Apache-2.0", only="ninetoothed"),
            Source("sparse_memory", "sparse-delta-memory", "2.0.0", "CC-BY-NC-4.0", only="sparse_delta_memory"),
            Source(
                "routed_training",
                "torchtitan",
                "0.3.0",
                "BSD-3-Clause",
                only=("torchtitan/distributed/minimal_async_ep", "torchtitan/overrides"),
            ),
            Source(
                "packed_vectors",
                "turbo-attn",
                "0.70.1",
                "Apache-2.0",
                only=(
                    "tkv/core",
                    "tkv/errors",
                    "tkv/codec/triton_kernels",
                    "tkv/kernels/page_metadata",
                    "tkv/runtime/_rows_matmul",
                    "tkv/runtime/bypass_scatter",
                ),
            ),
            Source("policy_training", "verl", "0.9.1", "Apache-2.0", only="verl/utils/kernel"),
            Source("serving_plugins", "vllm-factory", "0.2.1", "Apache-2.0", only="kernels"),
            Source("additive_codes", "aqlm", "1.1.7", "MIT", only="aqlm/inference_kernels"),
            Source("interface_models", "comfy-kitchen", "0.2.40", "Apache-2.0", only="comfy_kitchen"),
            Source("balanced_connections", "hyper-connections", "0.4.11", "MIT", only="hyper_connections"),
            Source("traced_losses", "lightning-thunder", "0.2.6", "Apache-2.0", only="thunder/executors"),
            Source(
                "transducers",
                "nemo-toolkit",
                "3.0.0",
                "Apache-2.0",
                only=(
                    "nemo/collections/asr/parts/k2/rnnt_logprobs_triton",
                    "nemo/collections/asr/parts/submodules/ngram_lm/ngram_lm_triton",
                ),
            ),
            Source("recurrent_rules", "rwkv-ops", "0.11.3", "Apache-2.0", only="rwkv_ops"),
            Source("block_matrices", "tritonix", "0.1.0", "CC-BY-NC-4.0", only="tritonix"),
            Source(
                "long_filters",
                "vtx",
                "1.1.0",
                "Apache-2.0",
                only=tuple(f"vortex/ops/{each}" for each in ("hc", "conv", "embedding", "triton_common", "hyena_se")),
                needs=(_EINOPS,),
            ),
            Source(
                "latent_models",
                "perceiver-pytorch",
                "0.11.0",
                "MIT",
                only="perceiver_pytorch",
                needs=(_EINOPS,),
                inductor=True,
            ),
            Source("tables_of_features", "rtdl-revisiting-models", "0.0.2", "Apache-2.0", inductor=True),
            Source(
                "landmark_attention",
                "nystrom-attention",
                "0.0.14",
                "MIT",
                only="nystrom_attention",
                needs=(_EINOPS,),
                inductor=True,
            ),
            Source("speech_blocks", "conformer", "0.3.2", "MIT", only="conformer", needs=(_EINOPS,), inductor=True),
            Source("ensembles", "tabm", "0.0.3", "Apache-2.0", only="tabm", inductor=True),
            Source("memory_slots", "memformer", "0.3.1", "MIT", only="memformer", needs=(_EINOPS,), inductor=True),
            Source("inductor_definitions", "transformers", "", "Apache-2.0", "installed", inductor=True),
            Source("inductor_further", "transformers", "", "Apache-2.0", "installed", inductor=True),
        )
    }
)
"""The sources by name."""
