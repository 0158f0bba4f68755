"""The pages about second sites, disasters and upgrades: their commands are typed as they stand there, with places of
this machine for their hosts, and the rows are compared with the mirror's."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ccpr.cli.main import app
from ccpr.matrixone.schema import Kind
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.relay import loading
from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.docs.pages import FENCED
from tests.support.native_client import NativeClient
from tests.support.ports import free_port
from tests.support.relayed import assert_has_point
from tests.support.replica import About

pytestmark = [pytest.mark.long, pytest.mark.recordings]
PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def commands(page: str, section: str = "") -> list[str]:
    """The commands of a page, or of one of its sections."""
    text = (PAGES / f"{page}.md").read_text()
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for _, block in FENCED.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    found = [line for line in lines if line.startswith("ccpr ")]
    assert found, f"{page} {section}"
    return found


FOLLOWING = commands("feed-a-matrixone", "Let a cluster follow")


class Desk:
    """Where the commands are typed: subscription `shop` is to the recording `dml`, both other clusters are one client
    that does what a MatrixOne does."""

    def __init__(self, about: About, source: RecordedUpstream, client: NativeClient, folder: Path) -> None:
        self.about, self.source, self.client, self.folder = about, source, client, folder
        self.relay_port, self.copy_port = free_port(), free_port()
        self.opened = ExitStack()

    @property
    def mirror(self) -> Mirror:
        return Mirror(LocalStore(self.folder / "home" / "mirrors" / "shop"))

    def type_all(self, lines: list[str]) -> None:
        for line in lines:
            self.type(line)

    def type(self, line: str) -> None:
        if line == "ccpr serve":
            return  # it makes points; here `ccpr run` does
        scope = f"--database {self.about.database} --publication pub_dml --publisher {self.about.publisher}"
        for known, here in (
            ("a.example.com:6001", f"127.0.0.1:{self.source.port}"),
            ("b.example.com:6001", f"127.0.0.1:{self.client.port}"),
            ("new.example.com:6001", f"127.0.0.1:{self.client.port}"),
            ("relay.example.com:6002", f"127.0.0.1:{self.relay_port}"),
            ("relay.example.com:6003", f"127.0.0.1:{self.copy_port}"),
            ("0.0.0.0:6002", f"0.0.0.0:{self.relay_port}"),
            ("0.0.0.0:6003", f"0.0.0.0:{self.copy_port}"),
            ("s3://bucket/shop", str(self.mirror.store.url)),
            ("--database shop", scope),
        ):
            line = line.replace(known, here)
        words = shlex.split(line)[1:]
        if words[:2] == ["relay", "serve"]:
            process = subprocess.Popen([sys.executable, "-m", "ccpr.cli", *words], stdout=subprocess.PIPE, text=True)
            self.opened.callback(process.wait, 60)
            self.opened.callback(process.terminate)
            assert process.stdout is not None
            assert process.stdout.readline() == f"listening on 0.0.0.0:{self.relay_port}\n"
            return
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, (line, result.output)
        if words[0] == "run" or words[:2] == ["follower", "add"]:
            self.know_tables()
            if self.client.tasks:
                self.client.wait_for(self.mirror.point().at.physical)

    def know_tables(self) -> None:
        """As the other cluster would count them."""
        mirror = self.mirror
        tables = [ref for ref in mirror.point().tables.values() if ref.kind is Kind.TABLE]
        self.client.definitions = {ref.name: mirror.manifest(ref).table for ref in tables}

    def assert_copied(self, database: str | None = None) -> None:
        copy = self.client.databases[database or self.about.database]
        assert copy is not None
        assert assert_has_point(self.client, copy, self.mirror) > 0


@pytest.fixture
def desk(recordings: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(loading, "POLL_SECONDS", 0.05)
    for name in ("PW_A", "PW_B"):
        monkeypatch.setenv(name, "111")
    with RecordedUpstream(recordings / "dml") as source, NativeClient() as client:
        desk = Desk(About.read(recordings / "dml"), source, client, home)
        with desk.opened:
            yield desk


def test_a_second_site_follows_and_takes_over(desk: Desk) -> None:
    desk.type_all(FOLLOWING)
    desk.assert_copied()
    desk.type("ccpr run shop")
    desk.assert_copied()
    asked = desk.source.status().sessions_opened
    steps = commands("recover", "The source is gone: a follower takes over")
    assert steps[-1] == "ccpr drop shop --force", "which says that it does not reach the source"
    desk.type_all(steps[:-1])
    assert desk.source.status().sessions_opened == asked
    desk.assert_copied()
    assert (set(desk.client.databases), desk.client.tasks) == ({desk.about.database}, {})
    desk.type(steps[-1])


def test_without_a_second_site_a_point_is_loaded_from_the_mirror_with_its_state_and_without(desk: Desk) -> None:
    desk.type_all([line for line in FOLLOWING if line.startswith(("ccpr subscribe", "ccpr run"))])
    for section in ("The source is gone: there is no follower", "Source and state folder are gone"):
        desk.client.databases.clear()
        desk.type_all(commands("recover", section))
        desk.assert_copied()


def test_an_upgrade_is_tried_on_a_copy_and_then_done(desk: Desk) -> None:
    desk.type_all([line for line in FOLLOWING if line.startswith(("ccpr subscribe", "ccpr relay"))])
    steps = commands("upgrade", "Try a new MatrixOne on a copy")
    desk.type_all(steps[:2])
    desk.assert_copied("shop_try")
    desk.type_all(steps[2:])
    desk.assert_copied()
    assert (set(desk.client.databases), desk.client.tasks) == ({desk.about.database, "shop_try"}, {})
