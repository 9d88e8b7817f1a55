"""The numbers of clusters that fit on each GPU at once, by the blocks of a cluster.

    python -m bitwise_bench.cublas.times.cluster_counts --out clusters.json

A block has the shared memory of a multiprocessor.  A cluster lies in one group of multiprocessors, and GPUs of one name
may have groups of other sizes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bitwise_nvidia_sm90.gemm.driver_launches import Image, active_clusters
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import SHARED_BYTES

_SIZES = (2, 4, 8)
_THREADS = 384
_TEXT = b""".version 8.0
.target sm_90
.address_size 64
.visible .entry nothing()
{
ret;
}
\0"""


def counts(device: int) -> dict[str, int]:
    """Return the number of clusters by their blocks."""
    return {
        str(size): active_clusters(Image(_TEXT, "nothing", _THREADS, SHARED_BYTES, (size, 1, 1)), device)
        for size in _SIZES
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, write and print."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.times.cluster_counts", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    import torch

    found = []
    for device in range(torch.cuda.device_count()):
        with torch.cuda.device(device):
            torch.cuda.synchronize()
            found.append({"gpu": torch.cuda.get_device_name(device), "clusters": counts(device)})
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
