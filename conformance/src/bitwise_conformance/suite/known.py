"""Cases that are known to fail, by a file of their ids."""

from __future__ import annotations

import re

from bitwise_conformance.suite.expected import SampleError
from bitwise_conformance.suite.suite import Suite

KNOWN_FAILURES = "known_failures.txt"
_LINE = re.compile(r"(test_\w+\[.+\])\s+#\s*(\S.*)")


def known_failures(suite: Suite) -> dict[str, str]:
    """The reason of every id in the file of known failures: a line is `test_bytes[toy1-sum-a.toy]  # why`.

    Blank lines and lines that begin with # say nothing.  Raises SampleError.
    """
    path = suite.samples / KNOWN_FAILURES
    if not path.is_file():
        return {}
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        matched = _LINE.fullmatch(line.strip())
        if matched is None:
            raise SampleError(f"{path}:{number}: a known failure is written `test_name[id]  # why it fails`")
        if matched[1] in found:
            raise SampleError(f"{path}:{number}: {matched[1]} is named twice")
        found[matched[1]] = matched[2]
    return found
