import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.objects.identifiers import name_text, object_name
from ccpr.matrixone.objects.stats import check_object_name


@given(st.binary(min_size=18, max_size=18))
def test_one_name_is_made_as_many_are(object_id: bytes) -> None:
    assert object_name(object_id) == name_text(np.frombuffer(object_id, np.uint8).reshape(1, 18)).tobytes().decode()
    assert check_object_name(object_name(object_id))
