"""The table of known distributions is what the plugins list, and each is an extra of core."""

from __future__ import annotations

import tomllib

import bitwise_bench.known_distributions as generator
from bitwise_core.known_distributions import TABLE, known_distributions
from workspace import ROOT


def test_the_table_is_that_of_the_plugins() -> None:
    assert generator.text() == TABLE.read_text(), "run python -m bitwise_bench.known_distributions"


def test_the_extra_all_installs_every_known_distribution() -> None:
    extras = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = sorted(each.extra for each in known_distributions())
    assert extras["all"] == [f"bitwise-core[{','.join(names)}]"]
    assert all(extras[each.extra] == [f"{each.name}~=0.1.0"] for each in known_distributions())
