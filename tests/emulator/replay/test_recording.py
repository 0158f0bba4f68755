from pathlib import Path

import pytest

from ccpr_emulator.replay.recording import BadRecording, open_recording

pytestmark = pytest.mark.recordings


def test_a_folder_that_is_not_a_recording_is_an_error(tmp_path: Path, recordings: Path) -> None:
    with pytest.raises(BadRecording, match=r"about\.json"):
        open_recording(tmp_path)
    source = recordings / "dml"
    (tmp_path / "about.json").write_text((source / "about.json").read_text())
    with pytest.raises(BadRecording, match="no snapshot"):
        open_recording(tmp_path)
    folder = tmp_path / "snapshot-001"
    folder.mkdir()
    for path in (source / "snapshot-001").glob("*.json"):
        (folder / path.name).write_text(path.read_text())
    assert (
        open_recording(tmp_path).publication.name == "pub_dml"
    )  # no scenario.sql: the recorded statement has the name
    for damage, text in (
        ("{", "cannot be read as JSON"),
        ("[]", "JSON object"),
        ("{}", "columns"),
        ('{"columns":["a"],"mysql_types":[],"rows":[]}', "lengths"),
    ):
        (folder / "object_list.json").write_text(damage)
        with pytest.raises(BadRecording, match=text):
            open_recording(tmp_path)
    (folder / "ddl.json").write_text('{"columns":["dbname"],"mysql_types":[15],"rows":[]}')
    (folder / "object_list.json").write_text((source / "snapshot-001" / "object_list.json").read_text())
    with pytest.raises(BadRecording, match="tablename is missing"):
        open_recording(tmp_path)
    (folder / "ddl.json").write_text((source / "snapshot-001" / "ddl.json").read_text())
    (folder / "object_list.json").unlink()
    with pytest.raises(BadRecording, match="neither"):
        open_recording(tmp_path)
