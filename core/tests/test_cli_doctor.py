"""`bitwise doctor` prints what there is, and what each missing part would enable, whatever a plugin does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from bitwise_core import known_distributions
from bitwise_core.caching.entry_files import EntryFolder
from bitwise_core.cli import app
from bitwise_core.known_distributions import KnownDistribution
from bitwise_core.plugins import registry
from bitwise_core.plugins.registry import BrokenPlugin, Plugin
from bitwise_core.plugins.tools import Found, Tool, ToolMissing


def absent() -> Sequence[Found]:
    raise ToolMissing("no assembler is found: install one")


def ends() -> Sequence[Found]:
    sys.exit(0)


def fails() -> Sequence[Found]:
    raise ZeroDivisionError("oh \x1b[31m")


def there() -> Sequence[Found]:
    return [Found("1.2", "bin/as", "of PATH"), Found("1.1")]


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Any], None]:
    """Install one plugin with these tools, and a broken one; the cache has one entry."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    EntryFolder(tmp_path / "bitwise" / "readings").write("ab" * 32, b"content")

    def install(tools: tuple[Tool, ...]) -> None:
        launcher: Any = SimpleNamespace(name="products", missing=fails)
        plugin = Plugin("toys", "bitwise-toys", "3.1", None, (), (), (), (launcher,), (), tools)
        faults = [BrokenPlugin("bad", "bitwise-bad", "no")]
        found = replace(registry.load([]), plugins=(plugin,), faults=faults)
        monkeypatch.setattr(registry, "default", lambda: found)
        known = (KnownDistribution("bitwise-gone", "gone", "Reads.", {"extensions": (".gone",), "targets": ("g1",)}),)
        monkeypatch.setattr(known_distributions, "known_distributions", lambda: known)

    return install


def test_what_is_there_and_what_is_not(loaded: Callable[[Any], None], tmp_path: Path) -> None:
    looks = {"there": there, "absent": absent, "ends": ends, "fails": fails, "nothing": list}
    loaded(tuple(Tool(name, f"{name} enables", look) for name, look in looks.items()))
    done = CliRunner().invoke(app, ["doctor"])
    assert (done.exit_code, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    for sentence in (
        "bitwise-gone missing: not installed: pip install 'bitwise-core[gone]' it enables: extensions .gone",
        "toys of bitwise-toys 3.1 bad missing: could not be loaded: no tools",
        "there 1.2 bin/as (of PATH) 1.1 absent missing: no assembler is found: install one it enables: absent enables",
        "ends missing: the plugin failed to look for it (SystemExit: 0) it enables: ends enables",
        "fails missing: the plugin failed to look for it (ZeroDivisionError: oh \\x1b[31m) it enables: fails enables",
        "nothing missing: it is not found it enables: nothing enables",
        "products missing: the plugin failed to look for it (ZeroDivisionError: oh \\x1b[31m) caches",
        f"readings {tmp_path}/bitwise/readings: 1 entry, 0.0 of at most 256 MiB",
    ):
        assert sentence in words


def test_json_holds_the_same(loaded: Callable[[Any], None]) -> None:
    loaded((Tool("there", "it", there),))
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert found["found_tools"] == [
        {"name": "there", "plugin": "toys", "missing": "", "enables": "it",
         "found": [{"version": "1.2", "path": "bin/as", "note": "of PATH"}, {"version": "1.1", "path": "", "note": ""}]}
    ]  # fmt: skip
    assert [each["entries"] for each in found["caches"]] == [1]
    assert found["broken"] == [{"name": "bad", "distribution": "bitwise-bad", "reason": "no"}]


def test_the_tools_of_the_installed_plugins_have_names_of_their_own() -> None:
    tools = registry.load().tools
    assert len({each.name for each in tools}) == len(tools) >= 5
    assert all(each.enables for each in tools)
