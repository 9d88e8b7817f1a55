"""Prove the canonical rules: `python -m bitwise_bench.proofs [NAME ...]`.

Without names, everything that is stated and not yet proved.  Exit code 1 where a statement is false or unproved.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bitwise_bench.proofs.faithfulness import Unfaithful
from bitwise_bench.proofs.mutations import examine_all
from bitwise_bench.proofs.page import render
from bitwise_bench.proofs.prover import CORE, SECONDS, ProofError, prove, read, second_opinion, table, write
from bitwise_bench.proofs.standard import compare_all


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bitwise_bench.proofs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="rules, inferences or implications")
    parser.add_argument("--table", default=CORE, help="the module of the statements (default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="prove again what is proved already")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time limit of one search (%(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes (%(default)s)")
    parser.add_argument("--mutations", action="store_true", help="change the statements, and see the proofs fail")
    parser.add_argument(
        "--standard", action="store_true", help="compare operations with SMT-LIB's floating-point theory"
    )
    parser.add_argument("--second", type=float, metavar="SECONDS", help="ask z3 too, for at most that time each")
    page = "docs/reference/canonical-rules.md"
    parser.add_argument("--page", metavar="FILE", nargs="?", const=page, help="write the page and stop")
    given = parser.parse_args(arguments)
    try:
        stated = table(given.table)
        if given.page:
            Path(given.page).write_text(render(stated, read(stated.path)))
            return 0
        failures = prove(stated, given.names, given.again, given.seconds, given.workers, print)
    except (ProofError, Unfaithful, ModuleNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    if given.mutations and not failures:
        content = read(stated.path)
        known = {} if given.again and not given.names else content.get("mutations", {})
        content["mutations"] = examine_all(stated, tuple(given.names), known, failures.append)
        write(stated.path, content)
    if given.standard and not failures:
        content = read(stated.path)
        try:
            content["standard"] = compare_all(print)
        except Unfaithful as error:
            failures.append(str(error))
        write(stated.path, content)
    if given.second and not failures:
        try:
            opinion = second_opinion(stated, given.second, print)
        except ProofError as error:
            failures.append(str(error))
        else:
            write(stated.path, {**read(stated.path), "second": opinion})
    for failure in failures:
        print(failure, file=sys.stderr)
    if failures:
        print(f"{len(failures)} obligations failed", file=sys.stderr)
        return 1
    print(f"every obligation of {given.table} is proved: {stated.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
