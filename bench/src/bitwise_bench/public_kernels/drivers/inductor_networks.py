"""TorchInductor: kernels of compiled networks that are written with PyTorch, in steps of training."""

from __future__ import annotations

from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _optimiser, _step
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _seeded(t: Tensors, build: Any) -> Any:
    t.torch.manual_seed(11)
    return build().to(t.device)


def denoiser(t: Tensors) -> None:
    """Compile a block of a diffusion network: convolutions, norms of groups, the embedding of a time, attention."""
    torch, nn = t.torch, t.torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
            self.norms = nn.ModuleList([nn.GroupNorm(4, 16), nn.GroupNorm(8, 32), nn.GroupNorm(8, 32)])
            self.time, self.skip = nn.Linear(24, 64), nn.Conv2d(16, 32, 1)
            self.attention = nn.MultiheadAttention(32, 2, batch_first=True)

        def forward(self, x: Any, time: Any) -> Any:
            scale, shift = self.time(torch.cat([time.sin(), time.cos()], 1))[:, :, None, None].chunk(2, 1)
            found = self.first(nn.functional.silu(self.norms[0](x)))
            found = self.second(nn.functional.silu(self.norms[1](found) * (1 + scale) + shift)) + self.skip(x)
            rows = self.norms[2](found).flatten(2).transpose(1, 2)
            found = found + self.attention(rows, rows, rows)[0].transpose(1, 2).reshape(found.shape)
            return nn.functional.interpolate(found, scale_factor=2.0, mode="nearest")

    _step(t, _seeded(t, Block), t.normal(2, 16, 10, 10, grad=True), t.normal(2, 12))


def convolutional(t: Tensors) -> None:
    """Compile depthwise convolutions with norms of batches in training, squeezed channels and pools."""
    nn = t.torch.nn

    class Squeeze(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Conv2d(48, 12, 1), nn.Conv2d(12, 48, 1)

        def forward(self, x: Any) -> Any:
            return x * self.up(nn.functional.relu(self.down(x.mean((2, 3), keepdim=True)))).sigmoid()

    def build() -> Any:
        return nn.Sequential(
            nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.Hardswish(),
            nn.Conv2d(24, 24, 5, padding=2, groups=24), nn.BatchNorm2d(24), nn.ReLU6(),
            nn.Conv2d(24, 48, 1), nn.BatchNorm2d(48), nn.SiLU(), Squeeze(), nn.MaxPool2d(3, 2, 1),
            nn.AvgPool2d(2), nn.Flatten(), nn.LazyLinear(20), nn.LogSoftmax(1),
        ).train()  # fmt: skip

    _step(t, _seeded(t, build), t.normal(3, 3, 36, 36, grad=True))


def graph(t: Tensors) -> None:
    """Compile two layers of a network on a graph: sums, means and maxima over the neighbours of nodes."""
    torch, nn = t.torch, t.torch.nn
    ends = t.integers(0, 40, 2, 150)

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.message, self.update = nn.Linear(48, 24), nn.Linear(96, 24)

        def forward(self, x: Any) -> Any:
            source, target = ends[0], ends[1]
            messages = nn.functional.leaky_relu(self.message(torch.cat([x[source], x[target]], 1)), 0.2)
            total = torch.zeros_like(x).index_add(0, target, messages)
            count = torch.zeros(40, 1, device=x.device).index_add(0, target, torch.ones_like(messages[:, :1]))
            index = target[:, None].expand_as(messages)
            largest = torch.zeros_like(x).scatter_reduce(0, index, messages, "amax", include_self=True)
            found = self.update(torch.cat([x, total, total / count.clamp(min=1), largest], 1))
            return nn.functional.elu(nn.functional.layer_norm(found, (24,)))

    _step(t, _seeded(t, lambda: nn.Sequential(Layer(), Layer())), t.normal(40, 24, grad=True))


def attention_over_edges(t: Tensors) -> None:
    """Compile attention over the edges of a graph: a softmax over the edges of each node."""
    torch, nn = t.torch, t.torch.nn
    ends = t.integers(0, 30, 2, 120)

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.values, self.scores = nn.Linear(32, 32), nn.Linear(64, 4)

        def forward(self, x: Any) -> Any:
            source, target = ends[0], ends[1]
            values = self.values(x)
            score = nn.functional.leaky_relu(self.scores(torch.cat([values[source], values[target]], 1)), 0.2)
            index = target[:, None].expand_as(score)
            most = torch.full((30, 4), -1e30, device=x.device).scatter_reduce(0, index, score, "amax")
            weight = (score - most[target]).exp()
            total = torch.zeros(30, 4, device=x.device).index_add(0, target, weight)
            weight = weight / total[target]
            parts = values[source].view(-1, 4, 8) * weight[:, :, None]
            return torch.zeros(30, 4, 8, device=x.device).index_add(0, target, parts).flatten(1)

    _step(t, _seeded(t, Layer), t.normal(30, 32, grad=True))


def recurrent(t: Tensors) -> None:
    """Compile five steps of gated cells."""
    nn = t.torch.nn

    class Cells(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.gated, self.memory = nn.GRUCell(20, 40), nn.LSTMCell(40, 32)

        def forward(self, x: Any) -> Any:
            state, cell = x.new_zeros(6, 40), (x.new_zeros(6, 32), x.new_zeros(6, 32))
            for step in range(5):
                state = self.gated(x[step], state)
                cell = self.memory(state, cell)
            return cell[0]

    _step(t, _seeded(t, Cells), t.normal(5, 6, 20, grad=True))


def mixer(t: Tensors) -> None:
    """Compile a layer that mixes places and channels, with dropout in training."""
    nn = t.torch.nn

    class Mixer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.places, self.channels = nn.Linear(49, 49), nn.Linear(72, 72)
            self.first, self.second, self.drop = nn.LayerNorm(72), nn.LayerNorm(72), nn.Dropout(0.1)

        def forward(self, x: Any) -> Any:
            x = x + self.drop(nn.functional.gelu(self.places(self.first(x).transpose(1, 2)))).transpose(1, 2)
            return x + nn.functional.gelu(self.channels(self.second(x)), approximate="tanh")

    _step(t, _seeded(t, Mixer).train(), t.normal(2, 49, 72, grad=True))


def ranking(t: Tensors) -> None:
    """Compile embeddings with pairwise products, weighted bags and the loss of a ranking."""
    torch, nn = t.torch, t.torch.nn
    words = t.integers(0, 50, 16, 6)

    class Ranking(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.top = nn.Embedding(50, 24), nn.Linear(24 + 15, 1)

        def forward(self, weights: Any) -> Any:
            rows = self.table(words) * weights[:, :, None]
            products = rows @ rows.transpose(1, 2)
            above = torch.triu_indices(6, 6, 1, device=weights.device)
            found = self.top(torch.cat([rows.sum(1), products[:, above[0], above[1]]], 1)).squeeze(1)
            return nn.functional.softplus(found[:, None] - found[None, :]).mean() + found.sigmoid().log().mean()

    _step(t, _seeded(t, Ranking), t.uniform(16, 6, grad=True))


def statistics(t: Tensors) -> None:
    """Compile statistics of rows: running sums and products, norms, distances and products."""
    torch = t.torch

    def several(x: Any, y: Any) -> Any:
        running = x.cumsum(1) + x.abs().clamp(0.5, 1.5).cumprod(1)
        spread = x.std(1, keepdim=True) + x.norm(3, dim=1, keepdim=True) + x.logsumexp(1, keepdim=True)
        distance = torch.cdist(x[:20], y[:24]).softmax(1)
        return (running / spread).mean() + distance.square().sum() + (x.sigmoid() * y).prod(1).sum()

    _step(t, several, t.normal(40, 130, grad=True), t.normal(40, 130, grad=True))


def losses(t: Tensors) -> None:
    """Compile losses of distributions, of margins and of angles."""
    functional = t.torch.nn.functional
    labels = t.integers(0, 30, 48)

    def several(x: Any, y: Any) -> Any:
        found = functional.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean")
        found = found + functional.multi_margin_loss(x, labels) + functional.huber_loss(x, y, delta=0.7)
        found = found + functional.cosine_similarity(x, y).mean() + functional.triplet_margin_loss(x, y, x.flip(0))
        found = found + functional.gaussian_nll_loss(x, y, y.square() + 0.1)
        return (
            found
            + functional.binary_cross_entropy_with_logits(x, y.sigmoid())
            + functional.poisson_nll_loss(x, y.exp())
        )

    _step(t, several, t.normal(48, 30, grad=True), t.normal(48, 30, grad=True))


def spectral(t: Tensors) -> None:
    """Compile a layer of one-dimensional convolutions with gates, padding and strides, as in models of sound."""
    nn = t.torch.nn

    class Gated(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Conv1d(8, 48, 5, padding=4, dilation=2)
            self.up = nn.ConvTranspose1d(24, 12, 4, stride=2, padding=1)
            self.norm = nn.InstanceNorm1d(24, affine=True)

        def forward(self, x: Any) -> Any:
            value, gate = self.wide(nn.functional.pad(x, (3, 3), mode="reflect")).chunk(2, 1)
            found = self.norm(value.tanh() * gate.sigmoid())
            found = self.up(found + (found * 1.3).sin().square() / 1.3)
            return nn.functional.avg_pool1d(found, 3, 2) + nn.functional.max_pool1d(found, 3, 2)

    _step(t, _seeded(t, Gated), t.normal(2, 8, 90, grad=True))


def _named(name: str, **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        _optimiser(t, name, **settings)

    return driver


CASES: dict[str, Driver] = {
    **{each.__name__: each for each in (denoiser, convolutional, graph, attention_over_edges, recurrent, mixer, ranking,
                                        statistics, losses, spectral)},
    "radam": _named("RAdam", capturable=True, foreach=True, weight_decay=0.01),
    "adagrad": _named("Adagrad", foreach=True, lr=0.05),
    "rmsprop": _named("RMSprop", capturable=True, foreach=True, momentum=0.9, centered=True),
    "nadam": _named("NAdam", capturable=True, foreach=True),
    "adamax": _named("Adamax", capturable=True, foreach=True),
}  # fmt: skip
