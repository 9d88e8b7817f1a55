"""The pytest plugin: the options `--bitwise-update` and `--bitwise-golden`, and the fixture `bitwise_golden`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bitwise_core import Source

DEFAULT_FILE = "bitwise_golden.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("bitwise", "bits of GPU kernels")
    group.addoption(
        "--bitwise-update", action="store_true",
        help="write the kernels of bitwise_golden calls as golden kernels instead of comparing them",
    )  # fmt: skip
    group.addoption(
        "--bitwise-golden", metavar="NAME", default=DEFAULT_FILE,
        help=f"the name of the file of golden kernels beside a test's file (default: {DEFAULT_FILE})",
    )  # fmt: skip


@dataclass
class Golden:
    """Compares kernels with those of a file, or collects them to be written."""

    path: Path
    update: bool
    collected: dict[str, Source] = field(default_factory=dict)

    def __call__(
        self,
        name: str,
        kernel: Any,
        configs: Sequence[Any] | None = None,
        args: Mapping[str, Any] | None = None,
        *,
        launch: Any = None,
        assume: Iterable[str] = (),
        search_seconds: float = 5.0,
        **options: Any,
    ) -> None:
        """Fail unless each kernel is proved to return the bits of the golden kernel of its name.

        A golden kernel's name is `name`, followed by the name of the kernel or configuration where there are several.
        The other arguments are those of `assert_same_bits`.  Raises BitwiseError and TypeError as it does.
        """
        __tracebackhide__ = True
        from bitwise_pytest.golden_file import GoldenKernels
        from bitwise_pytest.kernel_assertions import verdict_words
        from bitwise_pytest.kernel_sources import renamed, sources_of

        sources = sources_of(kernel, configs, args, launch, options, whole_names=True)
        names = [name] if len(sources) == 1 else [f"{name}: {each.name}" for each in sources]
        kernels = {each: renamed(source, each) for each, source in zip(names, sources, strict=True)}
        if self.update:
            self.collected.update(kernels)
            return
        known = GoldenKernels.read(self.path).kernels
        faults = []
        for each, source in kernels.items():
            if each not in known:
                faults.append(f"{self.path} has no golden kernel {each!r}: run pytest --bitwise-update")
                continue
            equal, words = verdict_words(renamed(known[each], f"{each} (golden)"), source, assume, search_seconds)
            if not equal:
                faults.append(words)
        if faults:
            raise AssertionError("\n".join(faults))


@pytest.fixture
def bitwise_golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    """Compare kernels with golden ones: `bitwise_golden(name, kernel, configs, args, grid=...)`."""
    path = request.path.parent / str(request.config.getoption("--bitwise-golden"))
    golden = Golden(path, bool(request.config.getoption("--bitwise-update")))
    yield golden
    if golden.collected:
        from bitwise_pytest.golden_file import GoldenKernels

        GoldenKernels({**GoldenKernels.read(path).kernels, **golden.collected}).write(path)
