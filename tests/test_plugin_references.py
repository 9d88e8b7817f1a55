"""What plugins of this repository refer to is there, and is what the references say."""

from __future__ import annotations

from bitwise_core.plugins import registry


def test_every_item_can_be_loaded() -> None:
    loaded = registry.load()
    assert [each.name for each in loaded.arches.loadable] == list(loaded.arches)
    for plugin in loaded.plugins:
        for given, kind in ((plugin.profiles, loaded.profiles), (plugin.launchers, loaded.launchers)):
            assert {each.name for each in given} <= {each.name for each in kind}
    assert loaded.broken == ()
