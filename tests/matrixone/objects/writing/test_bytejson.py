import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.objects.bytejson import json_text
from ccpr.matrixone.objects.errors import NotWritable
from ccpr.matrixone.objects.writing.json_and_geometry import json_binary
from tests.matrixone.objects.building import json_bytes

_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5),
    max_leaves=15,
)


@given(_json)
def test_json_becomes_the_bytes_of_the_format(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        with pytest.raises(NotWritable):
            json_binary(pa.array([json.dumps(value)]), subject="test")
        return
    assert json_binary(pa.array([json.dumps(value), None]), subject="test").to_pylist() == [json_bytes(value), None]


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "[Infinity]", "1e999", "[" * 600 + "]" * 600, "9" * 400, '"\\ud800"', "[" * 100_000]
)
def test_text_that_no_json_column_holds_is_refused(text: str) -> None:
    with pytest.raises(NotWritable):
        json_binary(pa.array([text]), subject="test")


def test_minus_zero_stays_a_double_as_only_that_is_printed_so() -> None:
    texts = pa.array(["-0", '[-0, 0, {"a": -0}]'])
    assert json_text(json_binary(texts, subject="test"), subject="test").to_pylist() == texts.to_pylist()
