"""Cases that are known to fail, listed in a file."""

from __future__ import annotations

import re

from bitwise_conformance.suite.samples import SampleError
from bitwise_conformance.suite.suite import Suite

KNOWN_FAILURES = "known_failures.txt"
_LINE = re.compile(r"(test_\w+\[.+\])\s+#\s*(\S.*)")


def known_failures(suite: Suite) -> dict[str, str]:
    """Return the reason of every known failure by its id; a line is `test_bytes[toy1-sum-a.toy]  # reason`.

    Blank lines and lines that begin with # are ignored.  Raises SampleError.
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
            raise SampleError(f"{path}:{number}: write a known failure as `test_name[id]  # reason`")
        if matched[1] in found:
            raise SampleError(f"{path}:{number}: {matched[1]} is listed twice; remove one line")
        found[matched[1]] = matched[2]
    return found
