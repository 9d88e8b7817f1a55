"""The JSON Schemas of answers: `python -m bitwise_bench.documentation.answer_schemas` writes them to docs/schemas."""

from __future__ import annotations

import json
from pathlib import Path

from bitwise_core.cli import answer_forms as core_forms
from bitwise_core.cli.answer_forms import Answer, json_schema
from bitwise_torch import answer_forms as runtime_forms

FOLDER = Path(__file__).parents[4] / "docs" / "schemas"


FORMS: dict[str, type[Answer]] = {**core_forms.FORMS, **runtime_forms.FORMS}
"""The forms of all commands."""


def text(command: str) -> str:
    """Return the file of a command's schema."""
    return json.dumps(json_schema(command, FORMS[command]), indent=1) + "\n"


def main() -> None:
    """Write the schemas of all commands."""
    FOLDER.mkdir(exist_ok=True)
    for command in FORMS:
        (FOLDER / f"{command}.json").write_text(text(command), encoding="utf-8")


if __name__ == "__main__":
    main()
