"""TorchInductor: kernels of compiled programs of PyTorch: steps of training, sampling, signals and geometry."""

from __future__ import annotations

from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _settings, _step
from bitwise_bench.public_kernels.drivers.inductor_networks import _named, _seeded
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _forward(t: Tensors, function: Any, *inputs: Any) -> None:
    torch = t.torch
    torch._dynamo.reset()
    with torch.no_grad(), _settings():
        torch.compile(function, dynamic=False)(*inputs)
    torch._dynamo.reset()


def variational(t: Tensors) -> None:
    """Compile an encoder and decoder with a normal in between, and its loss."""
    torch, nn = t.torch, t.torch.nn

    class Variational(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Sequential(nn.Linear(88, 60), nn.ELU(), nn.Linear(60, 28))
            self.up = nn.Sequential(nn.Linear(14, 60), nn.ELU(), nn.Linear(60, 88))

        def forward(self, x: Any, noise: Any) -> Any:
            mean, spread = self.down(x).chunk(2, 1)
            found = self.up(mean + noise * torch.exp(0.5 * spread))
            divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(1).mean()
            return nn.functional.binary_cross_entropy_with_logits(found, x.sigmoid()) + divergence

    _step(t, _seeded(t, Variational), t.normal(26, 88, grad=True), t.normal(26, 14))


def clipped_policy(t: Tensors) -> None:
    """Compile the clipped loss of a policy, advantages over time and an entropy."""
    torch = t.torch
    chosen = t.integers(0, 7, 12, 9)

    def loss(logits: Any, values: Any, before: Any, rewards: Any) -> Any:
        with torch.no_grad():
            parts, last = [], torch.zeros_like(rewards[0])
            for step in reversed(range(rewards.shape[0] - 1)):
                last = rewards[step] + 0.97 * values[step + 1] - values[step] + 0.9 * last
                parts.append(last)
            advantages = torch.stack(parts[::-1])
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        logs = logits.log_softmax(-1)
        mine = logs.gather(-1, chosen[..., None]).squeeze(-1)[:-1]
        ratio = (mine - before[:-1]).exp()
        policy = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        return policy + 0.5 * (values[:-1] - advantages).square().mean() + 0.01 * (logs.exp() * logs).sum(-1).mean()

    _step(t, loss, t.normal(12, 9, 7, grad=True), t.normal(12, 9, grad=True), t.normal(12, 9), t.normal(12, 9))


def preferences(t: Tensors) -> None:
    """Compile the loss of preferences between pairs of answers, with a mask of their tokens."""
    torch = t.torch
    labels, mask = t.integers(0, 210, 4, 2, 23), t.integers(0, 2, 4, 2, 23)

    def loss(logits: Any, reference: Any) -> Any:
        def total(each: Any) -> Any:
            found = each.float().log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
            return (found * mask).sum(-1)

        gap = total(logits) - total(reference)
        return -torch.nn.functional.logsigmoid(0.1 * (gap[:, 0] - gap[:, 1])).mean()

    _step(t, loss, t.normal(4, 2, 23, 210, dtype="bfloat16", grad=True), t.normal(4, 2, 23, 210, dtype="bfloat16"))


def sampling(t: Tensors) -> None:
    """Compile the choice of a token: temperature, the largest ones, cumulated probabilities, penalties."""
    torch = t.torch
    seen = t.integers(0, 410, 5, 16)

    def choose(logits: Any, noise: Any) -> Any:
        score = logits.gather(1, seen)
        logits = logits.scatter(1, seen, torch.where(score < 0, score * 1.2, score / 1.2)) / 0.8
        ordered, places = logits.sort(1, descending=True)
        sums = ordered.softmax(1).cumsum(1)
        ordered = ordered.masked_fill(sums - ordered.softmax(1) > 0.9, float("-inf"))
        return places.gather(1, (ordered - (-noise.log()).log()).argmax(1, keepdim=True)), sums

    _forward(t, choose, t.normal(5, 410), t.uniform(5, 410, low=0.01, high=0.99))


def quantised(t: Tensors) -> None:
    """Compile quantisation of rows and of groups to integers and to 8-bit floats, and back."""
    torch = t.torch

    def both(x: Any) -> Any:
        scale = x.abs().amax(1, keepdim=True) / 127
        whole = (x / scale).round().clamp(-128, 127).to(torch.int8)
        groups = x.view(x.shape[0], -1, 32)
        part = groups.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448
        small = (groups / part).to(torch.float8_e4m3fn)
        low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
        codes = ((groups - low) / (high - low + 1e-6) * 15).round().to(torch.uint8)
        packed = codes[..., ::2] | (codes[..., 1::2] << 4)
        return whole, scale, small, part, packed, whole.to(x.dtype) * scale + (small.to(x.dtype) * part).view_as(x)

    _forward(t, both, t.normal(22, 160))
    _forward(t, both, t.normal(7, 416, dtype="bfloat16"))


def rays(t: Tensors) -> None:
    """Compile the light along rays: encodings of positions, a network, transmittance and weights."""
    torch, nn = t.torch, t.torch.nn

    class Field(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(39, 44), nn.Linear(44, 4)

        def forward(self, start: Any, way: Any, depth: Any) -> Any:
            point = start[:, None] + way[:, None] * depth[..., None]
            waves = [point] + [f(point * 2**k) for k in range(6) for f in (torch.sin, torch.cos)]
            found = self.last(torch.relu(self.first(torch.cat(waves, -1))))
            colour, density = found[..., :3].sigmoid(), torch.nn.functional.softplus(found[..., 3])
            gap = torch.cat([depth[:, 1:] - depth[:, :-1], torch.full_like(depth[:, :1], 0.1)], 1)
            alpha = 1 - torch.exp(-density * gap)
            past = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha[:, :-1] + 1e-10], 1), 1)
            return ((alpha * past)[..., None] * colour).sum(1)

    depth = t.uniform(18, 24).cumsum(1)
    _step(t, _seeded(t, Field), t.normal(18, 3, grad=True), t.normal(18, 3), depth)


def geometry(t: Tensors) -> None:
    """Compile rotations by quaternions, distances of point sets and areas of overlap of boxes."""
    torch = t.torch

    def several(turn: Any, points: Any, others: Any, boxes: Any) -> Any:
        w, x, y, z = (turn / turn.norm(dim=1, keepdim=True)).unbind(1)
        rows = [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w), 2 * (x * y + z * w),
                1 - 2 * (x * x + z * z), 2 * (y * z - x * w), 2 * (x * z - y * w), 2 * (y * z + x * w),
                1 - 2 * (x * x + y * y)]  # fmt: skip
        moved = (points[None, :, None, :] * torch.stack(rows, 1).view(-1, 1, 3, 3)).sum(-1)
        gap = (moved[:, :, None] - others[None, None]).square().sum(-1)
        chamfer = gap.amin(1).mean() + gap.amin(2).mean()
        low, high = (
            torch.maximum(boxes[:, None, :2], boxes[None, :, :2]),
            torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:]),
        )
        shared = (high - low).clamp(min=0).prod(-1)
        area = (boxes[:, 2:] - boxes[:, :2]).abs().prod(-1)
        return chamfer + (shared / (area[:, None] + area[None] - shared + 1e-6)).mean()

    _step(
        t, several, t.normal(5, 4, grad=True), t.normal(40, 3, grad=True), t.normal(33, 3), t.normal(17, 4, grad=True)
    )


def signals(t: Tensors) -> None:
    """Compile windows, filters, envelopes and resampling of signals."""
    torch = t.torch

    def several(x: Any, taps: Any) -> Any:
        frames = x.unfold(1, 48, 16) * torch.hann_window(48, device=x.device)
        power = (frames.square().mean(-1) + 1e-8).log10()
        smooth = torch.nn.functional.conv1d(x[:, None], taps[None, None], padding=3)[:, 0]
        half = torch.nn.functional.interpolate(smooth[:, None], size=150, mode="linear", align_corners=False)[:, 0]
        envelope = torch.nn.functional.max_pool1d(half.abs()[:, None], 5, 1, 2)[:, 0]
        return (half / (envelope + 1e-3)).tanh().mean() + power.var(1).sum() + smooth.diff(dim=1).abs().mean()

    _step(t, several, t.normal(3, 400, grad=True), t.normal(7, grad=True))


def pictures(t: Tensors) -> None:
    """Compile augmentations and measures of pictures: grids, blurs, colours and structure."""
    torch = t.torch

    def several(x: Any, other: Any, turn: Any) -> Any:
        functional = torch.nn.functional
        grid = functional.affine_grid(turn, list(x.shape), align_corners=False)
        moved = functional.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        grey = (moved * torch.tensor([0.3, 0.59, 0.11], device=x.device)[None, :, None, None]).sum(1, keepdim=True)
        mean, mine = functional.avg_pool2d(moved, 5, 1), functional.avg_pool2d(other, 5, 1)
        cross = functional.avg_pool2d(moved * other, 5, 1) - mean * mine
        spread = functional.avg_pool2d(moved.square() + other.square(), 5, 1) - mean.square() - mine.square()
        similar = (
            (2 * mean * mine + 0.01) * (2 * cross + 0.03) / ((mean.square() + mine.square() + 0.01) * (spread + 0.03))
        )
        large = functional.interpolate(grey, scale_factor=1.7, mode="bicubic", align_corners=False)
        return similar.mean() + large.clamp(0, 1).pow(0.45 + 1e-3).mean()

    _step(t, several, t.uniform(2, 3, 22, 22, grad=True), t.uniform(2, 3, 22, 22), t.normal(2, 2, 3, grad=True))


def masked_attention(t: Tensors) -> None:
    """Compile attention that is written out, with biases of distance, a window and groups of heads."""
    torch, nn = t.torch, t.torch.nn

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(84, 84 + 2 * 28), nn.Linear(84, 84)
            self.slopes = nn.Parameter(torch.tensor([0.5, 0.25, 0.125, 0.1, 0.05, 0.02]))
            self.norm = nn.RMSNorm(84)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = self.inner(self.norm(x)).split([84, 28, 28], -1)
            q, k, v = (each.view(batch, length, -1, 14).transpose(1, 2) for each in (q, k, v))
            k, v = (each.repeat_interleave(3, 1) for each in (k, v))
            place = torch.arange(length, device=x.device)
            gap = place[:, None] - place[None]
            score = (q @ k.transpose(2, 3)) / 14**0.5 - self.slopes[:, None, None] * gap.abs()
            score = (score / 30).tanh() * 30
            score = score.masked_fill((gap < 0) | (gap > 12), float("-inf"))
            return x + self.outer((score.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, 84))

    _step(t, _seeded(t, Attention), t.normal(2, 37, 84, grad=True))


def state_space(t: Tensors) -> None:
    """Compile a selective scan that is written as a loop over time."""
    torch, nn = t.torch, t.torch.nn

    class Scan(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.rates = nn.Linear(30, 60 + 12), nn.Parameter(torch.linspace(-1, 1, 180).view(30, 6))

        def forward(self, x: Any) -> Any:
            value, step, b, c = self.inner(x).split([30, 30, 6, 6], -1)
            step = nn.functional.softplus(step)
            state, found = x.new_zeros(x.shape[0], 30, 6), []
            for place in range(x.shape[1]):
                keep = torch.exp(-step[:, place, :, None] * self.rates.exp())
                state = keep * state + (step * value)[:, place, :, None] * b[:, place, None]
                found.append((state * c[:, place, None]).sum(-1))
            return torch.stack(found, 1) * nn.functional.silu(x)

    _step(t, _seeded(t, Scan), t.normal(2, 7, 30, grad=True))


def experts(t: Tensors) -> None:
    """Compile a choice of experts with a loss of balance, and products for each expert."""
    torch, nn = t.torch, t.torch.nn

    class Experts(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(52, 5, bias=False)
            self.up, self.down = nn.Parameter(torch.randn(5, 52, 70) * 0.1), nn.Parameter(torch.randn(5, 70, 52) * 0.1)

        def forward(self, x: Any) -> Any:
            share = self.gate(x).softmax(-1)
            weight, chosen = share.topk(2, -1)
            weight = weight / weight.sum(-1, keepdim=True)
            hidden = nn.functional.gelu(torch.einsum("td,edh->teh", x, self.up))
            every = torch.einsum("teh,ehd->ted", hidden, self.down)
            found = (every.gather(1, chosen[..., None].expand(-1, -1, 52)) * weight[..., None]).sum(1)
            busy = nn.functional.one_hot(chosen, 5).float().sum(1).mean(0)
            return found + 5 * (busy * share.mean(0)).sum()

    _step(t, _seeded(t, Experts), t.normal(31, 52, grad=True))


def segmentation(t: Tensors) -> None:
    """Compile losses of segmentation: overlaps, focal weights, borders; labels are ignored."""
    torch = t.torch
    labels = t.integers(0, 6, 2, 20, 20)

    def several(x: Any) -> Any:
        functional = torch.nn.functional
        share = x.softmax(1)
        truth = functional.one_hot(labels, 6).permute(0, 3, 1, 2).float()
        overlap = 1 - (2 * (share * truth).sum((0, 2, 3)) + 1) / (share.sum((0, 2, 3)) + truth.sum((0, 2, 3)) + 1)
        plain = functional.cross_entropy(x, labels, ignore_index=0, reduction="none")
        focal = ((1 - (-plain).exp()).square() * plain).mean()
        border = functional.max_pool2d(share, 3, 1, 1) - share
        return overlap.mean() + focal + border.abs().mean() + (share[:, :, 1:] - share[:, :, :-1]).abs().mean()

    _step(t, several, t.normal(2, 6, 20, 20, grad=True))


def times(t: Tensors) -> None:
    """Compile a layer for series: a reversible norm, a decomposition, patches and a loss of quantiles."""
    torch, nn = t.torch, t.torch.nn

    class Series(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.trend, self.rest, self.patch = nn.Linear(96, 24), nn.Linear(96, 24), nn.Linear(16, 18)
            self.head = nn.Linear(18 * 11, 24 * 3)

        def forward(self, x: Any, target: Any) -> Any:
            mean, spread = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
            z = (x - mean) / spread
            slow = nn.functional.avg_pool1d(nn.functional.pad(z[:, None], (12, 12), mode="replicate"), 25, 1)[:, 0]
            plain = self.trend(slow) + self.rest(z - slow)
            parts = self.patch(z.unfold(1, 16, 8)).flatten(1)
            found = (self.head(nn.functional.mish(parts)).view(-1, 3, 24) + plain[:, None]) * spread[:, None] + mean[
                :, None
            ]
            miss = target[:, None] - found
            level = torch.tensor([0.1, 0.5, 0.9], device=x.device)[None, :, None]
            return torch.maximum(level * miss, (level - 1) * miss).mean()

    _step(t, _seeded(t, Series), t.normal(9, 96, grad=True), t.normal(9, 24))


def special(t: Tensors) -> None:
    """Compile functions of mathematics with long computations, in single and double precision."""
    torch = t.torch

    def several(x: Any, y: Any) -> Any:
        a = torch.special.i0(x) + torch.special.erfcx(x.abs()) + torch.lgamma(y + 1) + torch.special.log_ndtr(x)
        b = torch.atan2(x, y) + torch.asinh(x) + torch.expm1(x) * torch.log1p(y) + torch.special.entr(y)
        c = torch.fmod(x, 0.7) + torch.remainder(x, 0.3) + torch.hypot(x, y) + torch.floor(x * 3) + torch.sinc(x)
        return a + b + c + torch.digamma(y + 0.5) + torch.erfinv((x / 8).clamp(-0.9, 0.9)) + torch.nextafter(x, y)

    _forward(t, several, t.normal(11, 130), t.uniform(11, 130, low=0.1, high=3.0))
    _forward(t, several, t.normal(5, 70, dtype="float64"), t.uniform(5, 70, low=0.1, high=3.0, dtype="float64"))


def integers(t: Tensors) -> None:
    """Compile counts, buckets, ranks and searches over integers."""
    torch = t.torch

    def several(x: Any, edges: Any, labels: Any) -> Any:
        where = torch.bucketize(x, edges)
        counts = torch.zeros(19, dtype=torch.int64, device=x.device).scatter_add(
            0, where.flatten(), torch.ones_like(where.flatten())
        )
        ranks = x.argsort(1).argsort(1)
        runs = (labels[:, 1:] != labels[:, :-1]).long().cumsum(1)
        return (
            counts,
            ranks,
            runs,
            (labels ^ (labels >> 3)) % 11,
            torch.unique_consecutive(labels[0]),
            x.median(1).values,
        )

    _forward(
        t, several, t.normal(8, 60), t.of([-2.0 + 0.22 * k for k in range(18)], "float32"), t.integers(0, 9, 8, 60)
    )


def teacher(t: Tensors) -> None:
    """Compile a step of a teacher that follows a student, with centred and sharpened targets."""
    torch, nn = t.torch, t.torch.nn

    class Student(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(46, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Linear(64, 120))

        def forward(self, x: Any, other: Any, centre: Any) -> Any:
            target = ((other - centre) / 0.04).softmax(1)
            found = nn.functional.normalize(self.body(x), dim=1)
            loss = -(target * (found / 0.1).log_softmax(1)).sum(1).mean()
            spread = found.T @ found / found.shape[0]
            return loss + (spread - torch.diag(torch.diagonal(spread))).square().sum() * 0.01

    _step(t, _seeded(t, Student).train(), t.normal(40, 46, grad=True), t.normal(40, 120), t.normal(120))


def reordered(t: Tensors) -> None:
    """Compile movements of data: rolls, flips, windows, shuffles of channels, gathers and padded rows."""
    torch = t.torch
    lengths = t.of([30, 12, 21, 5], "int64")

    def several(x: Any) -> Any:
        batch, channels, high, wide = x.shape
        moved = torch.roll(x, (3, -2), (2, 3)).view(batch, channels, high // 5, 5, wide // 6, 6)
        windows = moved.permute(0, 2, 4, 3, 5, 1).reshape(-1, 30, channels)
        mixed = x.view(batch, 2, channels // 2, high, wide).transpose(1, 2).reshape_as(x).flip(3)
        mask = torch.arange(30, device=x.device)[None] < lengths[:, None]
        rows = windows[:4] * mask[..., None]
        mean = rows.sum(1) / mask.sum(1, keepdim=True)
        return (
            mean.square().sum()
            + torch.nn.functional.pixel_unshuffle(mixed[:, :, :20], 2).std()
            + windows.amax(1).mean()
        )

    _step(t, several, t.normal(2, 8, 20, 24, grad=True))


def _clipped(t: Tensors) -> None:
    torch = t.torch
    parameters = [t.normal(*shape, grad=True) for shape in ((70, 90), (210,), (33, 5, 3, 3))]
    for parameter in parameters:
        parameter.grad = t.normal(*parameter.shape)
    optimiser = torch.optim.AdamW(parameters, capturable=True, foreach=True, amsgrad=True, weight_decay=0.1)

    def step() -> None:
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimiser.step()

    torch._dynamo.reset()
    with torch.no_grad(), _settings():
        torch.compile(step)()
    torch._dynamo.reset()


_PROGRAMS = (
    *(variational, clipped_policy, preferences, sampling, quantised, rays, geometry, signals, pictures),
    *(masked_attention, state_space, experts, segmentation, times, special, integers, teacher, reordered),
)

CASES: dict[str, Driver] = {
    **{each.__name__: each for each in _PROGRAMS},
    "clipped_adamw": _clipped,
    "adadelta": _named("Adadelta", capturable=True, foreach=True, weight_decay=0.02),
    "asgd": _named("ASGD", capturable=True, foreach=True, lr=0.02),
    "rprop": _named("Rprop", capturable=True, foreach=True),
}  # fmt: skip
