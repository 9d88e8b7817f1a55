"""The YAML of logic files: values without anchors and tags, of bounded depth, with each key given once."""

from __future__ import annotations

from typing import Any

import yaml

from bitwise_rocblas_profiles.errors import RocblasError

DEPTH = 32
"""The largest number of nested values."""


class _Refused(yaml.MarkedYAMLError):
    """What logic files do not contain."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class _Loader(yaml.CSafeLoader):
    """Dates are text: Tensile writes none, and a version or a name may look like one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping.  Raises YAMLError for a key that is given twice, or is no scalar."""
        names: set[str] = set()
        for key, _ in node.value:
            fault = (
                "is no text" if not isinstance(key, yaml.ScalarNode) else "is given twice" if key.value in names else ""
            )
            if fault:
                raise _Refused(f"a key {fault}", key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def parse(text: str, name: str) -> Any:
    """Return the value of a logic file's text; `name` is the file in messages.  Raises RocblasError."""
    try:
        _check_events(text)
        found = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        place = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise _fault(f"{name}{place}", error.problem or "it is no YAML") from None
    except yaml.reader.ReaderError as error:
        raise _fault(name, f"the character at position {error.position} is not allowed") from None
    except ValueError as error:  # a number that Python does not convert
        raise _fault(name, str(error)) from None
    if found is None:
        raise RocblasError(f"{name}: the file is empty")
    return found


def _check_events(text: str) -> None:
    """Raise MarkedYAMLError for aliases, anchors, tags and values that are nested too deeply."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        fault = ""
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            fault = "values are nested too deeply" if depth > DEPTH else ""
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            fault = "anchors and aliases are not supported"
        elif getattr(event, "tag", None) is not None:
            fault = "tags are not supported"
        if fault:
            raise _Refused(fault, event.start_mark)


def _fault(place: str, what: str) -> RocblasError:
    return RocblasError(f"{place}: {what}; this is no logic file of Tensile, or a truncated one")
