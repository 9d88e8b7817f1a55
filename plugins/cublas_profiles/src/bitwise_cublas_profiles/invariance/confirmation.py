"""Certificates against the bytes of PyTorch's own products on the current GPU.

The products run in a process of their own, since PyTorch reads its settings once. Every other row of x is the same row,
the rest are drawn. The bytes of that row are compared over positions and over M.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitwise_cublas_profiles.invariance.certificate import Certificate
from bitwise_cublas_profiles.invariance.settings import Settings
from bitwise_cublas_profiles.query import CublasError

MAXIMUM_SAMPLES = 256
"""The largest number of M of one product that run."""

SECONDS = 1800
"""The time limit of the process."""


@dataclass(frozen=True)
class Confirmation:
    """The bytes of a product at sampled numbers of rows, against its certificate.

    `refuted` lists, as sentences, classes with several byte patterns. `different` counts the sampled boundaries of two
    classes whose bytes differed, of `boundaries`; `left_out` counts boundaries beside which nothing ran.
    """

    samples: tuple[int, ...]
    refuted: tuple[str, ...]
    boundaries: int
    different: int
    left_out: int

    def record(self) -> dict[str, Any]:
        """The confirmation as a JSON object."""
        return {
            "samples": len(self.samples), "refuted": list(self.refuted), "boundaries": self.boundaries,
            "different": self.different, "boundaries_left_out": self.left_out,
        }  # fmt: skip


def sampled_rows(certificate: Certificate, seed: int = 0, inside: int = 2) -> list[int]:
    """Both sides of every boundary, and drawn numbers of rows inside of every interval, at most MAXIMUM_SAMPLES.

    With more, boundaries are kept at random.
    """
    source = random.Random(f"{seed} {certificate.product}")
    intervals = [each for each in certificate.intervals if each.bits is not None]
    if len(intervals) * (2 + inside) > MAXIMUM_SAMPLES:
        intervals = source.sample(intervals, MAXIMUM_SAMPLES // (2 + inside))
    found = set()
    for each in intervals:
        found |= {each.first, each.last}
        found |= {source.randint(each.first, each.last) for _ in range(inside)}
    return sorted(found)


def confirm(
    certificates: Sequence[Certificate], settings: Settings, provenance: Mapping[str, str], seed: int = 0
) -> list[Confirmation]:
    """Run the products at sampled numbers of rows. Raises CublasError, also if the GPU or library is another one."""
    samples = [sampled_rows(each, seed) for each in certificates]
    job = {
        "settings": settings.record(), "seed": seed, "products": [
            [each.product.n, each.product.k, each.product.dtype, each.product.operator, rows]
            for each, rows in zip(certificates, samples, strict=True)
        ],
    }  # fmt: skip
    found = run_job(job, settings)
    for name in ("library", "device"):
        if found["provenance"][name] != provenance[name]:
            raise CublasError(
                f"--run: the answers are those of {provenance[name]}, and this machine has "
                f"{found['provenance'][name]}: ask this library with --live"
            )
    return [
        compared(certificate, dict(zip(rows, digests, strict=True)))
        for certificate, rows, digests in zip(certificates, samples, found["digests"], strict=True)
    ]


def compared(certificate: Certificate, digests: Mapping[int, Sequence[str]]) -> Confirmation:
    """The confirmation of a certificate from digests of the row's bytes: all that occurred, by number of rows."""
    by_class: dict[int, dict[str, int]] = defaultdict(dict)
    refuted = []
    for m, found in sorted(digests.items()):
        number = certificate.bits_at(m)
        assert number is not None
        if len(found) > 1 and certificate.classes[number].any_row:
            refuted.append(f"M = {m}: equal rows of x have {len(found)} byte patterns")
        by_class[number].setdefault(found[0], m)
    for number, patterns in by_class.items():
        if len(patterns) > 1:
            rows = ", ".join(str(m) for m in patterns.values())
            refuted.append(f"class {number} has {len(patterns)} byte patterns, first at M = {rows}")
    sides = [
        (digests.get(each.left.last), digests.get(each.right.first))
        for each in certificate.boundaries if each.left.bits is not None and each.right.bits is not None
    ]  # fmt: skip
    ran = [(one, other) for one, other in sides if one is not None and other is not None]
    return Confirmation(
        tuple(sorted(digests)), tuple(refuted), len(ran), sum(one != other for one, other in ran),
        len(certificate.boundaries) - len(ran),
    )  # fmt: skip


def run_job(job: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Run a job in a process with these settings. Raises CublasError with the last line of its errors."""
    environment = {name: value for name, value in os.environ.items() if name not in settings.environment}
    environment |= {name: value for name, value in settings.environment.items() if value is not None}
    command = [sys.executable, "-m", "bitwise_cublas_profiles.invariance.confirmation"]
    try:
        done = subprocess.run(
            command, input=json.dumps(job), env=environment, capture_output=True, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CublasError(f"--run: the products took longer than {SECONDS} seconds; give fewer with --rows") from None
    if done.returncode:
        raise CublasError(f"--run: {(done.stderr.strip().splitlines() or ['the process ended'])[-1]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def work(job: Mapping[str, Any]) -> dict[str, Any]:
    """The digests of a job in this process, whose environment has its settings: for each product and number of rows,
    the digest of row 0 and then the others that equal rows of x have.
    """
    import torch

    from bitwise_cublas_profiles.library import Library

    settings = job["settings"]
    matmul = torch.backends.cuda.matmul
    allowed: dict[str, Any] = {"all": True, "fp32": False, "none": (False, False)}
    for dtype in ("fp16", "bf16"):
        setattr(matmul, f"allow_{dtype}_reduced_precision_reduction", allowed[settings["reductions"]])
    if settings["prefer_cublaslt"]:
        torch.backends.cuda.preferred_blas_library("cublaslt")
    with Library() as library:
        version = library.version
    found = [_digests(each, f"{job['seed']}") for each in job["products"]]
    return {"provenance": {"library": version, "device": torch.cuda.get_device_name()}, "digests": found}


def _digests(task: Sequence[Any], seed: str) -> list[list[str]]:
    import torch

    n, k, dtype, operator, rows = task
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = dtype == "tf32"
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)
    generator = torch.Generator("cuda").manual_seed(int(hashlib.sha256(f"{seed} {task}".encode()).hexdigest()[:12], 16))

    def drawn(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, device="cuda", dtype=kind)

    digests: list[list[Any]] = [[] for _ in rows]
    for zero in (False, True):
        # In the second draw the terms of each sum cancel in pairs: the output consists of rounding errors.
        x, weight = drawn(max(rows, default=1), k), drawn(n, k)
        bias = drawn(1, n)[0] if operator == "addmm" else None
        if zero:
            places, half = torch.randperm(k, generator=generator, device="cuda"), k // 2
            one, other = places[:half], places[half : 2 * half]
            x[0, other] = x[0, one]
            weight[:, other] = -weight[:, one]
            weight[:, places[2 * half :]] = 0
            bias = None if bias is None else torch.zeros_like(bias)
        x[::2] = x[0].clone()
        if operator == "mm":
            weight = weight.t().contiguous()
        for place, m in enumerate(rows):
            given = x[:m]
            out = torch.mm(given, weight) if operator == "mm" else torch.nn.functional.linear(given, weight, bias)
            same = out[::2].view(torch.int32 if out.element_size() == 4 else torch.int16)
            kinds = [same[0]] if bool((same == same[0]).all()) else list(torch.unique(same, dim=0))
            others = [each for each in kinds if not torch.equal(each, same[0])]
            digests[place].append([_digest(same[0]), *sorted(_digest(each) for each in others)])
    return [
        ["+".join(first for first, *_ in draws), *(other for _, *others in draws for other in others)]
        for draws in digests
    ]


def _digest(row: Any) -> str:
    return hashlib.sha256(row.cpu().numpy().tobytes()).hexdigest()[:16]


def main() -> int:
    """Read a job on standard input and print its result on one line."""
    try:
        print(json.dumps(work(json.loads(sys.stdin.read()))))
    except (ImportError, RuntimeError, CublasError) as error:
        print(str(error).split("\n")[0], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
