"""What goes from a second copy, by the names of both places."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from ccpr.maintenance import second_copy
from ccpr.maintenance.second_copy import SecondCopy
from tests.hostile.targets.mirror_files import MemoryStore, mirror_of

NAMES = st.sets(st.integers(0, 40).map(lambda number: f"objects/{number}"))


@given(ours=NAMES, theirs=NAMES, page=st.integers(1, 9))
def test_what_is_left_is_the_difference_of_sets(ours: set[str], theirs: set[str], page: int) -> None:
    mirror, copy = (mirror_of(MemoryStore(dict.fromkeys(names, b""))) for names in (ours, theirs))
    with patch.object(second_copy, "_PAGE", page):
        assert SecondCopy(mirror, copy)._left("objects") == theirs - ours
