"""A login of the relay sees the publications that it may use and its own snapshots; whatever else there is does not
exist for it."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.relay.client_port import Listen
from ccpr.relay.offers import Logins, Offers
from ccpr.relay.relay_backing import StateFolder
from ccpr.relay.relay_server import Relay
from ccpr.retention.pinning import pinned
from ccpr.service.workspace import Workspace
from ccpr.state.followers import Follower, FollowerRecords, FollowerStage, publication_of, seal_login
from ccpr.state.pins import OURS, Pins
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.relay.conftest import Ticking
from tests.support.replica import command, source_uri
from tests.support.wire_client import Client, Connect

pytestmark = pytest.mark.integration

PASSWORD = "of the login"


class Folder:
    """A state folder with the subscriptions `shop` and `secret`, and a relay with all of its logins."""

    def __init__(self, workspace: Workspace, relay: Relay, connect: Connect) -> None:
        self.workspace, self.relay, self._connect = workspace, relay, connect

    def user(self, name: str, *publications: str) -> Client:
        words = [word for publication in publications for word in ("--publication", publication)]
        password = command("relay", "user", "add", name, *words)["password"]
        return self._connect(self.relay.port, user=f"sys#{name}", password=password)

    def follower(self, subscription: str, name: str) -> tuple[Client, str]:
        """The login that `ccpr follower add` makes, and its publication."""
        task, vault = self.workspace.log.row(subscription).task_id, self.workspace.vault
        publication = publication_of(task, name)
        sealed = vault.seal("x", None), seal_login(vault, publication, PASSWORD)
        made = Follower(task, name, "mysql://sys#root@127.0.0.1:1", *sealed, "there", "127.0.0.1:1", datetime.now(UTC))
        records = FollowerRecords(self.workspace.log.engine, task)
        records.add(made)
        records.change(name, stage=FollowerStage.FOLLOWING.value)
        return self._connect(self.relay.port, user=f"sys#{publication}", password=PASSWORD), publication

    def pins(self, subscription: str) -> dict[str, str | None]:
        log = self.workspace.log
        return {pin.name: pin.owner for pin in Pins(log.engine, log.row(subscription).task_id).all()}

    def object_of(self, client: Client, database: str, publication: str) -> str:
        """The name of one of its objects."""
        client.rows(f"CREATE SNAPSHOT looking FOR DATABASE {database} FROM sys PUBLICATION {publication}")
        rows = client.rows(f"__++__internal_object_list looking - sys {publication}")
        client.rows(f"DROP SNAPSHOT looking FROM sys PUBLICATION {publication}")
        return ObjectStats.parse(rows[0][2] or b"").name


@pytest.fixture
def folder(home: Path, connect: Connect) -> Iterator[Folder]:
    storage = Storage()
    with SimulatedUpstream(storage) as upstream, closing(Workspace()) as workspace:
        for name in ("shop", "secret"):
            storage.create_database(name)
            storage.create_publication(name, name)
            storage.create_table(name, f"t_{name}", {"n": "int not null"}, primary_key=["n"])
            with storage.begin() as transaction:
                transaction.insert(name, f"t_{name}", {"n": list(range(50))})
            command("subscribe", name, "--from", source_uri(upstream.port), "--database", name)
            command("run", name)
        served = StateFolder(Offers(workspace, monotonic=Ticking()))
        with Relay(served, Logins(workspace).digest, Listen(port=0), seen_by=served.seen_by) as relay:
            yield Folder(workspace, relay, connect)


def names(client: Client, statement: str) -> set[str]:
    return {(row[0] or b"").decode() for row in client.rows(statement)}


Make = Callable[[Folder], tuple[Client, str, str]]


def limited(folder: Folder) -> tuple[Client, str, str]:
    return folder.user("mo", "Shop"), "shop", "shop"


def following(folder: Folder) -> tuple[Client, str, str]:
    client, publication = folder.follower("shop", "site_b")
    return client, publication, "there"


@pytest.mark.parametrize("make", [limited, following])
def test_other_publications_do_not_exist_for_a_login(folder: Folder, make: Make) -> None:
    everything = folder.user("all")
    secret = folder.object_of(everything, "secret", "secret")
    everything.rows("CREATE SNAPSHOT kept FOR DATABASE secret FROM sys PUBLICATION secret")
    client, publication, database = make(folder)
    ours = folder.object_of(client, database, publication)
    assert client.rows(f"__++__internal_get_object sys {publication} {ours} 1")
    assert client.error(f"__++__internal_get_object sys {publication} {secret} 1")[0] == 20405
    for statement in (
        "CREATE SNAPSHOT thief FOR DATABASE secret FROM sys PUBLICATION secret",
        "DROP SNAPSHOT kept FROM sys PUBLICATION secret",
        "DROP SNAPSHOT IF EXISTS kept FROM sys PUBLICATION secret",
        "SHOW PUBLICATION COVERAGE secret",
        "SHOW CREATE PUBLICATION secret",
        "__++__internal_object_list kept - sys secret",
        "__++__internal_get_snapshot_ts kept sys secret",
        "__++__internal_check_snapshot_flushed kept sys secret",
        "__++__internal_get_databases - sys secret database secret -",
        "__++__internal_get_ddl - sys secret database secret -",
        "__++__internal_get_mo_indexes 1 sys secret -",
        f"__++__internal_get_object sys secret {secret} 1",
    ):
        assert "publication" in client.error(statement)[1], statement
    assert client.error("USE secret")[0] == 1049
    assert names(client, "SHOW PUBLICATIONS") == {publication}
    assert names(client, "SELECT pub_name FROM mo_catalog.mo_pubs") == {publication}
    assert names(client, "SELECT pub_name FROM mo_catalog.mo_pubs WHERE pub_name = 'secret'") == set()
    assert names(client, "SELECT datname FROM mo_catalog.mo_database") == {database, "mo_catalog"}
    assert names(client, "SELECT relname FROM mo_catalog.mo_tables WHERE reldatabase_id > 1") == {"t_shop"}
    assert names(client, "SELECT att_database FROM mo_catalog.mo_columns") == {database}
    assert "secret" not in names(client, "SHOW DATABASES")
    foreign = everything.one("SELECT rel_id FROM mo_catalog.mo_tables WHERE relname = 't_secret'")
    mine = everything.one("SELECT rel_id FROM mo_catalog.mo_tables WHERE relname = 't_shop'")
    if foreign != mine:
        assert "no such table" in client.error(f"SELECT mo_ctl('dn', 'flush', '{int(foreign or 0)}')")[1]
    assert folder.pins("secret") == {"kept": "all"}


@pytest.mark.parametrize("make", [limited, following])
def test_snapshots_of_another_login_do_not_exist_for_a_login(folder: Folder, make: Make) -> None:
    other, (client, publication, database) = folder.user("all"), make(folder)
    other.rows("CREATE SNAPSHOT theirs FOR DATABASE shop FROM sys PUBLICATION shop")
    client.rows(f"CREATE SNAPSHOT mine FOR DATABASE {database} FROM sys PUBLICATION {publication}")
    of = f"FROM sys PUBLICATION {publication}"
    assert "find 0 snapshot" in client.error(f"__++__internal_object_list theirs - sys {publication}")[1]
    assert "find 0 snapshot" in client.error(f"__++__internal_get_snapshot_ts theirs sys {publication}")[1]
    assert "does not exist" in client.error(f"DROP SNAPSHOT theirs {of}")[1]
    client.rows(f"DROP SNAPSHOT IF EXISTS theirs {of}")
    for words in ("", "IF NOT EXISTS "):  # it could not be read afterwards
        taken = client.error(f"CREATE SNAPSHOT {words}theirs FOR DATABASE {database} {of}")
        assert "already exists" in taken[1]
    assert names(client, "SHOW SNAPSHOTS") == {"mine"}
    assert names(client, "SELECT sname FROM mo_catalog.mo_snapshots") == {"mine"}
    assert names(other, "SHOW SNAPSHOTS") == {"theirs"}
    assert "find 0 snapshot" in other.error("__++__internal_object_list mine - sys shop")[1]
    assert set(folder.pins("shop")) == {"mine", "theirs"}
    shown = {pin["snapshot"]: pin["login"] for pin in command("relay", "pins", "shop")["pins"]}
    assert shown["theirs"] == "all"
    assert set(command("relay", "pins", "shop", "--drop", "mine")["dropped"]) == {"mine"}, "who runs it may"


def test_two_followers_of_one_subscription_do_not_see_each_other(folder: Folder) -> None:
    (one, first), (_, second) = folder.follower("shop", "site_b"), folder.follower("shop", "site_c")
    assert one.rows(f"SHOW PUBLICATION COVERAGE {first}")
    assert "does not exist" in one.error(f"SHOW PUBLICATION COVERAGE {second}")[1]
    assert "does not exist" in one.error("SHOW PUBLICATION COVERAGE shop")[1]


def test_snapshots_whose_login_is_not_known_are_every_logins_but_no_followers(folder: Folder) -> None:
    (client, publication), user = folder.follower("shop", "site_b"), folder.user("mo")
    user.rows("CREATE SNAPSHOT old FOR DATABASE shop FROM sys PUBLICATION shop")
    with folder.workspace.log.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE ccpr_pins SET login_name = NULL")
    assert "find 0 snapshot" in client.error(f"__++__internal_object_list old - sys {publication}")[1]
    assert user.rows("__++__internal_object_list old - sys shop")
    user.rows("DROP SNAPSHOT old FROM sys PUBLICATION shop")
    assert folder.pins("shop") == {}


OURS_NOW = ("ccpr_copy_ab12_", "ccpr_drill_", "ccpr_work_", "what comes next")


@pytest.mark.parametrize("make", [limited, following])
@pytest.mark.parametrize("before", [False, True])
def test_what_is_pinned_for_our_own_work_is_no_logins(folder: Folder, make: Make, before: bool) -> None:
    """`before`: as earlier releases left it, without an owner."""
    client, publication, database = make(folder)
    row, of = folder.workspace.log.row("shop"), f"FROM sys PUBLICATION {publication}"
    pins, point = Pins(folder.workspace.log.engine, row.task_id), folder.workspace.mirror("shop").point()
    client.rows(f"CREATE SNAPSHOT mine FOR DATABASE {database} {of}")
    for prefix in OURS_NOW[:3] if before else OURS_NOW:
        with pinned(pins, point, folder.workspace.clock, prefix):
            (ours,) = set(folder.pins("shop")) - {"mine"}
            if before:
                with folder.workspace.log.engine.begin() as connection:
                    connection.exec_driver_sql("UPDATE ccpr_pins SET login_name = NULL WHERE snapshot_name <> 'mine'")
            for asked in (
                "SHOW SNAPSHOTS",
                "SELECT sname FROM mo_catalog.mo_snapshots",
                f"SELECT sname FROM mo_catalog.mo_snapshots WHERE sname IN ('{ours}', 'mine')",
                "SELECT sname FROM mo_catalog.mo_snapshots WHERE level = 'database' ORDER BY ts LIMIT 9",
            ):
                assert names(client, asked) == {"mine"}, asked
            assert client.one(f"SELECT count(*) FROM mo_catalog.mo_snapshots WHERE sname LIKE '{ours[:9]}%'") == b"0"
            for asked in (
                f"__++__internal_object_list `{ours}` - sys {publication}",
                f"__++__internal_object_list mine `{ours}` sys {publication}",
                f"__++__internal_get_snapshot_ts `{ours}` sys {publication}",
                f"DROP SNAPSHOT `{ours}` {of}",
            ):
                assert client.error(asked), asked
            client.rows(f"DROP SNAPSHOT IF EXISTS `{ours}` {of}")
            if " " not in ours:
                for words in ("", "IF NOT EXISTS "):
                    taken = client.error(f"CREATE SNAPSHOT {words}{ours} FOR DATABASE {database} {of}")
                    assert "already exists" in taken[1]
            assert folder.pins("shop")[ours] == OURS
            (shown,) = (pin for pin in command("relay", "pins", "shop")["pins"] if pin["snapshot"] == ours)
            assert shown["login"] == OURS
        assert set(folder.pins("shop")) == {"mine"}, "its own work drops it"


def test_a_login_that_pins_all_it_may_keeps_nothing_else_from_theirs(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccpr.state.pins.MOST_PINS", 3)
    (client, publication), user = folder.follower("shop", "site_b"), folder.user("mo")
    for number in range(3):
        user.rows(f"CREATE SNAPSHOT s{number} FOR DATABASE shop FROM sys PUBLICATION shop")
    assert "3 points" in user.error("CREATE SNAPSHOT s3 FOR DATABASE shop FROM sys PUBLICATION shop")[1]
    client.rows(f"CREATE SNAPSHOT next_one FOR DATABASE there FROM sys PUBLICATION {publication}")
    row = folder.workspace.log.row("shop")
    with pinned(Pins(folder.workspace.log.engine, row.task_id), folder.workspace.mirror("shop").point(), lambda: 1.0):
        assert sorted(filter(None, folder.pins("shop").values())) == sorted([OURS, publication, "mo", "mo", "mo"])


def test_what_a_login_may_use_is_changed_under_its_open_session(folder: Folder) -> None:
    client = folder.user("mo")
    assert names(client, "SHOW PUBLICATIONS") == {"shop", "secret"}
    assert command("relay", "user", "limit", "MO", "--publication", "SHOP")["publications"] == ["shop"]
    assert names(client, "SHOW PUBLICATIONS") == {"shop"}
    (listed,) = command("relay", "user", "list")
    assert (listed["user"], listed["publications"]) == ("mo", ["shop"])
    words = ["--publication", "shop", "--publication", "secret"]
    assert command("relay", "user", "limit", "mo", *words)["publications"] == ["secret", "shop"]
    assert names(client, "SHOW PUBLICATIONS") == {"shop", "secret"}
    assert command("relay", "user", "limit", "mo", "--all-publications")["publications"] is None
    assert names(client, "SHOW PUBLICATIONS") == {"shop", "secret"}
    with folder.workspace.log.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE ccpr_relay_users SET publications = 'nonsense'")
    assert names(client, "SHOW PUBLICATIONS") == set(), "what cannot be read permits nothing"
    command("relay", "user", "drop", "mo")
    assert "does not exist" in client.error("SHOW PUBLICATION COVERAGE shop")[1]


def test_a_login_is_limited_to_what_there_is(folder: Folder) -> None:
    missing = command("relay", "user", "add", "mo", "--publication", "shap", code=1)["error"]
    assert (missing["code"], "shap" in missing["subject"]) == ("SUBSCRIPTION_MISSING", True)
    assert command("relay", "user", "list") == []
    code = command("relay", "user", "limit", "mo", "--publication", "shop", code=1)["error"]["code"]
    assert code == "RELAY_USER_MISSING"
    assert json.dumps(command("relay", "user", "limit", "mo", code=2))
