from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitwise_bench.cublas.samples.dot_samples import DRAWS, differing, lengths, main, vectors
from bitwise_cublas_profiles.profile import profile

RECORD = Path(__file__).resolve().parents[2] / "records" / "cublas-dots-fp32-sm90-h200-13.1.json"
KNOWN = profile("13.1", "9.0")


def test_recorded_dot_products_are_those_of_the_descriptor() -> None:
    if not RECORD.exists():
        pytest.skip("records are not part of an installed distribution")
    rows = json.loads(RECORD.read_text())["rows"]
    some = [row for row in rows if row[0] in (1, 5, 129, 255, 256, 257, 1025)]
    assert len(some) >= 5
    assert not differing(some, KNOWN)
    length, bits = some[-1]
    assert differing([[length, [bits[0] ^ 1, *bits[1:]]]], KNOWN) == [(length, DRAWS[0])]
    assert main(["check", str(RECORD), "--longest", "40"]) == 0


def test_draws_are_the_same_for_a_length() -> None:
    for draw in range(len(DRAWS)):
        one, other = vectors(12, draw), vectors(12, draw)
        assert all((x == y).all() for x, y in zip(one, other, strict=True))
    a, b = vectors(12, DRAWS.index("cancelling"))
    assert float((a.astype(float) * b).sum()) == 0.0
    assert lengths()[:5] == [1, 2, 3, 4, 5]
