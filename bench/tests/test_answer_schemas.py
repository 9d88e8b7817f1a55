"""The published schemas are those of the forms."""

from __future__ import annotations

import pytest

from bitwise_bench.documentation.answer_schemas import FOLDER, FORMS, text


@pytest.mark.parametrize("command", FORMS)
def test_the_published_schema_is_that_of_the_form(command: str) -> None:
    assert (FOLDER / f"{command}.json").read_text() == text(command), (
        "run python -m bitwise_bench.documentation.answer_schemas"
    )


def test_no_other_schema_is_published() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(FORMS)
