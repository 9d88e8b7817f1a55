"""The digests of a model's training steps and generation, as a script for `bitwise lock`.

bitwise lock write --out lock.json PATH_OF_THIS_FILE MODEL DIGESTS
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

from bitwise_bench.models.model_locks import bytes_of_run

if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(bytes_of_run(sys.argv[1], nullcontext)[1]), encoding="utf-8")
