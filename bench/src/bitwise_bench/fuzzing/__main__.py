"""Give malformed files to every reader; what is not a result or an error of the package is a finding.

python -m bitwise_bench.fuzzing --seconds 600 --jobs 2 --record records/fuzzing.json --found FOLDER

A finding is an exception that is no BitwiseError, an internal error of the checker, more than 20 s of CPU time, or more
than 4 GiB.
The exit status is 0 without a finding, else 1.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from bitwise_bench.command_line import command_parser
from bitwise_bench.fuzzing.campaign import campaign, lines_of
from bitwise_bench.fuzzing.readers import readers


def main() -> int:
    """Run a campaign."""
    parser = command_parser("fuzzing", __doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="the time of the campaign")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="the number of processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", nargs="*", default=None, help="the readers, by default all")
    parser.add_argument("--record", type=Path, default=None, help="write the counts to this file")
    parser.add_argument("--found", type=Path, default=Path(tempfile.gettempdir(), "bitwise-fuzzing"))
    chosen = parser.parse_args()
    names = chosen.readers or sorted(readers())
    unknown = sorted(set(names) - set(readers()))
    if unknown:
        parser.error(f"there is no reader {unknown[0]!r}; there are {', '.join(sorted(readers()))}")
    record = campaign(names, seconds=chosen.seconds, jobs=chosen.jobs, seed=chosen.seed, found=chosen.found)
    for line in lines_of(record):
        print(line)
    if chosen.record is not None:
        chosen.record.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if record["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
