from pathlib import Path

import pytest

from ccpr.doctor.check import Verdict
from ccpr.doctor.machine_check import check_file_system, network_file_system

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/local\\040disk ext4 rw 0 0
//box/share /mnt cifs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib/ccpr", None),
        ("/home/me/.ccpr", "nfs4"),
        ("/homeless/.ccpr", None),
        ("/home/local disk/.ccpr", None),
        ("/mnt", "cifs"),
    ],
)
def test_the_innermost_mount_says_what_a_folder_is_on(folder: str, kind: str | None, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert network_file_system(Path(folder), mounts) == kind


def test_a_machine_that_does_not_say_is_not_doubted(tmp_path: Path) -> None:
    assert network_file_system(Path("/home"), tmp_path / "nothing") is None


def test_doctor_warns_of_a_state_folder_that_several_machines_see() -> None:
    check = check_file_system(Path("/home/me/.ccpr"), lambda _: "nfs4")
    assert check is not None
    assert check.result is Verdict.WARNING
    assert "CCPR_CATALOG" in (check.remedy or "")
    assert check_file_system(Path("/home/me/.ccpr"), lambda _: None) is None
