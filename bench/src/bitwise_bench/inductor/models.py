"""Models whose kernels TorchInductor tunes: a step of training or of inference each, on a GPU.

`OPEN` are those on which the choice of the reference was tuned, `HELD_OUT` those that were measured once afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Workload:
    """A function that is compiled, its inputs, and the tensors whose gradients a step of training computes.

    Without such tensors a step is the call alone.  `state` are tensors that the call changes: they are results, and
    have their first contents again before a step whose bytes are compared.
    """

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    trained: tuple[Any, ...] = ()
    state: tuple[Any, ...] = ()
    _before: list[Any] = field(default_factory=list)

    def step(self, compiled: Callable[..., Any]) -> tuple[Any, ...]:
        """Run one step.  Returns the outputs."""
        found = compiled(*self.inputs)
        outputs = found if isinstance(found, tuple) else () if found is None else (found,)
        if self.trained:
            loss = sum(each.float().square().mean() if each.dim() else each.float() for each in outputs)
            loss.backward()
        return outputs

    def results(self, compiled: Callable[..., Any]) -> list[Any]:
        """Run one step from the first state.  Returns the outputs, the gradients and the state."""
        if not self._before:
            self._before.extend(each.detach().clone() for each in self.state)
        for each, first in zip(self.state, self._before, strict=True):
            each.detach().copy_(first)
        for each in self.trained:
            each.grad = None
        outputs = self.step(compiled)
        return [*outputs, *(each.grad for each in self.trained if each.grad is not None), *self.state]


def _trained(network: Any, *inputs: Any) -> Workload:
    """Return the training of a network whose floating-point inputs have gradients, too."""
    leaves = [each for each in inputs if each.is_floating_point()]
    for each in leaves:
        each.requires_grad_()
    statistics = tuple(each for each in network.buffers() if each.is_floating_point())
    return Workload(network, inputs, (*leaves, *network.parameters()), statistics)


def _bfloat16(torch: Any, *shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.bfloat16)


def transformer_block(torch: Any) -> Workload:
    """Return the training of a transformer block in bf16: 8 sequences of 512 tokens of width 1,024."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = 1024, heads: int = 16) -> None:
            super().__init__()
            self.heads = heads
            self.before, self.between = nn.LayerNorm(width), nn.RMSNorm(width)
            self.projections, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.gate, self.down = (nn.Linear(*each) for each in ((width, 2816), (width, 2816), (2816, width)))

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            parts = self.projections(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            scores = (parts[0] @ parts[1].transpose(-1, -2)) * (width // self.heads) ** -0.5
            weights = torch.softmax(scores.float(), -1).to(x.dtype)
            mixed = (weights @ parts[2]).transpose(1, 2).reshape(batch, length, width)
            x = x + self.out(mixed)
            y = self.between(x)
            return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    return _trained(Block().bfloat16(), _bfloat16(torch, 8, 512, 1024))


def mlp(torch: Any) -> Workload:
    """Return the training of a network of three layers in bf16 with norms and GELU on 4,096 rows."""
    nn = torch.nn
    layers: list[Any] = []
    for _ in range(3):
        layers += [nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)]
    return _trained(nn.Sequential(*layers, nn.Softmax(-1)).bfloat16(), _bfloat16(torch, 4096, 1024))


def mixer(torch: Any) -> Workload:
    """Return the training of a block that mixes 16 x 196 tokens and channels in bf16, with log-probabilities."""
    nn = torch.nn

    class Mixer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, tokens: int = 196, width: int = 256) -> None:
            super().__init__()
            self.before, self.between, self.after = nn.RMSNorm(width), nn.GroupNorm(8, width), nn.LayerNorm(width)
            self.tokens = nn.Sequential(nn.Linear(tokens, 128), nn.GELU(), nn.Linear(128, tokens))
            self.channels = nn.Sequential(nn.Linear(width, 1024), nn.SiLU(), nn.Linear(1024, width))
            self.classes = nn.Linear(width, 1000)

        def forward(self, x: Any) -> Any:
            x = x + self.tokens(self.before(x).transpose(1, 2)).transpose(1, 2)
            x = x + self.channels(self.between(x.transpose(1, 2)).transpose(1, 2))
            return torch.log_softmax(self.classes(self.after(x).float().mean(1).to(x.dtype)).float(), -1)

    return _trained(Mixer().bfloat16(), _bfloat16(torch, 16, 196, 256))


def decoder(torch: Any) -> Workload:
    """Return the training of a decoder's layer in bf16 with rotary embeddings, and its loss over 16,384 words."""
    nn, functional = torch.nn, torch.nn.functional

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = 768, heads: int = 12, words: int = 16384) -> None:
            super().__init__()
            # The gradient of the table is a sum of arrivals, which no tuning decides.
            self.heads, self.table = heads, nn.Embedding(words, width).requires_grad_(False)
            self.first, self.second, self.last = (nn.RMSNorm(width) for _ in range(3))
            self.query, self.keys = nn.RMSNorm(width // heads), nn.RMSNorm(width // heads)
            self.projections, self.out = nn.Linear(width, 3 * width, False), nn.Linear(width, width, False)
            self.up, self.down = nn.Linear(width, 4 * width, False), nn.Linear(2 * width, width, False)
            self.words = nn.Linear(width, words, False)
            angles = torch.arange(1024)[:, None] * 10000 ** -(torch.arange(0, width // heads, 2) / (width // heads))
            self.register_buffer("angles", angles, persistent=False)

        def turned(self, x: Any) -> Any:
            angles = self.angles[: x.shape[2]].float()
            left, right = x.float().chunk(2, -1)
            sine, cosine = angles.sin(), angles.cos()
            return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1).to(x.dtype)

        def forward(self, tokens: Any, targets: Any) -> Any:
            x = self.table(tokens)
            batch, length, width = x.shape
            query, keys, values = (
                each.view(batch, length, self.heads, -1).transpose(1, 2)
                for each in self.projections(self.first(x)).chunk(3, -1)
            )
            mixed = functional.scaled_dot_product_attention(
                self.turned(self.query(query)), self.turned(self.keys(keys)), values, is_causal=True
            )
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            gate, value = self.up(self.second(x)).chunk(2, -1)
            x = x + self.down(functional.silu(gate) * value)
            return functional.cross_entropy(self.words(self.last(x)).float().flatten(0, 1), targets.flatten())

    tokens, targets = torch.randint(0, 16384, (2, 8, 512))
    return _trained(Decoder().bfloat16(), tokens, targets)


def convolutions(torch: Any) -> Workload:
    """Return the training of a residual block of convolutions in fp32 with norms of batches, and a classifier."""
    nn, functional = torch.nn, torch.nn.functional

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = 64) -> None:
            super().__init__()
            self.stem, self.norm = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
            self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
            self.norms = nn.ModuleList([nn.BatchNorm2d(width) for _ in range(2)])
            self.classes = nn.Linear(width, 100)

        def forward(self, x: Any) -> Any:
            x = functional.avg_pool2d(functional.relu(self.norm(self.stem(x))), 3, 2, 1)
            y = functional.relu(self.norms[0](self.first(x)))
            x = functional.relu(x + self.norms[1](self.second(y)))
            return functional.log_softmax(self.classes(x.mean((2, 3))), -1)

    return _trained(Residual(), torch.randn(32, 3, 112, 112))


def adamw(torch: Any) -> Workload:
    """Return a step of AdamW with clipped gradients over twelve parameters in fp32."""
    shapes = [(1024, 1024), (3072, 1024), (1024,), (1024,), (4096, 1024), (1024, 4096)] * 2
    parameters = [torch.randn(*each, requires_grad=True) for each in shapes]
    for each in parameters:
        each.grad = torch.randn_like(each)
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, capturable=True, foreach=True)
    gradients = [each.grad.clone() for each in parameters]

    def step() -> None:
        for each, gradient in zip(parameters, gradients, strict=True):
            each.grad.copy_(gradient)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimiser.step()

    with torch.no_grad():
        optimiser.step()
    values = [value for state in optimiser.state.values() for value in state.values()]
    return Workload(step, (), state=(*parameters, *values))


def denoiser(torch: Any) -> Workload:
    """Return the inference of a block that removes noise from images, in fp16: norms of groups and cross attention."""
    nn, functional = torch.nn, torch.nn.functional

    class Denoiser(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = 128, words: int = 512) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.GroupNorm(32, width, eps=1e-6) for _ in range(3)])
            self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
            self.time, self.query = nn.Linear(320, 2 * width), nn.Linear(width, width, False)
            self.keys, self.out, self.norm = (
                nn.Linear(words, 2 * width, False),
                nn.Linear(width, width),
                nn.LayerNorm(width),
            )
            self.wide, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, time: Any, words: Any) -> Any:
            scale, shift = self.time(functional.silu(time))[:, :, None, None].chunk(2, 1)
            y = self.first(functional.silu(self.norms[0](x)))
            x = x + self.second(functional.silu(self.norms[1](y) * (1 + scale) + shift))
            rows = self.norms[2](x).flatten(2).transpose(1, 2)
            parts = self.query(rows), *self.keys(words).chunk(2, -1)
            query, keys, values = (each.unflatten(-1, (4, -1)).transpose(1, 2) for each in parts)
            mixed = functional.scaled_dot_product_attention(query, keys, values)
            rows = rows + self.out(mixed.transpose(1, 2).flatten(2))
            value, gate = self.wide(self.norm(rows)).chunk(2, -1)
            rows = rows + self.narrow(value * functional.gelu(gate))
            return x + rows.transpose(1, 2).reshape(x.shape)

    inputs = torch.randn(4, 128, 64, 64), torch.randn(4, 320), torch.randn(4, 77, 512)
    return Workload(_without_gradients(Denoiser().half()), tuple(each.half() for each in inputs))


def encoder(torch: Any) -> Workload:
    """Return the training of an encoder's layer in fp32 with norms behind, biases of distance, and smoothed labels."""
    nn, functional = torch.nn, torch.nn.functional

    class Encoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = 640, heads: int = 10) -> None:
            super().__init__()
            self.heads, self.first, self.last = heads, nn.LayerNorm(width), nn.LayerNorm(width, eps=1e-12)
            self.projections, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down, self.classes = nn.Linear(width, 1600), nn.Linear(1600, width), nn.Linear(width, 33)
            self.slopes = nn.Parameter(torch.linspace(0.1, 1.0, heads)[:, None, None])

        def forward(self, x: Any, labels: Any) -> Any:
            length = x.shape[1]
            place = torch.arange(length, device=x.device)
            distance = (place[:, None] - place[None, :]).abs().float()
            query, keys, values = (
                each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.projections(x).chunk(3, -1)
            )
            scores = query @ keys.transpose(-1, -2) * 0.125 - self.slopes * distance
            x = self.first(x + self.out((torch.softmax(scores, -1) @ values).transpose(1, 2).flatten(2)))
            x = self.last(x + self.down(functional.gelu(self.up(x), approximate="tanh")))
            return functional.cross_entropy(self.classes(x).flatten(0, 1), labels.flatten(), label_smoothing=0.1)

    return _trained(Encoder(), torch.randn(8, 384, 640), torch.randint(0, 33, (8, 384)))


def recommender(torch: Any) -> Workload:
    """Return the training of a model of clicks in fp32: sums of embeddings, pairwise products, a logistic loss."""
    nn, functional = torch.nn, torch.nn.functional

    class Recommender(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = 48, fields: int = 20) -> None:
            super().__init__()
            self.table = nn.Embedding(50000, width).requires_grad_(False)
            self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.Tanh())
            self.top = nn.Sequential(
                nn.Linear(width + fields * (fields + 1) // 2, 384), nn.LayerNorm(384), nn.Mish(), nn.Linear(384, 1)
            )
            self.scale = nn.Parameter(torch.ones(width))

        def forward(self, dense: Any, words: Any, clicks: Any) -> Any:
            below = self.bottom(dense)
            rows = torch.cat([below[:, None], (self.table(words) * self.scale).mean(2)], 1)
            first, second = torch.tril_indices(rows.shape[1], rows.shape[1], -1, device=rows.device)
            products = (rows @ rows.transpose(1, 2))[:, first, second]
            score = self.top(torch.cat([below, products], 1)).squeeze(1)
            return functional.binary_cross_entropy_with_logits(score, clicks) + 1e-3 * rows.norm(dim=-1).mean()

    words = torch.randint(0, 50000, (4096, 20, 3))
    return _trained(Recommender(), torch.randn(4096, 13), words, torch.rand(4096))


def states(torch: Any) -> Workload:
    """Return the inference of a gated layer in bf16 with short causal convolutions and running sums."""
    nn, functional = torch.nn, torch.nn.functional

    class States(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = 512) -> None:
            super().__init__()
            self.before, self.inside = nn.RMSNorm(width), nn.RMSNorm(2 * width)
            self.wide, self.narrow = nn.Linear(width, 4 * width, False), nn.Linear(2 * width, width, False)
            self.short = nn.Conv1d(2 * width, 2 * width, 4, padding=3, groups=2 * width)
            self.decay = nn.Parameter(torch.rand(2 * width))

        def forward(self, x: Any) -> Any:
            value, gate = self.wide(self.before(x)).chunk(2, -1)
            value = functional.silu(self.short(value.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
            step = functional.softplus(value.float() * self.decay.float())
            state = (step * value.float()).cumsum(1) / step.cumsum(1).clamp(min=1e-3)
            found = self.inside(state.to(x.dtype) * functional.silu(gate))
            return functional.normalize((x + self.narrow(found)).float(), dim=-1)

    return Workload(_without_gradients(States().bfloat16()), (_bfloat16(torch, 4, 1000, 512),))


def momentum(torch: Any) -> Workload:
    """Return a step of gradient descent with momentum and signs over parameters in fp32, and their running mean."""
    shapes = [(2048, 1024), (1536, 768), (768,), (100, 300), (4096, 512)] * 2
    values, gradients, means, running = ([torch.randn(*each) for each in shapes] for _ in range(4))

    def step() -> Any:
        norm = torch.stack([each.square().sum() for each in gradients]).sum().sqrt()
        for value, gradient, mean, average in zip(values, gradients, means, running, strict=True):
            gradient = gradient * (1.0 / (norm + 1e-6)).clamp(max=1.0)
            mean.mul_(0.95).add_(gradient, alpha=0.05)
            trust = value.norm() / (mean.norm() + 1e-6)
            value.sub_(0.01 * trust * (mean.sign() * 0.5 + mean * 0.5))
            average.lerp_(value, 0.001)
        return norm

    return Workload(step, (), state=(*values, *means, *running))


def _without_gradients(network: Any) -> Any:
    return network.eval().requires_grad_(False)


OPEN: dict[str, Callable[[Any], Workload]] = {
    "transformer block": transformer_block,
    "mlp": mlp,
    "mixer": mixer,
    "decoder": decoder,
    "convolutions": convolutions,
    "adamw": adamw,
    "recommender": recommender,
}

HELD_OUT: dict[str, Callable[[Any], Workload]] = {
    "denoiser": denoiser,
    "encoder": encoder,
    "states": states,
    "momentum": momentum,
}
MODELS = {**OPEN, **HELD_OUT}


def built(torch: Any, name: str) -> Workload:
    """Return a model with its tensors on the GPU."""
    with torch.device("cuda"):
        return MODELS[name](torch)
