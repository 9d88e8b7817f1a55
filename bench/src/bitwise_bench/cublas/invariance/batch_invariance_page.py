"""The page on batch invariance, from the records of `bitwise_bench.cublas.invariance.batch_invariance`.

python -m bitwise_bench.cublas.invariance.batch_invariance_page RECORD [CHECK] [--other RECORD [CHECK]]...
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

_SHOWN = 6
"""The number of boundaries of a product that the page lists."""

VERDICTS = ("invariant", "not invariant", "unknown", "unproved")


Pair: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Any] | None]
"""A record of `table`, and one of `check` on the same GPU and library, if there is one."""


def page(record: Mapping[str, Any], check: Mapping[str, Any] | None = None, others: Sequence[Pair] = ()) -> str:
    """Return the page: counts by setting, the products that are not invariant, and the comparison with bytes.

    `others` are the records of other GPUs or library versions. The counts of each are shown, and the products that
    differ from the first record of the same GPU, or from `record` if there is none.
    """
    origin, products = record["environment"], record["products"]
    settings = list(dict.fromkeys(each["setting"] for each in products))
    models = list(dict.fromkeys(each["model"] for each in products))
    parts = [
        "# Batch invariance of cuBLASLt\n",
        f"Products by the weights of {len(models)} public models, certified for every number of rows M from 1 to "
        f"{record['rows']:,} on an {origin['device']} with cuBLASLt {origin['library']} and PyTorch "
        f"{origin.get('torch', '')}: {', '.join(models)}. "
        "[The command](../../plugins/cublas_profiles/README.md#batch-invariance) says what a verdict means. Products "
        "that several layers or models have are counted once; layers fused as serving engines fuse them count too.\n",
        _table(("setting", "products", *VERDICTS), [_counts(each, products) for each in settings]),
        "\nThe products that are not invariant follow, with the first numbers of rows at which the bytes change and "
        "the least M from which all are one class.\n",
    ]
    for setting in settings:
        rows = list(_broken(setting, products))
        parts.append(f"## {setting}\n")
        parts.append(_table(("product", "layers", "classes", "bytes change at M =", "one class from"), rows)
                     if rows else "No product is shown to be not invariant.\n")  # fmt: skip
        parts += [f"Unknown: {each}.\n" for each in _unknown(setting, products)]
    if check is not None:
        parts.append(_checked(check))
    seen = [record]
    for own, own_check in others:
        same = [each for each in seen if each["environment"]["device"] == own["environment"]["device"]]
        parts.append(_other(same[0] if same else record, own, own_check))
        seen.append(own)
    return "\n".join(parts)


def _other(base: Mapping[str, Any], record: Mapping[str, Any], check: Mapping[str, Any] | None) -> str:
    """Return the part of the page on another GPU or library version, beside the record that it is compared with."""
    origin, own = record["environment"], record["products"]
    first_origin, products = base["environment"], base["products"]
    named = [f"{each['device']}, cuBLASLt {each['library']}" for each in (first_origin, origin)]
    settings = list(dict.fromkeys(each["setting"] for each in own))
    whole = all(_distinct(each, own).keys() == _distinct(each, products).keys() for each in settings)
    rows = []
    for setting in settings:
        first = _distinct(setting, products)
        for key, each in sorted(_distinct(setting, own).items(), key=lambda item: tuple(map(str, item[0]))):
            before = first.get(key)
            if before is None or _outcome(before) != _outcome(each):
                rows.append([setting, _words(key), *("-" if one is None else _outcome(one) for one in (before, each))])
    return "\n".join([
        f"\n## {named[1]}\n",
        f"{'The same' if whole else 'The recorded ones of these'} products with driver {origin['driver']}"
        + (f" and PyTorch {origin['torch']}.\n" if "torch" in origin else
           ". The library was asked without PyTorch; that PyTorch runs its first answer was measured with cuBLASLt "
           "13.1 only.\n"),
        _table(("setting", "products", *VERDICTS), [_counts(each, own) for each in settings]),
        f"\nOf {sum(len(_distinct(each, own)) for each in settings)} products, these have another verdict or change at "
        f"other numbers of rows than on an {named[0]}.\n" if rows else f"\nNone differs from those on an {named[0]}.\n",
        *([_table(("setting", "product", *named), rows)] if rows else []),
        *([_checked(check, "### Against bytes")] if check is not None else []),
    ])  # fmt: skip


def _outcome(each: Mapping[str, Any]) -> str:
    """Return the verdict on a product, with the numbers of rows at which its bytes change."""
    breaks = each.get("breaks_at", [])
    shown = ", ".join(map(str, breaks[:_SHOWN])) + (", ..." if len(breaks) > _SHOWN else "")
    return f"{each['verdict']} ({shown})" if shown else str(each["verdict"])


def _distinct(setting: str, products: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    return {_key(each): each for each in products if each["setting"] == setting}


def _counts(setting: str, products: Sequence[Mapping[str, Any]]) -> list[object]:
    found = _distinct(setting, products)
    counts = Counter(each["verdict"] for each in found.values())
    return [setting, len(found), *(counts[verdict] for verdict in VERDICTS)]


def _broken(setting: str, products: Sequence[Mapping[str, Any]]) -> Iterable[list[object]]:
    for product, layers, each in _with_verdict("not invariant", setting, products):
        shown = ", ".join(map(str, each["breaks_at"][:_SHOWN])) + (", ..." * (len(each["breaks_at"]) > _SHOWN))
        yield [product, layers, each["classes"], shown, each["one_class_from"] or "-"]


def _unknown(setting: str, products: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    for product, layers, each in _with_verdict("unknown", setting, products):
        missing = each.get("without_descriptor")
        yield f"{product} ({layers}), " + (f"{missing:,} numbers of rows have no descriptor" if missing
                                           else each.get("reason", "no boundary is shown").rstrip("."))  # fmt: skip


def _with_verdict(
    verdict: str, setting: str, products: Sequence[Mapping[str, Any]]
) -> Iterable[tuple[str, str, Mapping[str, Any]]]:
    """The distinct products with a verdict under a setting: the product, the layers that have it, and its record."""
    layers: dict[tuple[Any, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for each in products:
        if each["setting"] == setting and each["verdict"] == verdict:
            found = layers[_key(each)][each["model"]]
            found += [name for name in each["layers"] if name not in found]
    for key, each in sorted(_distinct(setting, products).items(), key=lambda item: tuple(map(str, item[0]))):
        if each["verdict"] == verdict:
            named = "; ".join(f"{model}: {', '.join(names)}" for model, names in layers[key].items())
            yield _words(key), named, each


def _words(key: tuple[Any, ...]) -> str:
    n, k, operator, dtype = key
    return f"{operator or 'product'} {n} x {k}" + ("" if dtype in ("bf16", None) else f" {dtype}")


def _key(each: Mapping[str, Any]) -> tuple[Any, ...]:
    return each["n"], each["k"], each.get("operator"), each.get("dtype")


def _checked(check: Mapping[str, Any], heading: str = "## Against bytes") -> str:
    origin = check["environment"]
    columns = {
        "products": "products", "samples": "numbers of rows", "refuted": "contradict the certificate",
        "boundaries run": "boundaries", "boundaries with other bytes": "of them with other bytes",
    }  # fmt: skip
    rows = [
        [setting, *(each["counts"].get(name, 0) for name in columns)] for setting, each in check["settings"].items()
    ]
    total = ["all", *(sum(int(row[place]) for row in rows) for place in range(1, len(columns) + 1))]
    drawn = "of the models' ones" if "drawn from" in origin else "of which no width was looked at before"
    return (
        f"{heading}\n\nDrawn products (seed {origin['seed']}), {drawn}, run by "
        f"PyTorch {origin.get('torch', '')} under each setting at drawn numbers of rows and on both sides of a drawn "
        "boundary. A number of rows contradicts its certificate if equal rows of x, at any position and at any M of "
        "one class, do not all give the same bytes.\n\n"
        + _table(("setting", *columns.values()), [*rows, total])
    )  # fmt: skip


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page of a record."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.invariance.batch_invariance_page", description=(__doc__ or "").split("\n")[0]
    )
    help_text = "a record of `table`, and one of `check`"
    parser.add_argument("records", type=Path, nargs="+", metavar="RECORD", help=help_text)
    parser.add_argument(
        "--other", type=Path, nargs="+", action="append", default=[], metavar="RECORD",
        help="the same of another GPU or library version",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    if any(len(each) > 2 for each in (given.records, *given.other)):
        parser.error("give one record of `table` and at most one of `check` for each GPU and library version")
    first, *others = (_pair(each) for each in (given.records, *given.other))
    print(page(*first, others), end="")
    return 0


def _pair(paths: Sequence[Path]) -> Pair:
    record, *rest = (json.loads(each.read_text(encoding="utf-8")) for each in paths)
    return record, rest[0] if rest else None


if __name__ == "__main__":
    sys.exit(main())
