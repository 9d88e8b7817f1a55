"""The pictures of the documentation show the numbers of the records, and need nothing from another host."""

from __future__ import annotations

import re

import pytest

from bitwise_bench.documentation.foreign_requests import foreign_requests
from bitwise_bench.documentation.pictures import FOLDER, PICTURES, digest, summation_orders


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_the_numbers_of_today(name: str) -> None:
    text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert re.findall(r"<dc:description>(.*?)</dc:description>", text) == [digest(PICTURES[name][0]())]


def test_there_is_no_other_chart() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.svg")) == sorted(PICTURES)


def test_the_orders_of_the_picture_have_different_sums() -> None:
    sums = [order["sum"] for order in summation_orders()["orders"].values()]
    assert len(set(sums)) == len(sums)


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('<a href="https://example.org">x</a><img src="a.svg"><script src="b.js"></script>', []),
        ('<script src="//example.org/b.js"></script>', ["//example.org/b.js"]),
        ('<img src="https://example.org/a.png">', ["https://example.org/a.png"]),
        ('<link rel="stylesheet" href="https://example.org/a.css">', ["https://example.org/a.css"]),
        ('<link rel="canonical" href="https://example.org/">', []),
        ('<p style="background: url(https://example.org/a.png)">', ["https://example.org/a.png"]),
    ],
)
def test_what_a_page_loads_from_other_hosts_is_found(page: str, found: list[str]) -> None:
    assert foreign_requests("page.html", page) == found


def test_what_a_style_sheet_loads_from_other_hosts_is_found() -> None:
    text = '@import "https://example.org/a.css"; a { background: url("b.png"), url(//example.org/c.png) }'
    assert foreign_requests("style.css", text) == ["https://example.org/a.css", "//example.org/c.png"]
