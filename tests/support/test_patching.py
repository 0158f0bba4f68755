import pytest

from ccpr.mirror.local_store import LocalStore
from tests.support.patching import NothingToReplace, find, replaced

STORE = "ccpr.mirror.local_store"


def test_a_method_is_replaced_during_the_block_only() -> None:
    original = LocalStore.begin
    with replaced(STORE, "LocalStore.begin", lambda found: lambda *args: (found, args)):
        assert vars(LocalStore)["begin"]("store", "name") == (original, ("store", "name"))
    assert LocalStore.begin is original


@pytest.mark.parametrize(
    "path", ["LocalStore.write", "LocalStore.__subclasses__", "LocalStorage.put", "put", "LocalStore.begin.name", "os"]
)
def test_what_is_gone_cannot_be_replaced(path: str) -> None:
    with pytest.raises(NothingToReplace, match=path.rpartition(".")[2]), replaced(STORE, path, lambda found: found):
        pass


def test_a_name_of_an_imported_module_is_found_where_it_is_used() -> None:
    owner, name, original = find("ccpr.pipeline.steps.copy", "copy_known")
    assert (owner.__name__, name, original.__name__) == ("ccpr.pipeline.steps.copy", "copy_known", "copy_known")
