import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from ccpr.mirror.layout import object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.copying import COPY_OUTPUT, CopyReport
from ccpr.pipeline.errors import ObjectsNotStored
from ccpr.pipeline.steps.copy import check_stored


@pytest.mark.parametrize("count", [0, 1, 3, 130, 1000])
def test_each_copied_object_that_is_missing_or_of_another_size_is_named(count: int, tmp_path: Path) -> None:
    store, names = LocalStore(tmp_path / "mirror"), [f"{uuid.UUID(int=number)}_00000" for number in range(count)]
    (tmp_path / "mirror" / "objects").mkdir(parents=True)
    files = {name: tmp_path / "mirror" / object_path(name) for name in names}
    for file in files.values():
        file.write_bytes(b"four")
    rows = [(name, 4, bytes(32), True, None, None, False, None) for name in names]
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(COPY_OUTPUT)]
    report = CopyReport.of(pa.Table.from_arrays(columns, schema=COPY_OUTPUT))
    check_stored(Mirror(store), report)
    wrong = names[::7]
    for number, name in enumerate(wrong):
        if number % 2:
            files[name].write_bytes(b"other")
        else:
            files[name].unlink()
    if wrong:
        with pytest.raises(ObjectsNotStored, match=f"{len(wrong)} copied objects are not") as caught:
            check_stored(Mirror(store), report)
        assert (list(caught.value.missing), caught.value.checked) == (wrong, count)
