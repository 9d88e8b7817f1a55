"""Matrix products of open-weight models, by layer, from the widths in their `config.json`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """Widths of a model: hidden, dense feed-forward, routed expert and vocabulary; 0 if a model has none."""

    name: str
    hidden: int
    dense: int
    expert: int
    vocabulary: int


MODELS = (
    Model("Qwen3.8-2.4T-A95B", 8192, 0, 2048, 248_320),
    Model("DeepSeek-V4-Pro", 7168, 0, 3072, 129_280),
    Model("DeepSeek-V4-Flash", 4096, 0, 2048, 129_280),
    Model("GLM-5.2", 6144, 12288, 2048, 154_880),
    Model("GLM-4.7-Flash", 2048, 10240, 1536, 154_880),
    Model("Kimi-K2.6", 7168, 18432, 2048, 163_840),
    Model("Kimi-K3", 7168, 33792, 3072, 163_840),
    Model("gpt-oss-120b", 2880, 0, 2880, 201_088),
    Model("gpt-oss-20b", 2880, 0, 2880, 201_088),
    Model("Nemotron-3.5-L", 2688, 1856, 1856, 131_072),
    Model("MiniMax-M2", 3072, 0, 1536, 200_064),
    Model("Qwen3-30B-A3B", 2048, 6144, 768, 151_936),
    Model("Ling-3.0-flash", 2560, 6144, 768, 157_184),
    Model("Qwen3.6-35B-A3B", 2048, 0, 512, 248_320),
    Model("Qwen3.8-27B", 5120, 17408, 0, 248_320),
    Model("granite-4.1-8b", 4096, 12800, 0, 100_352),
)
"""Each number is the value of a named key of the model's own `config.json`."""

TOKENS = {
    "attention": (256, 2048, 16384), "mlp up": (256, 2048, 16384), "mlp down": (256, 2048, 16384),
    "moe up": (16, 128, 512, 3072), "moe down": (16, 128, 512, 3072), "lm head": (1, 16, 64, 256),
    "lora": (80, 1024, 4096, 16384),
}  # fmt: skip
RANKS = (8, 16, 64)


def layers(model: Model) -> Iterator[tuple[str, int, int]]:
    """Group, n and k of every product of a model: n is the output width, k the input width."""
    yield "attention", model.hidden, model.hidden
    if model.dense:
        yield "mlp up", model.dense, model.hidden
        yield "mlp down", model.hidden, model.dense
    if model.expert:
        yield "moe up", model.expert, model.hidden
        yield "moe down", model.hidden, model.expert
    yield "lm head", model.vocabulary, model.hidden
    for rank in RANKS:
        yield "lora", model.hidden, rank


def shapes() -> dict[tuple[str, int, int, int], list[str]]:
    """(group, m, n, k) of all products without duplicates, with the models that have each."""
    found: dict[tuple[str, int, int, int], list[str]] = {}
    for model in MODELS:
        for group, n, k in layers(model):
            for m in TOKENS[group]:
                found.setdefault((group, m, n, k), []).append(model.name)
    return found


PUBLISHED = {
    "attention": 45, "mlp up": 21, "mlp down": 21, "moe up": 55, "moe down": 57, "lm head": 54, "lora": 137,
}  # fmt: skip
"""Number of shapes of these models in each group of a published evaluation, 390 in all. It gives their ranges, not
their list: token, head and active expert counts are not in the table of widths.
"""
_MORE_TOKENS = {
    "attention": (512, 4096), "moe up": (1024,), "moe down": (6144,), "mlp up": (), "mlp down": (), "lm head": (),
    "lora": (256, 2048),
}  # fmt: skip
_NEVER_DENSE = frozenset({"Qwen3-30B-A3B", "Nemotron-3.5-L"})
"""Models that list a dense width but have no such layer, or a narrower one than the published range."""


def published() -> list[tuple[str, int, int, int]]:
    """(group, m, n, k): PUBLISHED distinct shapes of each group, one token count after another.

    Widths come from MODELS. The token counts are chosen here, within the published ranges.
    """
    found = []
    for group, count in PUBLISHED.items():
        pairs: dict[tuple[int, int], None] = {}
        for model in MODELS:
            for name, n, k in layers(model):
                if name == group and not (name.startswith("mlp") and model.name in _NEVER_DENSE):
                    pairs[n, k] = None
        tokens = (*TOKENS[group], *_MORE_TOKENS[group])
        mine = [(group, m, n, k) for m in tokens for n, k in pairs]
        found += mine[:count]
    return found


def chosen(each: int) -> list[tuple[str, int, int, int]]:
    """`each` shapes of every group, spread over its models and its token counts."""
    found = []
    for group in TOKENS:
        mine = [shape for shape in shapes() if shape[0] == group]
        # A stride coprime to the length of the list varies both tokens and models.
        step = next(number for number in range(max(2, len(mine) // each), len(mine) + 2) if _coprime(number, len(mine)))
        found += [mine[place * step % len(mine)] for place in range(min(each, len(mine)))]
    return found


def main() -> None:
    """Print the published number of shapes, one to a line, in the format of `bitwise cublas audit --shapes`."""
    for group, m, n, k in published():
        print(f"{m} {n} {k}  # {group}")


def _coprime(one: int, other: int) -> bool:
    while other:
        one, other = other, one % other
    return one == 1


if __name__ == "__main__":
    main()
