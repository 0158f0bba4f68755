"""A mirror that cannot be read: the catalog answers for the others, a statement about it says why, and it is seen."""

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ccpr.relay import relay_server as module
from ccpr.relay.client_port import Listen
from ccpr.relay.relay_metrics import RelayMetrics
from ccpr.relay.relay_server import RelayService
from ccpr.service.running import RELAYS, PortMark, addresses, left_out_by_relays
from ccpr.service.workspace import Workspace
from tests.relay.test_logins import Folder, folder, names
from tests.support.replica import command
from tests.support.wire_client import Connect

pytestmark = pytest.mark.integration

__all__ = ["folder"]


@contextmanager
def damaged(home: Path, name: str) -> Iterator[None]:
    """One byte of each manifest of a mirror is another one."""
    changed: dict[Path, bytes] = {}
    for path in [*(home / "home" / "mirrors" / name / "manifests").rglob("*")]:
        if path.is_file():
            changed[path] = path.read_bytes()
            content = bytearray(changed[path])
            content[len(content) // 2] ^= 1
            replace(path, bytes(content))
    assert changed
    yield
    for path, before in changed.items():
        replace(path, before)


def replace(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


WITHOUT_IT = [
    "SELECT relname FROM mo_catalog.mo_tables",
    "SELECT relname FROM mo_catalog.mo_tables WHERE reldatabase = 'shop'",
    "SELECT relname FROM mo_catalog.mo_tables WHERE account_id = 0 AND reldatabase IN ('shop', 'other')",
    "SELECT relname FROM mo_catalog.mo_tables WHERE reldatabase LIKE 'sh%'",
]
ABOUT_IT = [
    "SELECT relname FROM mo_catalog.mo_tables WHERE reldatabase = 'secret'",
    "SELECT relname FROM mo_catalog.mo_tables WHERE account_id = 0 AND reldatabase = 'secret' AND relname = 'x'",
    "SELECT relname FROM mo_catalog.mo_tables WHERE reldatabase IN ('shop', 'secret')",
    "SELECT relname FROM mo_catalog.mo_tables WHERE reldatabase LIKE 's%'",
    "SELECT relname FROM mo_catalog.mo_tables WHERE reldatabase != 'shop'",
    "SELECT attname FROM mo_catalog.mo_columns WHERE att_database = 'secret'",
    "SELECT datname FROM mo_catalog.mo_database WHERE datname = 'secret'",
    "SELECT relname FROM mo_catalog.mo_tables {mo_ts = 9100000000000000000}",
    "SELECT relname FROM mo_catalog.mo_tables {mo_ts = 9100000000000000000} WHERE reldatabase = 'secret'",
    "SELECT datname FROM mo_catalog.mo_database {mo_ts = 9100000000000000000} WHERE account_id = 0",
    "USE secret",
    "SHOW PUBLICATION COVERAGE secret",
    "__++__internal_get_ddl - sys secret database secret -",
    "CREATE SNAPSHOT s FOR DATABASE secret FROM sys PUBLICATION secret",
]


OF_EVERY_CATALOG = {"mo_database", "mo_tables", "mo_columns"}


def test_the_catalog_answers_for_the_others(folder: Folder, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    client = folder.user("mo")
    with damaged(home, "secret"):
        assert names(client, "SHOW DATABASES") >= {"shop", "secret"}, "that it is there is known"
        assert names(client, "SELECT datname FROM mo_catalog.mo_database WHERE dat_id > 1") == {"shop", "secret"}
        assert names(client, "SELECT pub_name FROM mo_catalog.mo_pubs") == {"shop", "secret"}
        assert names(client, "SHOW PUBLICATIONS") == {"shop", "secret"}
        for statement in WITHOUT_IT:
            assert names(client, statement) - OF_EVERY_CATALOG == {"t_shop"}, statement
        assert names(client, "SELECT att_relname FROM mo_catalog.mo_columns") == {"t_shop"}
        client.rows("USE shop")
        client.rows("CREATE SNAPSHOT s FOR DATABASE shop FROM sys PUBLICATION shop")
        assert names(client, "SHOW SNAPSHOTS") == names(client, "SELECT sname FROM mo_catalog.mo_snapshots") == {"s"}
        (at,) = names(client, "__++__internal_get_snapshot_ts s sys shop")
        at_that = f"SELECT relname FROM mo_catalog.mo_tables {{mo_ts = {at}}} WHERE reldatabase = 'shop'"
        assert names(client, at_that) == {"t_shop"}
        client.rows("DROP SNAPSHOT s FROM sys PUBLICATION shop")
        mine = client.one("SELECT rel_id FROM mo_catalog.mo_tables WHERE relname = 't_shop'")
        assert b"OK" in (client.one(f"SELECT mo_ctl('dn', 'flush', '{int(mine or 0)}')") or b"")
    assert caplog.text.count("subscription secret is not in the catalog: MIRROR_DAMAGED") == 1


def test_a_statement_about_it_is_answered_with_its_error(folder: Folder, home: Path) -> None:
    """And never with no tables: a replica would drop its own."""
    client = folder.user("mo")
    with damaged(home, "secret"):
        for statement in ABOUT_IT:
            number, text = client.error(statement)
            assert (number, "MIRROR_DAMAGED" in text) == (20101, True), statement
    for statement in ABOUT_IT[:1]:
        assert names(client, statement) == {"t_secret"}, "it can be read again"


def test_it_is_seen_until_it_can_be_read_again(
    folder: Folder, home: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TRY_AGAIN_SECONDS", 0.1)
    password = command("relay", "user", "add", "mo")["password"]
    with closing(Workspace()) as workspace:
        service = RelayService(workspace, Listen(port=0))
        service.start()
        try:
            client = connect(int(service.address.rpartition(":")[2]), user="mo", password=password)
            with damaged(home, "secret"):
                assert names(client, "SELECT relname FROM mo_catalog.mo_tables WHERE reldatabase_id > 1") == {"t_shop"}
                assert list(service.left_out_now()) == ["secret"]
                assert figure(workspace, service) == 1
                eventually(lambda: warned("secret"))
                (said,) = warned("secret")
                assert "MIRROR_DAMAGED" in said
                assert service.address in said
                assert warned("shop") == []
                assert command("status", "shop")["relays"] == [service.address]
            eventually(lambda: not service.left_out_now())
            eventually(lambda: not warned("secret"))
            assert figure(workspace, service) == 0
        finally:
            service.stop()


def figure(workspace: Workspace, service: RelayService) -> float:
    (found,) = (one for one in RelayMetrics(workspace, service).collect() if one.name == "ccpr_relay_left_out")
    return found.samples[0].value


def warned(name: str) -> list[str]:
    return [text for text in command("status", name)["warnings"] if "does not have it in its catalog" in text]


def eventually(condition: "object") -> None:
    end = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


def test_what_a_relay_leaves_out_is_in_its_mark(tmp_path: Path) -> None:
    mark = PortMark(tmp_path, RELAYS, "127.0.0.1:6002")
    assert left_out_by_relays(tmp_path, "shop") == ()
    for left_out in ({"shop": "é " * 200, "crm": "y"}, {"crm": "x"}, {}):
        mark.note(left_out)
        assert addresses(tmp_path, RELAYS) == ("127.0.0.1:6002",)
        found = left_out_by_relays(tmp_path, "crm")
        assert [text.rpartition(": ")[2] for text in found] == list(left_out.values())[-1:]
    (path,) = (tmp_path / "relays").iterdir()
    path.write_text("127.0.0.1:6002\n" + json.dumps({"shop": "cut"})[:5])
    assert addresses(tmp_path, RELAYS) == ("127.0.0.1:6002",)
    assert left_out_by_relays(tmp_path, "shop") == ()
    mark.remove()
