"""Every command of `bitwise receipt` on training steps and a generation of a model, and the bytes of the run, on a GPU.

    python -m bitwise_bench.models.receipt_commands --out record.json

The run is recorded in a lock, whose receipt is written, verified and compared.  Receipts and files that somebody
changed, and another setting of the library, must be found.  The same run then takes its products from the lock in a
process whose library has other orders, and once without the lock there, which is the negative control.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bitwise_bench.models import digests_of_run
from bitwise_bench.models.mode_costs import NO_WORKSPACES
from bitwise_bench.models.model_locks import MODELS, environment

BITWISE = [sys.executable, "-c", "from bitwise_core.command import main; main()"]
RUN = str(Path(digests_of_run.__file__).resolve())
HELD, FAILED, INCOMPLETE = 0, 1, 3
"""Exit statuses of `bitwise receipt`."""

MOST_LINES = 40
"""The number of lines of a command's output that the record keeps."""


class Commands:
    """Runs commands in a folder, and keeps what they returned."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.model = folder, model
        self.found: dict[str, dict[str, Any]] = {}

    def run(self, what: str, *arguments: str, wanted: Sequence[int], without_workspaces: bool = False) -> None:
        """Run `bitwise` with arguments; `wanted` are the exit statuses that are right."""
        self._run(what, [*BITWISE, *arguments], wanted, without_workspaces)

    def run_without_lock(self, what: str, digests: str) -> None:
        """Run the model in the library without workspaces."""
        self._run(what, [sys.executable, RUN, self.model, digests], [0], True)

    def _run(self, what: str, command: list[str], wanted: Sequence[int], without_workspaces: bool) -> None:
        begun = time.perf_counter()
        variables = {**os.environ, **(NO_WORKSPACES if without_workspaces else {})}
        done = subprocess.run(command, cwd=self.folder, env=variables, capture_output=True, text=True)
        lines = [line[:400] for line in (done.stdout + done.stderr).splitlines()]
        self.found[what] = {
            "status": done.returncode, "right": done.returncode in wanted,
            "seconds": round(time.perf_counter() - begun, 1), "lines": len(lines), "output": lines[-MOST_LINES:],
        }  # fmt: skip
        print(what, json.dumps(self.found[what], indent=1), flush=True)

    def written(self, name: str) -> Any:
        """Return the content of a file of JSON, None where no command wrote it."""
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def changed(content: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> str:
    """Return the text of a receipt that was changed."""
    copy = json.loads(json.dumps(content))
    change(copy)
    return json.dumps(copy)


def with_other_order(receipt: dict[str, Any]) -> None:
    """Give a product of a receipt the descriptor of another one that has as many values of k and the same types."""
    described = [each for each in receipt["operators"] if each.get("descriptor")]
    fields = ("k", "a", "b", "out")
    one, other = next(
        (one, other) for one, other in permutations(described, 2)
        if one["descriptor"] != other["descriptor"]
        and all(one["problem"][field] == other["problem"][field] for field in fields)
    )  # fmt: skip
    one["descriptor"] = other["descriptor"]


def with_stronger_claim(receipt: dict[str, Any]) -> None:
    """Say that an assumed claim of a receipt is proved."""
    next(each for each in receipt["claims"] if each["kind"] == "assumed")["kind"] = "proved"


CHANGES = {"another order": with_other_order, "a stronger claim": with_stronger_claim}
"""Changes of a receipt, which its verification must find."""


def recorded(commands: Commands, name: str, without_workspaces: bool) -> None:
    """Record a lock NAME.json of the run, and write its receipt NAME.receipt.json."""
    setting = " without workspaces" if without_workspaces else ""
    commands.run(
        f"lock write{setting}", "lock", "write", "--attention", "pinned", "--out", f"{name}.json", RUN, commands.model,
        f"{name}.digests", wanted=[HELD, INCOMPLETE], without_workspaces=without_workspaces,
    )  # fmt: skip
    commands.run(
        f"receipt write{setting}", "receipt", "write", f"{name}.json", "--ask", "--file", f"run={RUN}", "--out",
        f"{name}.receipt.json", wanted=[HELD, INCOMPLETE], without_workspaces=without_workspaces,
    )  # fmt: skip


def verified(commands: Commands) -> None:
    """Verify the receipt, and receipts, files and settings that are not those of the run."""
    ask = ("--ask", "--lock", "run.json", "--file", f"run={RUN}")
    commands.run("receipt verify", "receipt", "verify", "run.receipt.json", *ask, wanted=[HELD, INCOMPLETE])
    commands.run("receipt verify --json", "receipt", "verify", "run.receipt.json", "--json", wanted=[HELD, INCOMPLETE])
    receipt = commands.written("run.receipt.json")
    for name, change in CHANGES.items() if receipt else ():
        (commands.folder / "changed.json").write_text(changed(receipt, change), encoding="utf-8")
        commands.run(f"receipt verify, {name}", "receipt", "verify", "changed.json", wanted=[FAILED])
    other = ("--file", "run=run.json")
    commands.run("receipt verify, another file", "receipt", "verify", "run.receipt.json", *other, wanted=[FAILED])
    commands.run(
        "receipt verify, another setting", "receipt", "verify", "run.receipt.json", *ask, wanted=[FAILED],
        without_workspaces=True,
    )  # fmt: skip
    commands.run("receipt schema", "receipt", "schema", wanted=[HELD])


def measured(folder: Path, model: str) -> dict[str, Any]:
    """Return what the commands returned, and which digests differ from those of the recorded run."""
    commands = Commands(folder, model)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(recorded, [commands] * 2, ["run", "other"], [False, True]))
        jobs = [
            pool.submit(verified, commands),
            pool.submit(
                commands.run, "lock apply without workspaces", "lock", "apply", "run.json", RUN, model,
                "locked.digests", wanted=[HELD], without_workspaces=True,
            ),
            pool.submit(commands.run_without_lock, "run without workspaces", "free.digests"),
        ]  # fmt: skip
        for each in jobs:
            each.result()
    same, other = "run.receipt.json", "other.receipt.json"
    commands.run("receipt diff of equal ones", "receipt", "diff", same, same, wanted=[HELD, INCOMPLETE])
    commands.run("receipt diff of settings", "receipt", "diff", same, other, wanted=[FAILED])
    wanted = commands.written("run.digests") or {}
    found = {name: commands.written(f"{name}.digests") or {} for name in ("locked", "free")}
    receipt = commands.written(same) or {"claims": [], "operators": []}
    return {
        "commands": commands.found,
        "claims": {each["name"]: each["kind"] for each in receipt["claims"]},
        "products": len(receipt["operators"]),
        "digests": wanted,
        "lock: other bytes": [what for what in wanted if found["locked"].get(what) != wanted[what]],
        "library: other bytes": [what for what in wanted if found["free"].get(what) != wanted[what]],
    }


def holds(found: dict[str, Any]) -> bool:
    """Return whether all commands were right, all bytes under the lock are those of the run, and others are not."""
    right = all(each["right"] for each in found["commands"].values())
    return right and bool(found["digests"]) and not found["lock: other bytes"] and bool(found["library: other bytes"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the commands, and write a record.  The exit status is 1 where one is wrong or bytes differ."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.models.receipt_commands", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", choices=list(MODELS), default="llama")
    parser.add_argument("--folder", type=Path, help="keep the locks and receipts in this folder")
    given = parser.parse_args(arguments)
    content: dict[str, Any] = {"environment": environment(), "model": given.model}
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        content |= measured(given.folder or Path(temporary), given.model)
    given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0 if holds(content) else 1


if __name__ == "__main__":
    sys.exit(main())
