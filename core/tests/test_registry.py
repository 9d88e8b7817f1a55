"""The loading of plugins from metadata of distributions that exist only in the test's folder."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoints, distributions
from typing import TYPE_CHECKING, Any

import pluggy
import pytest

from bitwise_core.checker.kernel_files import extensions
from bitwise_core.errors import InputError
from bitwise_core.plugins import hookspecs, registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Install = Callable[..., None]

PLUGIN = """
from types import SimpleNamespace
from bitwise_core.execution.architecture import Arch
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.tools import Tool

KINDS = {"bitwise_arches": Arch, "bitwise_matrix_units": MmaSpec, "bitwise_tools": Tool}

def item(hook, name):
    kind = KINDS.get(hook, SimpleNamespace)
    facts = {"extension": ".x", "targets": (name,), "bits": None, "every_launch": None, "parse": None}
    facts |= {"audit_tools": None} if kind is Arch else {}
    return type("Item", (kind,), {"name": name, "__init__": lambda self: None, **facts})()
"""


def arches(*names: str) -> str:
    """Return the source of a plugin module that provides architectures of these names."""
    listed = ", ".join(f"item('bitwise_arches', {name!r})" for name in names)
    return f"{PLUGIN}\n@hookimpl\ndef bitwise_arches():\n    return [{listed}]\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution with one plugin module per entry point; only such distributions are seen."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv(registry.RESTRICT_VARIABLE, raising=False)

    def entry_points(*, group: str) -> EntryPoints:
        found = (entry for dist in distributions(path=[str(tmp_path)]) for entry in dist.entry_points)
        return EntryPoints(found).select(group=group)

    monkeypatch.setattr(registry, "entry_points", entry_points)

    def install(distribution: str, **plugins: str) -> None:
        info = tmp_path / f"{distribution}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        lines = ["[bitwise]"]
        for name, source in plugins.items():
            module = f"fake_{distribution}_{name}"
            (tmp_path / f"{module}.py").write_text(source)
            lines.append(f"{name} = {module}")
        (info / "entry_points.txt").write_text("\n".join(lines))

    yield install
    for name in set(sys.modules) - before:
        if name.startswith("fake_"):
            del sys.modules[name]


def test_nothing_installed(install: Install) -> None:
    loaded = registry.load()
    assert (loaded.plugins, loaded.broken, dict(loaded.arches)) == ((), (), {})
    with pytest.raises(registry.UnknownArchError) as raised:
        loaded.arch("toy")
    assert str(raised.value) == ("no plugin models the architecture 'toy'; available: none")


def test_plugins_load_in_order_of_their_names(install: Install) -> None:
    install("alpha", zebra=arches("z_1"))
    install("omega", ant=arches("a_2", "a_1"))
    loaded = registry.load()
    assert [(plugin.name, plugin.distribution, plugin.version) for plugin in loaded.plugins] == [
        ("ant", "omega", "1.2"),
        ("zebra", "alpha", "1.2"),
    ]
    assert list(loaded.arches) == ["a_2", "a_1", "z_1"]
    assert dict(loaded.owners) == {"a_2": "omega", "a_1": "omega", "z_1": "alpha"}
    assert loaded.arch("a_1").name == "a_1"
    with pytest.raises(registry.UnknownArchError) as raised:
        loaded.arch("b_1")
    assert str(raised.value) == "no plugin models the architecture 'b_1'; available: a_1, a_2, z_1"


def test_unknown_arch_is_a_key_error() -> None:
    assert issubclass(registry.UnknownArchError, KeyError)


def test_every_kind_is_collected(install: Install) -> None:
    hooks = [name for name in vars(hookspecs) if name.startswith("bitwise_")]
    source = PLUGIN + "".join(
        f"\n@hookimpl\ndef {hook}():\n    yield item('{hook}', 'from_{hook}')\n" for hook in hooks
    )
    install("whole", whole=source)
    loaded = registry.load()
    kinds: list[Any] = [
        loaded.arches.values(), loaded.matrix_units.values(), loaded.profiles, loaded.launchers, loaded.patchsets,
        loaded.tools,
    ]  # fmt: skip
    assert [[item.name for item in kind] for kind in kinds] == [[f"from_{hook}"] for hook in hooks]


REFERENCED = f"""{PLUGIN}
from bitwise_core.plugins.references import ArchReference, Deferred, Reference

def broken():
    raise OSError("no such device")

@hookimpl
def bitwise_arches():
    parse = Deferred("nothing:parse")
    return [
        ArchReference("good", lambda: item("bitwise_arches", "good"), ".x", ("good",), None),
        ArchReference("other", lambda: item("bitwise_arches", "other"), ".y", ("other",), None),
        ArchReference("absent", Deferred("nothing:ARCH").load, ".x", ("absent",), parse),
    ]

@hookimpl
def bitwise_launchers():
    return [Reference("works", lambda: item("", "works")), Reference("fails", broken), Reference("a", lambda: 1)]
"""


def test_items_are_loaded_when_they_are_used(install: Install) -> None:
    install("whole", whole=REFERENCED)
    loaded = registry.load()
    assert list(loaded.arches) == ["good", "other", "absent"]
    assert [each.name for each in loaded.plugins[0].launchers] == ["works", "fails", "a"]
    assert loaded.broken == ()
    assert loaded.arch("good") is loaded.arch("good")
    assert [each.name for each in loaded.launchers] == ["works"]
    reasons = [each.reason for each in loaded.broken]
    assert reasons[0] == "fails: OSError: no such device"
    assert reasons[1].startswith("a: TypeError: the reference to 'a' stands for 1")
    with pytest.raises(
        registry.UnknownArchError, match="cannot be loaded: whole of whole: absent: ModuleNotFoundError"
    ):
        loaded.arch("absent")
    with pytest.raises(registry.UnknownArchError, match="differs from its record in extension"):
        loaded.arch("other")
    assert [each.name for each in loaded.arches.loadable] == ["good"]
    assert len(loaded.broken) == 4


def test_a_matrix_unit_is_found_by_its_name(install: Install) -> None:
    rows = ", ".join(f"item('bitwise_matrix_units', {name!r})" for name in ("mma_k16_toy_1", "mma_k8_toy_1", "x"))
    install("rows", rows=f"{PLUGIN}\n@hookimpl\ndef bitwise_matrix_units():\n    return [{rows}]\n")
    loaded = registry.load()
    assert loaded.matrix_unit("mma_k8_toy_1").name == "mma_k8_toy_1"
    with pytest.raises(registry.UnknownMatrixUnitError) as raised:
        loaded.matrix_unit("mma_k8_toy_2")
    assert str(raised.value) == (
        "no plugin has a matrix unit 'mma_k8_toy_2'; the nearest: mma_k8_toy_1, mma_k16_toy_1, x"
    )
    with pytest.raises(registry.UnknownMatrixUnitError) as raised:
        registry.load([]).matrix_unit("mma_k8_toy_1")
    assert str(raised.value) == ("no plugin has a matrix unit 'mma_k8_toy_1'; the nearest: there are none")


def test_the_table_of_arches_cannot_be_changed(install: Install) -> None:
    loaded = registry.load()
    with pytest.raises(TypeError):
        loaded.arches["mine"] = None  # type: ignore[index]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('no such device')", "RuntimeError: no such device"),
        ("import fake_module_that_is_not_there", "No module named 'fake_module_that_is_not_there'"),
        ("def broken(:", "SyntaxError"),
        (PLUGIN + "def bitwise_arches():\n    return []", "it implements no hook; mark its functions with"),
        (PLUGIN + "@hookimpl\ndef bitwise_arch():\n    return []", "unknown hook 'bitwise_arch'"),
        (PLUGIN + "@hookimpl\ndef bitwise_arches(unasked):\n    return []", "unasked"),
        (PLUGIN + "@hookimpl\ndef bitwise_arches():\n    return 1 // 0", "ZeroDivisionError"),
        (PLUGIN + "@hookimpl\ndef bitwise_arches():\n    yield object()", "which has no name"),
        (
            PLUGIN + "@hookimpl\ndef bitwise_arches():\n    return 'abc'",
            "bitwise_arches returned 'a', which has no name",
        ),
        (arches("toy", "toy"), "bitwise_arches returned 'toy' twice"),
        (
            PLUGIN + "@hookimpl\ndef bitwise_arches():\n    yield SimpleNamespace(name='toy')",
            "bitwise_arches returned 'toy', which is no Arch but a SimpleNamespace",
        ),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("class Odd(BaseException): pass\nraise Odd('odd')", "Odd: odd"),
        ("raise GeneratorExit", "GeneratorExit: "),
        (PLUGIN + "@hookimpl\ndef bitwise_arches():\n    raise SystemExit(1)", "SystemExit: 1"),
        (
            PLUGIN + "class Odd:\n    @property\n    def name(self):\n        raise SystemExit(0)\n"
            "@hookimpl\ndef bitwise_tools():\n    yield Odd()",
            "SystemExit: 0",
        ),
    ],
)
def test_a_broken_plugin_is_reported_and_affects_no_other(install: Install, source: str, reason: str) -> None:
    install("mended", good=arches("good_1"))
    install("faulty", bad=source)
    loaded = registry.load()
    assert [plugin.name for plugin in loaded.plugins] == ["good"]
    (broken,) = loaded.broken
    assert (broken.name, broken.distribution) == ("bad", "faulty")
    assert reason in broken.reason
    assert loaded.arch("good_1").name == "good_1"
    with pytest.raises(registry.UnknownArchError) as raised:
        loaded.arch("bad_1")
    assert str(raised.value) == (
        "no plugin models the architecture 'bad_1'; available: good_1; "
        f"plugins that could not be loaded: bad of faulty: {broken.reason}"
    )


def test_where_no_architecture_is_loaded_the_broken_plugins_are_named(install: Install) -> None:
    install("faulty", bad="raise RuntimeError('no such device')")
    with pytest.raises(InputError) as raised:
        extensions(registry.load())
    named = "plugins that could not be loaded: bad of faulty: RuntimeError: no such device"
    assert str(raised.value).startswith(f"no architecture plugin is loaded; {named}; ")


def test_what_a_plugin_prints_is_no_output_of_the_command(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("chatty", chatty=f"print('loading')\n{arches('a')}")
    registry.load()
    assert (capsys.readouterr().out, registry.load().broken) == ("", ())


def test_a_plugin_whose_later_hook_fails_provides_nothing(install: Install) -> None:
    install(
        "half", half=arches("half_1") + "\n@hookimpl\ndef bitwise_patchsets():\n    raise ValueError('no patches')\n"
    )
    loaded = registry.load()
    assert dict(loaded.arches) == {}
    assert loaded.broken == (registry.BrokenPlugin("half", "half", "ValueError: no patches"),)


def test_an_optional_hook_of_another_specification_is_tolerated(install: Install) -> None:
    samples = "\n@hookimpl(optionalhook=True)\ndef bitwise_samples(arch):\n    return [arch]\n"
    install("suite", suite=arches("toy") + samples)
    loaded = registry.load()
    assert loaded.broken == ()

    class Specification:
        @hookspecs.hookspec
        def bitwise_samples(self, arch: str) -> list[str]: ...

    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(Specification)
    manager.register(loaded.plugins[0].module)
    assert manager.hook.bitwise_samples(arch="toy") == [["toy"]]


def test_an_arch_of_two_distributions_is_an_error_that_names_both(install: Install) -> None:
    install("first", one=arches("toy"))
    install("second", two=arches("toy"))
    with pytest.raises(registry.DuplicateNameError) as raised:
        registry.load()
    assert str(raised.value) == (
        "first and second both provide the architecture 'toy'; "
        "uninstall one, or name the plugins to load in BITWISE_PLUGINS"
    )
    assert dict(registry.load(["two"]).owners) == {"toy": "second"}


@pytest.mark.parametrize(
    ("hook", "kind"),
    [
        ("bitwise_matrix_units", "matrix unit"),
        ("bitwise_profiles", "profile"),
        ("bitwise_launchers", "launcher"),
        ("bitwise_patchsets", "patch set"),
    ],
)
def test_other_kinds_are_unique_too(install: Install, hook: str, kind: str) -> None:
    source = f"{PLUGIN}\n@hookimpl\ndef {hook}():\n    return [item('{hook}', 'same')]\n"
    install("first", one=source)
    install("second", two=source)
    with pytest.raises(registry.DuplicateNameError, match=f"^first and second both provide the {kind} 'same'; "):
        registry.load()


def test_an_entry_point_of_two_distributions_is_an_error_that_names_both(install: Install) -> None:
    install("first", same=arches("toy_1"))
    install("second", same=arches("toy_2"), other=arches("toy_3"))
    with pytest.raises(registry.DuplicateNameError) as raised:
        registry.load()
    assert str(raised.value) == "first and second both provide a plugin 'same'; uninstall one"
    assert list(registry.load(["other"]).arches) == ["toy_3"]


@pytest.mark.parametrize(
    ("value", "loaded"), [("b", ["b"]), ("c, a", ["a", "c"]), ("a,,a,", ["a"]), ("", []), (" , ", [])]
)
def test_the_environment_restricts_the_plugins(
    install: Install, monkeypatch: pytest.MonkeyPatch, value: str, loaded: list[str]
) -> None:
    install("one", a=arches("a"), b=arches("b"))
    install("two", c="raise RuntimeError")
    monkeypatch.setenv("BITWISE_PLUGINS", value)
    result = registry.load()
    assert sorted([p.name for p in result.plugins] + [p.name for p in result.broken]) == loaded


def test_names_override_the_environment(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("one", a=arches("a"), b=arches("b"))
    monkeypatch.setenv("BITWISE_PLUGINS", "a")
    assert list(registry.load(["b"]).arches) == ["b"]
    assert list(registry.load([]).arches) == []


def test_a_requested_plugin_must_be_installed(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("one", a=arches("a"), b=arches("b"))
    with pytest.raises(registry.UnknownPluginError) as raised:
        registry.load(["d", "a", "c"])
    assert str(raised.value) == "the caller requests plugins that are not installed: c, d; installed plugins: a, b"
    monkeypatch.setenv("BITWISE_PLUGINS", "A")
    with pytest.raises(registry.UnknownPluginError) as raised:
        registry.load()
    assert str(raised.value) == "BITWISE_PLUGINS names plugins that are not installed: A; installed plugins: a, b"


def test_the_default_is_loaded_once(install: Install) -> None:
    registry.default.cache_clear()
    try:
        install("one", a=arches("a"))
        first = registry.default()
        install("two", b=arches("b"))
        assert registry.default() is first
        assert list(first.arches) == ["a"]
    finally:
        registry.default.cache_clear()


def test_every_hook_is_documented() -> None:
    hooks = [hook for name, hook in vars(hookspecs).items() if name.startswith("bitwise_")]
    assert [hook.__name__ for hook in hooks if not hook.__doc__] == []


def test_hooks_collect() -> None:
    """No hook is a firstresult hook: the result of one plugin must not hide that of another."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    specified = [name for name in vars(hookspecs) if name.startswith("bitwise_")]
    assert specified == [
        "bitwise_arches", "bitwise_matrix_units", "bitwise_profiles", "bitwise_launchers", "bitwise_patchsets",
        "bitwise_tools",
    ]  # fmt: skip
    for name in specified:
        caller = getattr(manager.hook, name)
        assert caller.spec is not None
        assert not caller.spec.opts.get("firstresult")
        assert caller() == []
