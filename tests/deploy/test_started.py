"""The container files are built and started for real, in namespaces of Linux in the place of a container engine: for
root, where there are overlays and a Python of the version of the image."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.started import UID
from tests.deploy.test_files import instructions
from tests.docs.pages import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


def in_root_folder(folder: Path, *words: str, network: bool) -> subprocess.CompletedProcess[str]:
    """Run the module with the machine's files, but what it writes goes to the folder."""
    for name in ("upper", "work", "root"):
        (folder / name).mkdir(exist_ok=True)
    options = f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"
    inside = f"cd {ROOT} && exec {sys.executable} -m tests.deploy.started {' '.join(words)}"
    script = (
        f"mount -t overlay overlay -o {options} {folder}/root && mount -t proc proc {folder}/root/proc"
        f" && mount --rbind /dev {folder}/root/dev && exec chroot {folder}/root sh -c '{inside}'"
    )
    spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *([] if network else ["--net"])]
    return subprocess.run([*spaces, "sh", "-c", script], capture_output=True, text=True, check=False)


def python_of_image() -> str | None:
    """A Python of the version that FROM names."""
    version = next(rest for name, rest in instructions() if name == "FROM").partition(":")[2].partition("-")[0]
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    return str(installed[-1]) if installed else shutil.which(f"python{version}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("namespaces and overlays are for root")
    if in_root_folder(tmp_path, "nothing", network=False).returncode:
        pytest.skip("this machine has no overlays")
    return tmp_path


def test_the_services_of_the_compose_file_start_replicate_and_end(folder: Path) -> None:
    python = python_of_image()
    if python is None:
        pytest.skip("no Python of the image's version")
    built = in_root_folder(folder, "build", python, network=True)
    assert built.returncode == 0, built.stderr[-4000:]
    started = in_root_folder(folder, "start", network=False)
    assert started.returncode == 0, started.stderr[-4000:]
    shown = json.loads(started.stdout.splitlines()[-1])
    assert shown["dagster"]["unhealthy"] == []
    assert shown["dagster"]["repositories"] == ["__repository__"]
    assert [asset for asset in shown["dagster"]["assets"] if "orders" in asset], shown["dagster"]
    assert "1000" in shown["rows"]
    assert {"mo_ccpr_log", "ccpr_points"} <= set(shown["ccpr_tables"])
    assert {"event_logs", "runs", "instigators"} <= set(shown["dagster_tables"])
    assert shown["owners"] == [int(UID)]
    assert shown["stopped"] == {"ccpr": 0, "ui": 0, "daemon": 0}
    assert shown["secrets"] == []
