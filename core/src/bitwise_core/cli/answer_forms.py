"""The forms of answers in JSON, as models whose JSON Schemas are published in docs/schemas."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bitwise_core.cli.common import SCHEMA


class Form(BaseModel):
    """An object without further fields.  Another version of bitwise may add fields to it."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)


class Answer(Form):
    """What every answer begins with: the version of its form, and what made it."""

    form: str = Field(alias="schema")
    versions: dict[str, str]
    tools: list[str]


class Difference(Form):
    """A difference from the expected classes."""

    kernel: str
    rule: str
    level: Literal["error", "warning", "note"]
    message: str


Scope = Literal["launch", "every launch"]


class PartitionAnswer(Answer):
    """The answer of `bitwise partition`: `shared` says what the configurations of each class share."""

    classes: list[list[str]]
    shared: list[str]
    unknown: dict[str, str]
    scope: Scope
    seconds: float
    notes: list[str]
    conditions: list[str]
    tensors: dict[str, list[str]]
    target: str
    unexpected: list[Difference] | None = None


class OrderedPlace(Form):
    """A place at which the order of threads decides."""

    kind: str
    reason: str
    line: int | None
    source: str | None
    other_line: int | None
    other_source: str | None


class KernelAnswer(Form):
    """The determinism of a kernel."""

    name: str
    outcome: Literal["deterministic", "nondeterministic", "unknown"]
    reason: str
    places: list[OrderedPlace]


class DeterminismAnswer(Answer):
    """The answer of `bitwise determinism`."""

    kernels: list[KernelAnswer]
    scope: Scope
    seconds: float
    notes: list[str]
    conditions: list[str]
    target: str


class CounterexampleForm(Form):
    """An input on which the kernels differ: an element with both bit patterns, and as decimals where it has some."""

    input: str | None
    element: str
    size: int
    left: str
    right: str
    decimals: list[str] | None
    ulps: int | None
    different: int
    drawn: str


class DiffAnswer(Answer):
    """The answer of `bitwise diff`."""

    outcome: Literal["equal", "different", "unproved", "unknown"]
    reason: str
    scope: Scope
    notes: list[str]
    conditions: list[str]
    tensors: dict[str, list[str]]
    divergence: dict[str, Any] | None
    counterexample: CounterexampleForm | None


FORMS: dict[str, type[Answer]] = {
    "partition": PartitionAnswer,
    "determinism": DeterminismAnswer,
    "diff": DiffAnswer,
}
"""The forms by the name of the command."""


def json_schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema of a command's answers."""
    found = FORMS[command].model_json_schema(by_alias=True)
    found["properties"]["schema"] = {"const": f"{command}/{SCHEMA}"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"bitwise {command}", **found}
