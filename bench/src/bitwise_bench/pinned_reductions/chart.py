"""A record as a bar chart: one bar for each kernel and type, the pinned order's speed relative to the free one's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

_COLOURS = {"fp32": "steelblue", "fp16": "seagreen", "bf16": "peru"}
_WIDTH, _LEFT, _ROW, _TOP = 820, 190, 13, 46


def chart(record: Mapping[str, Any]) -> str:
    """The SVG text of a record."""
    pairs = sorted(record["summary"]["pairs"].items())
    greatest = max(1.1, *(ratio for _, ratio in pairs))
    scale = (_WIDTH - _LEFT - 60) / greatest
    kernels = list(dict.fromkeys(name.split()[0] for name, _ in pairs))
    height = _TOP + len(pairs) * _ROW + len(kernels) * 8 + 30
    title = (
        f"Speed of pinned over free order, each tuned; {record['environment']['gpu']}, "
        f"Triton {record['environment']['triton']}; geometric mean {record['summary']['geometric_mean']:.3f}"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="13">{escape(title)}</text>',
    ]
    y = _TOP
    for kernel in kernels:
        parts.append(f'<text x="{_LEFT - 48}" y="{y + 24}" text-anchor="end">{escape(kernel)}</text>')
        for name, ratio in pairs:
            dtype = name.split()[1]
            if name.split()[0] != kernel:
                continue
            parts += [
                f'<text x="{_LEFT - 6}" y="{y + 10}" text-anchor="end" fill="dimgray">{dtype}</text>',
                f'<rect x="{_LEFT}" y="{y}" width="{ratio * scale:.1f}" height="{_ROW - 2}" fill="{_COLOURS[dtype]}"/>',
                f'<text x="{_LEFT + ratio * scale + 4:.1f}" y="{y + 10}">{ratio:.2f}</text>',
            ]
            y += _ROW
        y += 8
    for ratio, dash in ((0.9, "2 3"), (1.0, "none")):
        x = _LEFT + ratio * scale
        parts += [
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{y}" stroke="black" stroke-dasharray="{dash}"/>',
            f'<text x="{x:.1f}" y="{y + 14}" text-anchor="middle">{ratio:.2f}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
