"""`ccpr config init`, `apply` and `export`: a file and the state folder say the same, key by key."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ccpr.cli.interrupts import NOT_CONFIRMED
from ccpr.cli.main import app
from ccpr.config.model import PARTS, FollowerEntry, LakeTargetEntry
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.mirror.encryption_keys import new_key
from ccpr.pipeline.spark.session import settings_of
from ccpr.service.workspace import Workspace
from ccpr.state.setting_entry import FilePart, Setting
from ccpr.state.setting_kinds import CopyPlace, DrillPlace, Url
from ccpr.state.settings import SETTINGS, TARGET_SETTINGS, Settings, TargetSettings
from ccpr.state.states import State
from ccpr.state.subscription import Subscription
from ccpr.state.tables import mo_ccpr_log
from ccpr.state.targets import Target
from ccpr.targets.address import address_of
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.mariadb import MariaDb
from tests.support.replica import command
from tests.support.setting_values import allowed
from tests.targets.target_database import Place, new_database

SECRETS = {"UP": "up-secret", "OTHER_UP": "other-secret", "DOWN": "down-secret", "TOKEN": "token-secret"}


@dataclass
class World:
    """An upstream with databases, a database as target, and a file about them."""

    storage: Storage
    port: int
    place: Place
    user: str
    folder: Path

    @property
    def file(self) -> dict[str, Any]:
        """A file that names something for each part."""
        target = f"mysql://{self.user}@{self.place.server.host}:{self.place.server.port}/{self.place.database}"
        return {
            "version": 1,
            "upstreams": {
                "main": {"uri": f"mysql://sys#dump@127.0.0.1:{self.port}", "password": "${UP}"},
                "again": {"uri": f"mysql://sys#root@127.0.0.1:{self.port}", "password": "${UP}"},
            },
            "mirrors": {"here": {}, "there": {"url": str(self.folder / "there")}},
            "policies": {"plain": {}, "often": {"interval": 2}},
            "objectives": {"fresh": {"max_lag": 100}, "fresher": {"max_lag": 50}},
            "subscriptions": {
                "shop": {
                    "upstream": "main",
                    "database": "d0",
                    "publication": "p0",
                    "policy": "plain",
                    "objective": "fresh",
                    "mirror": "here",
                    "targets": {"db": {"uri": target, "password": "${DOWN}"}},
                }
            },
            "spark": {"config": {"spark.executor.cores": 1}},
        }

    def apply(self, file: dict[str, Any], *options: str, code: int = 0) -> Any:
        path = self.folder / "ccpr.yaml"
        path.write_text(yaml.safe_dump(file, sort_keys=False))
        document = command("config", "apply", "-f", str(path), *options, code=code)
        assert not [secret for secret in SECRETS.values() if secret in json.dumps(document)]
        return document


@pytest.fixture(scope="module")
def servers(mariadb: MariaDb) -> Iterator[tuple[Storage, int, Place, str]]:
    storage = Storage()
    for number in range(3):
        storage.create_database(f"d{number}")
        storage.create_table(f"d{number}", "t", {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
        storage.create_publication(f"p{number}", f"d{number}")
    storage.create_publication("extra", "d0")
    with SimulatedUpstream(storage) as upstream, new_database(mariadb) as place:
        user = f"u_{place.database}"
        place.query(f"CREATE USER {user}@'%' IDENTIFIED BY '{SECRETS['DOWN']}'")
        place.query(f"GRANT ALL ON {quote_name(place.database)}.* TO {user}@'%'")
        yield storage, upstream.port, place, user
        place.query(f"DROP USER {user}@'%'")


@pytest.fixture
def setting(home: Path, servers: tuple[Storage, int, Place, str], monkeypatch: pytest.MonkeyPatch) -> World:
    """With a new state folder. The servers are those of all tests here."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KEY", new_key())
    return World(*servers, home)


def test_fifty_subscriptions_applied_twice_are_changed_once(setting: World) -> None:
    file = setting.file
    file["subscriptions"] = {}
    for number in range(50):
        name = f"s{number}"
        setting.storage.create_database(name)
        setting.storage.create_publication(name, name)
        file["subscriptions"][name] = {"upstream": "main", "database": name, "policy": "often", "retain": number}
    first = setting.apply(file)
    assert (len(first["done"]), first["failed"]) == (51, [])
    with Workspace() as workspace:
        before = {row.subscription_name: row for row in workspace.log.rows()}
    second = setting.apply(file)
    assert (second["plan"], second["done"], second["failed"], second["unchanged"]) == ([], [], [], 50)
    with Workspace() as workspace:
        assert {row.subscription_name: row for row in workspace.log.rows()} == before
    assert {json.loads(row.sync_config)["retain"] for row in before.values()} == set(range(50))


# ---- each key of the file


@dataclass(frozen=True)
class Seen:
    """What there is after `ccpr config apply`."""

    workspace: Workspace

    @property
    def subscription(self) -> Subscription:
        return Subscription.from_row(self.workspace.log.row("shop"))

    @property
    def settings(self) -> Settings:
        return self.subscription.settings

    @property
    def target(self) -> Target:
        return self.workspace.of("shop").targets.get("db")

    @property
    def password(self) -> str:
        return self.workspace.vault.open(self.subscription.sealed_password, self.subscription.endpoint)


@dataclass(frozen=True)
class Case:
    """A key with another value. `seen` is what the state shows then; `conflict`: it cannot be changed later, and only
    a new subscription has it."""

    value: Any
    seen: Callable[[Seen], Any]
    expected: Any
    conflict: bool = False


def _case(one: Setting) -> Case:
    """Another value than the default, for a setting of a subscription or of its target."""
    said, meant = next(pair for pair in allowed(one.kind, Path("/")) if pair[1] != one.default)
    if isinstance(one.kind, Url):
        said, meant = "/", "/" if isinstance(one.kind, DrillPlace) else "file:///"
    if isinstance(one.kind, CopyPlace):  # the mirror must not be in it
        said, meant = "/none", "file:///none"

    def seen(found: Seen) -> Any:
        return one.of(found.settings if one.name in SETTINGS else found.target.settings)

    return Case(said, seen, meant, conflict=not one.changeable)


PLACES: dict[FilePart, tuple[str, ...]] = {
    FilePart.POLICY: ("policies.plain", "subscriptions.shop"),
    FilePart.OBJECTIVE: ("objectives.fresh",),
    FilePart.MIRROR: ("mirrors.here",),
    FilePart.SUBSCRIPTION: ("subscriptions.shop",),
    FilePart.TARGET: ("subscriptions.shop.targets.db",),
}
OF_POLICIES = {one.key: _case(one) for one in SETTINGS.values() if one.part is FilePart.POLICY}
OF_SETTINGS = {
    f"{place}.{one.key}": _case(one)
    for one in (*SETTINGS.values(), *TARGET_SETTINGS.values())
    if one.name != "databases"
    for place in PLACES[one.part]
}
CASES: dict[str, Case] = {
    **OF_SETTINGS,
    "upstreams.main.uri": Case(
        "mysql://sys#root@127.0.0.1:{port}?ssl-mode=disabled",
        lambda seen: (seen.subscription.endpoint.user, seen.subscription.endpoint.tls.mode),
        ("root", "disabled"),
    ),
    "upstreams.main.password": Case("${OTHER_UP}", lambda seen: seen.password, "other-secret"),
    "mirrors.here.url": Case("{folder}/{{subscription}}", lambda seen: seen.settings.mirror.rpartition("/")[2], "shop"),
    "subscriptions.shop.upstream": Case("again", lambda seen: seen.subscription.endpoint.user, "root"),
    "subscriptions.shop.database": Case("d1", lambda seen: seen.subscription.database, "d1", conflict=True),
    "subscriptions.shop.table": Case("t", lambda seen: seen.subscription.table, "t", conflict=True),
    "subscriptions.shop.publication": Case("extra", lambda seen: seen.subscription.publication.name, "extra"),
    "subscriptions.shop.publisher": Case(
        "other", lambda seen: seen.subscription.publication.publisher, "other", conflict=True
    ),
    "subscriptions.shop.policy": Case("often", lambda seen: seen.settings.sync_interval, 2),
    "subscriptions.shop.objective": Case("fresher", lambda seen: seen.settings.max_lag, 50),
    "subscriptions.shop.mirror": Case("there", lambda seen: seen.settings.mirror.rpartition("/")[2], "there"),
    "subscriptions.shop.paused": Case(True, lambda seen: seen.workspace.log.row("shop").state, State.PAUSED),
    "subscriptions.shop.targets.db.uri": Case(
        "{target}?ssl-mode=disabled", lambda seen: address_of(seen.target).endpoint.tls.mode, "disabled"
    ),
    "spark.master": Case("local[3]", lambda seen: settings_of(seen.workspace.home).master, "local[3]"),
    "spark.remote": Case(
        "sc://far:15002/;token=${{TOKEN}}",
        lambda seen: settings_of(seen.workspace.home).remote,
        "sc://far:15002/;token=token-secret",
    ),
    "spark.config": Case(
        {"spark.executor.memory": "2g", "spark.ui.enabled": True},
        lambda seen: settings_of(seen.workspace.home).config,
        {"spark.executor.memory": "2g", "spark.ui.enabled": "true"},
    ),
}
# Keys with a test of their own below.
OTHERS = {
    "subscriptions.targets.password",
    "subscriptions.targets",
    # In test_several_databases.py.
    "subscriptions.databases",
    "subscriptions.targets.database",
    # In tests/relay/test_configuration_file.py.
    "subscriptions.followers",
    *(f"subscriptions.followers.{name}" for name in FollowerEntry.model_fields),
    # In test_lake_in_a_file.py.
    "subscriptions.lakes",
    *(f"subscriptions.lakes.{name}" for name in LakeTargetEntry.model_fields),
    "subscriptions",
    "version",
    "spark",
    # Sections that only name what subscriptions use; the cases change what is in them.
    "upstreams",
    "mirrors",
    "policies",
    "objectives",
}


def _place(key: str) -> str:
    """Without the names between the keys: `subscriptions.shop.targets.db.uri` is `subscriptions.targets.uri`."""
    words = key.split(".")
    return key if words[0] == "spark" else ".".join(words[::2] if len(words) % 2 else [*words[:-1:2], words[-1]])


def test_every_key_of_the_schema_has_a_case() -> None:
    keys = {".".join((*place, name)) for place, part in PARTS.items() for name in part.model_fields}
    assert {_place(key) for key in CASES} | OTHERS == keys


@pytest.mark.parametrize("key", CASES)
def test_a_changed_key_is_changed_once_and_nothing_else(key: str, setting: World) -> None:
    case = CASES[key]
    before = setting.file
    if ".targets." not in key:
        del before["subscriptions"]["shop"]["targets"]
    after = _with(before, key, _filled(case.value, setting))
    setting.apply(before)
    if case.conflict:
        error = setting.apply(after, code=2)["error"]
        assert error["code"] == "CONFIG_CONFLICT"
        assert key.rpartition(".")[2] in error["message"]
        assert setting.apply(before)["plan"] == []
        return
    (step,) = setting.apply(after)["done"]
    assert list(step["changes"]) or step["action"] == "pause subscription"
    with Workspace() as workspace:
        assert case.seen(Seen(workspace)) == case.expected
    assert setting.apply(after)["plan"] == []


def test_what_the_file_no_longer_says_has_its_default_again(setting: World) -> None:
    said = setting.file
    said["subscriptions"]["shop"] |= {key: case.value for key, case in OF_POLICIES.items() if not case.conflict}
    said["subscriptions"]["shop"]["targets"]["db"] |= {"ddl_policy": "full", "duplicate_keys": "last"}
    setting.apply(said)
    assert len(setting.apply(setting.file)["done"]) == 2
    with Workspace() as workspace:
        seen = Seen(workspace)
        assert seen.settings == Settings(max_lag=100)
        assert seen.target.settings == TargetSettings()
    assert setting.apply(setting.file)["plan"] == []


def _filled(value: Any, setting: World) -> Any:
    target = setting.file["subscriptions"]["shop"]["targets"]["db"]["uri"]
    if isinstance(value, str) and "{" in value and not value.startswith("${"):
        return value.format(port=setting.port, target=target, folder=setting.folder)
    return value


def _with(file: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(file)
    *above, last = key.split(".")
    part = changed
    for word in above:
        part = part[word]
    part[last] = value
    return changed


@pytest.mark.parametrize("key", [key for key, case in CASES.items() if case.conflict and "publisher" not in key])
def test_what_cannot_be_changed_later_is_made_so(key: str, setting: World) -> None:
    file = setting.file
    del file["subscriptions"]["shop"]["targets"]
    file["subscriptions"]["shop"]["publication"] = "p1" if key.endswith("database") else "p0"
    setting.apply(_with(file, key, CASES[key].value))
    with Workspace() as workspace:
        assert CASES[key].seen(Seen(workspace)) == CASES[key].expected


def test_a_target_keeps_more_columns_as_text_when_one_that_it_kept_is_gone_upstream(setting: World) -> None:
    storage, file = setting.storage, setting.file
    storage.create_database("wide")
    storage.create_table("wide", "t", {"n": "int not null", "a": "int", "b": "int"}, primary_key=["n"])
    storage.create_publication("wide", "wide")
    with storage.begin() as transaction:
        transaction.insert("wide", "t", {"n": [1], "a": [2], "b": [3]})
    shop = file["subscriptions"]["shop"] = {**file["subscriptions"]["shop"], "database": "wide", "publication": "wide"}
    shop["targets"]["db"] |= {"as_text": ["t.a"], "ddl_policy": "full"}
    setting.apply(file)
    command("run", "shop")
    storage.drop_column("wide", "t", "a")
    command("run", "shop")
    shop["targets"]["db"]["as_text"] = ["t.a", "t.b", "t.b"]
    (step,) = setting.apply(file)["done"]
    assert step["changes"] == {"as_text": ["t.a", "t.a, t.b"]}
    assert setting.apply(file)["plan"] == []
    command("target", "rebuild", "shop", "db", "t")
    assert setting.place.query("SELECT n, b FROM t") == [(1, "3")]
    command("target", "alter", "shop", "db", "--as-text", "t.c", code=2)
    setting.apply({"subscriptions": {}}, "--prune", "--yes")
    setting.place.query("DROP TABLE t")


def test_the_password_of_a_target_is_changed_where_it_was(setting: World, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.apply(setting.file)
    monkeypatch.setenv("DOWN", "turned-secret")
    failed = setting.apply(setting.file, code=1)
    assert [one["error"]["code"] for one in failed["failed"]] == ["TARGET_DENIED"]
    setting.place.query(f"ALTER USER {setting.user}@'%' IDENTIFIED BY 'turned-secret'")
    (step,) = setting.apply(setting.file)["done"]
    assert step["changes"] == {"password": ["***", "another"]}
    assert setting.apply(setting.file)["plan"] == []
    setting.place.query(f"ALTER USER {setting.user}@'%' IDENTIFIED BY '{SECRETS['DOWN']}'")


def test_what_is_not_in_the_file_stays_unless_it_is_pruned(setting: World) -> None:
    setting.apply(_with(setting.file, "subscriptions.more", {"upstream": "main", "database": "d1"}))
    less = setting.file
    less["subscriptions"]["shop"].pop("targets")
    less.pop("spark")
    shown = setting.apply(less)
    assert (shown["plan"], sorted(shown["unlisted"])) == ([], ["more", "shop.db", "spark"])
    planned = setting.apply(less, "--prune", "--dry-run")
    assert (len(planned["plan"]), planned["done"]) == (3, [])
    assert command("target", "list", "shop") != []
    setting.apply(less, "--prune", "--yes")
    assert command("target", "list", "shop") == []
    assert [one["name"] for one in command("subscriptions")] == ["shop"]
    with Workspace() as workspace:
        assert settings_of(workspace.home).config == {}
    assert setting.apply(less, "--prune", "--yes")["plan"] == []


def test_what_the_plan_drops_is_not_dropped_where_nobody_says_yes(setting: World) -> None:
    setting.apply(_with(setting.file, "subscriptions.more", {"upstream": "main", "database": "d1"}))
    less = _with(setting.file, "subscriptions.third", {"upstream": "main", "database": "d2"})
    refused = setting.apply(less, "--prune", code=NOT_CONFIRMED)["error"]
    assert (refused["code"], refused["subject"]) == ("NOT_CONFIRMED", "drop subscription more")
    assert [one["name"] for one in command("subscriptions")] == ["more", "shop"], "nothing else is done either"
    setting.apply(less, "--prune", "--yes")
    assert [one["name"] for one in command("subscriptions")] == ["shop", "third"]


@pytest.mark.parametrize("file", [{}, {"version": 1}, {"upstreams": {}}])
def test_a_file_without_subscriptions_drops_none_unless_it_says_so(setting: World, file: dict[str, Any]) -> None:
    setting.apply(setting.file)
    for options in (("--yes",), ("--dry-run",)):
        assert setting.apply(file, "--prune", *options, code=2)["error"]["code"] == "CONFIG_EMPTY"
    assert [one["name"] for one in command("subscriptions")] == ["shop"]
    assert setting.apply(file)["plan"] == []
    setting.apply({**file, "subscriptions": {}}, "--prune", "--yes")
    assert command("subscriptions") == []
    assert yaml.safe_load(command("config", "export")["text"])["subscriptions"] == {}


def test_a_pruned_subscriptions_tables_stay_in_its_target_as_ordinary_ones(setting: World) -> None:
    with setting.storage.begin() as transaction:
        transaction.insert("d0", "t", {"n": [1, 2], "v": ["a", "b"]})
    setting.apply(setting.file)
    command("run", "shop")
    setting.apply({"subscriptions": {}}, "--prune", "--yes")
    setting.place.query("INSERT INTO t (n, v) VALUES (3, 'c')")
    assert sorted(setting.place.query("SELECT n, v FROM t")) == [(1, "a"), (2, "b"), (3, "c")]
    assert command("subscriptions") == []


def test_an_overlap_has_to_be_allowed(setting: World) -> None:
    more = {"upstream": "main", "database": "d0", "table": "t", "publication": "extra"}
    failed = setting.apply(_with(setting.file, "subscriptions.more", more), code=1)
    assert [one["error"]["code"] for one in failed["failed"]] == ["SCOPE_OVERLAP"]
    assert len(failed["done"]) == 3
    allowed = _with(setting.file, "subscriptions.more", {**more, "allow_overlap": True})
    assert [one["subscription"] for one in setting.apply(allowed)["done"]] == ["more"]
    refused = setting.apply(_with(setting.file, "subscriptions.more", more), code=1)["failed"]
    assert [one["error"]["code"] for one in refused] == ["SCOPE_OVERLAP"], "as long as they have it in common"


def test_tables_that_two_shared_before_there_was_a_setting_for_it_stay_shared(setting: World) -> None:
    more = {"upstream": "main", "database": "d0", "publication": "extra", "allow_overlap": True}
    file = _with(setting.file, "subscriptions.more", more)
    setting.apply(file)
    with Workspace() as workspace:
        config = json.loads(workspace.log.row("more").sync_config)
        assert config.pop("allow_overlap") is True
        old = mo_ccpr_log.update().where(mo_ccpr_log.c.live_name == "more").values(sync_config=json.dumps(config))
        with workspace.log.engine.begin() as connection:
            connection.execute(old)
    command("alter", "more", "--interval", "7")
    exported = yaml.safe_load(command("config", "export")["text"])["subscriptions"]
    assert [one.get("allow_overlap") for one in exported.values()] == [True, True]
    file["subscriptions"]["more"]["policy"] = "often"
    (step,) = setting.apply(file)["done"]
    assert step["changes"] == {"interval": ["7", "2"], "allow_overlap": ["false", "true"]}
    assert setting.apply(file)["plan"] == []


def test_another_version_is_refused(setting: World) -> None:
    assert setting.apply({**setting.file, "version": 2}, code=2)["error"]["code"] == "CONFIG_INVALID"


def test_one_that_fails_does_not_hold_up_the_others(setting: World) -> None:
    file = setting.file
    file["subscriptions"] = {
        "away": {**file["subscriptions"]["shop"], "upstream": "away"},
        "more": {"upstream": "main", "database": "d1"},
    }
    file["upstreams"]["away"] = {"uri": "mysql://sys#dump@127.0.0.1:1", "password": "${UP}"}
    document = setting.apply(file, code=1)
    assert [one["error"] and one["error"]["code"] for one in document["failed"]] == ["UPSTREAM_UNREACHABLE", None]
    assert [one["subscription"] for one in document["done"]] == ["more", None]


def test_what_is_exported_is_what_is_there_and_has_no_password(setting: World, monkeypatch: pytest.MonkeyPatch) -> None:
    file = setting.file
    file["subscriptions"]["shop"] |= {key: case.value for key, case in OF_POLICIES.items()} | {"mirror": "there"}
    file["subscriptions"]["shop"]["targets"]["db"] |= {"as_text": ["t.v"], "ddl_policy": "manual"}
    file["subscriptions"]["more"] = {"upstream": "again", "database": "d1", "table": "t", "paused": True}
    file["subscriptions"]["same"] = {"upstream": "main", "database": "d0", "publication": "p0", "allow_overlap": True}
    file["spark"] = {"master": "local[1]", "config": {"spark.ssl.keyPassword": "${TOKEN}", "spark.x": "${{a}"}}
    file["spark"]["config"]["spark.x"] = "$${a}"
    setting.apply(file)
    path = setting.folder / "exported.yaml"
    exported = command("config", "export", "-f", str(path))
    assert path.stat().st_mode & 0o077 == 0
    assert not [secret for secret in SECRETS.values() if secret in path.read_text()]
    values = {"TARGET": SECRETS["DOWN"], "UPSTREAM": SECRETS["UP"], "SPARK": SECRETS["TOKEN"]}
    assert len(exported["variables"]) == 4
    for name in exported["variables"]:
        monkeypatch.setenv(name, values[name.partition("_")[0]])
    again = command("config", "apply", "-f", str(path), "--prune")
    assert (again["plan"], again["unchanged"]) == ([], 3)
    monkeypatch.setenv("CCPR_HOME", str(setting.folder / "other home"))
    setting.place.query("DROP TABLE IF EXISTS ccpr_targets")
    assert command("config", "apply", "-f", str(path), "--dry-run")["plan"] != []


# ---- what people see


def ccpr(*words: str, answers: str = "") -> Any:
    return CliRunner().invoke(app, words, input=answers, catch_exceptions=False)


def test_a_person_sees_the_plan_and_is_asked(setting: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccpr.cli.asking.is_interactive", lambda: True)
    path = setting.folder / "ccpr.yaml"
    file = setting.file
    file["upstreams"]["main"]["password"] = "in-the-clear"
    path.write_text(yaml.safe_dump(file))
    refused = ccpr("config", "apply", "-f", str(path), answers="n\n")
    assert refused.exit_code == NOT_CONFIRMED
    assert "create subscription shop: d0 from mysql://sys#dump:***@127.0.0.1" in refused.stdout
    assert "a password stands in the file (line " in refused.stderr
    assert "in-the-clear" not in refused.output
    assert command("subscriptions") == []
    done = ccpr("config", "apply", "-f", str(path), "--yes")
    assert done.exit_code == 0
    assert "done: add target db of shop" in done.stdout
    assert "nothing to do; 1 subscription as the file says" in ccpr("config", "apply", "-f", str(path)).stdout


def test_a_variable_that_is_missing_is_named(setting: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOWN")
    error = setting.apply(setting.file, code=2)["error"]
    assert error["code"] == "CONFIG_INVALID"
    assert "DOWN is not set" in error["message"]


def test_init_writes_a_file_that_apply_takes(setting: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = setting.folder / "first.yaml"
    source = f"mysql://sys#dump:env:UP@127.0.0.1:{setting.port}"
    target = setting.file["subscriptions"]["shop"]["targets"]["db"]["uri"].replace(setting.user, f"{setting.user}:x")
    written = command("config", "init", "--from", source, "--database", "d2", "--to", target, "-f", str(path))
    assert written["variables"] == ["UP", "TARGET_PASSWORD"]
    assert ":x@" not in path.read_text()
    assert command("config", "init", "--from", source, "--database", "d0", "-f", str(path), code=2)["error"][
        "code"
    ] == ("CONFIG_INVALID")
    monkeypatch.setenv("TARGET_PASSWORD", SECRETS["DOWN"])
    assert len(command("config", "apply", "-f", str(path))["done"]) == 2
    assert command("config", "init", "-f", str(path), code=2)["error"]["code"] == "USAGE"


def test_init_asks_a_person(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccpr.cli.config_command.is_interactive", lambda: True)
    monkeypatch.chdir(home)
    asked = ccpr("config", "init", answers="mysql://sys#dump@db.example.com\nshop db\n\n5m\n\n")
    assert asked.exit_code == 0, asked.output
    assert "export UPSTREAM_PASSWORD=…" in asked.stdout
    written = yaml.safe_load((home / "ccpr.yaml").read_text())
    assert written["subscriptions"] == {"shop_db": {"upstream": "main", "database": "shop db", "interval": "5m"}}
    assert (home / "ccpr.yaml").stat().st_mode & 0o077 == 0


def test_the_schema_for_editors_is_printed(home: Path) -> None:
    assert json.loads(ccpr("config", "export", "--schema").stdout)["title"] == "ccpr.yaml"
