"""Make a table from a folder of logic files:

    python -m bitwise_rocblas_profiles.generate FOLDER --repository ROCm/rocBLAS --version rocm-6.2.2 --commit SHA \
        --out FILE

FOLDER is `library/src/blas3/Tensile/Logic/asm_full` of a rocBLAS checkout, or
`library/src/amd_detail/rocblaslt/src/Tensile/Logic/asm_full/aquavanjaram` of hipBLASLt.  Files for other architectures
than gfx942 are left out, and so are complex and experimental ones, which have a type that is not numbered.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from bitwise_rocblas_profiles.errors import RocblasError
from bitwise_rocblas_profiles.logic_files import read_logic_file
from bitwise_rocblas_profiles.tables import LogicFile, Table, to_bytes
from bitwise_rocblas_profiles.versions import ARCHITECTURE

LICENCE = "MIT"
_COMPLEX = frozenset({"C", "Z"})


def table_of(folder: Path, source: dict[str, str], skipped: Iterable[str] = ()) -> Table:
    """Return the table of a folder's logic files for gfx942.

    `skipped` are the ends of paths that are listed as missing and not read.  Raises RocblasError.
    """
    ends = tuple(skipped)
    files: list[LogicFile] = []
    missing = []
    for path in sorted(folder.rglob("*.yaml")):
        name = path.relative_to(folder).as_posix()
        if ends and name.endswith(ends):
            missing.append({"path": name})
            continue
        file = read_logic_file(path, name)
        if file.hardware.arch == ARCHITECTURE and file.problem["DataType"] not in _COMPLEX:
            files.append(file)
    generators = sorted({file.generator for file in files})
    if len(generators) != 1:
        found = f"files of {' and '.join(generators)}" if generators else f"no logic file for {ARCHITECTURE}"
        raise RocblasError(f"{folder} has {found}: give a folder of one library")
    return Table(files[0].generator, source, tuple(files), tuple(missing))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table; return the exit status, 2 for an error."""
    parser = argparse.ArgumentParser(description="Make a table of solutions from the logic files of a library.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repository", required=True, help="such as ROCm/rocBLAS")
    parser.add_argument("--version", required=True, help="the tag, or a date")
    parser.add_argument("--commit", required=True)
    parser.add_argument("--copyright", default="Copyright (C) Advanced Micro Devices, Inc.")
    parser.add_argument("--skip", action="append", default=[], metavar="END", help="list such files, do not read them")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    source = {
        "repository": given.repository, "tag": given.version, "commit": given.commit, "licence": LICENCE,
        "copyright": given.copyright,
    }  # fmt: skip
    try:
        content = to_bytes(table_of(given.folder, source, given.skip))
        given.out.write_bytes(content)
    except RocblasError as error:
        print(f"generate: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"generate: {given.out}: cannot be written ({error.strerror})", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
