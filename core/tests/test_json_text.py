"""JSON of users: what could be read as something else is refused with a sentence."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitwise_core.json_text import parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)  # fmt: skip


@given(VALUES)
def test_what_json_writes_is_read(value: object) -> None:
    assert repr(parse_json(json.dumps(value))) == repr(value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a": 1, "b": {"c": 1, "d": 2, "c": 1}}', "an object has the key 'c' twice: remove one"),
        ("[NaN]", 'NaN is no number of JSON; where a field takes it, write a text, such as "inf" or "nan"'),
        ("-Infinity", '-Infinity is no number of JSON; where a field takes it, write a text, such as "inf" or "nan"'),
        ("[1e400]", "the number 1e400 is beyond fp64"),
        ("-" + "9" * 5000, "an integer has 5001 digits; at most 60 are read"),
        ('"\\ud800"', "a text contains half of a UTF-16 pair"),
        ('{"\\udfff": 1}', "a text contains half of a UTF-16 pair"),
        ("[" * 100_000, "values are nested too deeply"),
        ('{"a":' * 100_000, "values are nested too deeply"),
    ],
)
def test_what_could_be_read_as_something_else_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        parse_json(text)
