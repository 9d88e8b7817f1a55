from __future__ import annotations

from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest

from bitwise_core.installed_distributions import installed_version, name_of, version_of


def of(folder: Path, metadata: str) -> Distribution:
    """Return a distribution with this metadata."""
    (info := folder / "mine-1.dist-info").mkdir()
    (info / "METADATA").write_text(metadata)
    [found] = distributions(path=[str(folder)])
    return found


def test_every_installed_distribution_has_the_name_and_version_of_its_metadata() -> None:
    found = [each for each in distributions() if each.metadata["Name"]]
    assert len(found) > 10
    assert [(name_of(each), version_of(each)) for each in found] == [(each.name, each.version) for each in found]


@pytest.mark.parametrize(
    "metadata",
    [
        "Metadata-Version: 2.1\nName: mine\nVersion: 1.2\n\nName: other\nVersion: 3\n",
        "Metadata-Version: 2.1\r\nName:  mine\r\nVersion: 1.2\r\n\r\nVersion: 3\r\n",
        "Metadata-Version: 2.1\nSummary: of\n        Version: 9\nVersion: 1.2\nName: mine\n",
        "name: mine\nversion: 1.2\n",
    ],
)
def test_only_headers_state_a_name_and_a_version(metadata: str, tmp_path: Path) -> None:
    found = of(tmp_path, metadata)
    assert (name_of(found), version_of(found)) == ("mine", "1.2") == (found.name, found.version)


def test_what_is_not_installed_has_no_version() -> None:
    assert installed_version("no-such-distribution-of-anyone") is None
    assert installed_version("numpy") is not None
