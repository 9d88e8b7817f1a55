"""Writes expected.json for groups of samples without one, for their author to check.

    python -m bitwise_conformance.suite PLUGIN SAMPLES

The file contains the equivalence classes of the kernels of the group, and the tree of the first element of the last
buffer, as the plugin reads them.  Recorded runs must come from the hardware.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from bitwise_conformance.suite.analysis import OPTIONS, analysis, tree
from bitwise_conformance.suite.samples import Group, Kernel, SampleError
from bitwise_conformance.suite.suite import Suite
from bitwise_core.checker.verdicts import Outcome, verdict
from bitwise_core.ir import text as tree_text


def proposal(suite: Suite, group: Group) -> dict[str, object]:
    """Return the content of expected.json if the plugin is correct.  Raises SampleError where a kernel is Unknown."""
    classes: list[list[str]] = []
    for file in group.launches:
        found = analysis(suite, Kernel(group, file))
        if found.unknown is not None:
            raise SampleError(f"{group.folder / file}: the plugin cannot analyse it: {found.unknown}")
        for each in classes:
            if verdict(found, analysis(suite, Kernel(group, each[0])), OPTIONS).outcome is Outcome.EQUAL:
                each.append(file)
                break
        else:
            classes.append([file])
    file = classes[0][0]
    element = f"{group.launches[file].buffers()[-1]}[0]"
    lines = tree_text.write(tree(suite.arch(group.arch), Kernel(group, file), element)).splitlines()
    return {"classes": classes, "trees": {file: {element: lines}}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; the exit status is 2 where a group cannot be analysed."""
    parser = argparse.ArgumentParser(prog="bitwise_conformance.suite", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("plugin", help="the module that the plugin's entry point names")
    parser.add_argument("samples", type=Path, help="the folder of samples")
    chosen = parser.parse_args(arguments)
    suite = Suite(import_module(chosen.plugin), chosen.samples)
    for group in suite.groups:
        path = group.folder / "expected.json"
        if path.exists():
            continue
        try:
            content = proposal(suite, group)
        except SampleError as error:
            print(error, file=sys.stderr)
            return 2
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {path}: check it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
