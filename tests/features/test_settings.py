"""Each setting of a subscription by each way in: an option, `alter`, a statement, a file, and its reference pages.
Which settings there are, and what they may be, the tests take from the entries themselves."""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ccpr.cli.main import Commands
from ccpr.service.workspace import Workspace
from ccpr.state.setting_entry import Setting
from ccpr.state.setting_kinds import Flag, Url
from ccpr.state.settings import SETTINGS, Settings
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.docs.pages import DOCS
from tests.support.replica import command, source_uri
from tests.support.setting_values import allowed, any_of, as_file, as_literal, as_options, refused

NAME, KEY = "s", "ab" * 32


def name_of(one: Setting) -> str:
    return one.name


DEFAULTS = json.loads(Settings().to_text())
CHANGEABLE = [one for one in SETTINGS.values() if one.changeable]
ONE = pytest.mark.parametrize("one", SETTINGS.values(), ids=SETTINGS)


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    """Of an upstream whose databases `p` publishes."""
    storage = Storage()
    for database in ("d", "e"):
        storage.create_database(database)
        storage.create_table(database, "t", {"n": "int not null"}, primary_key=["n"])
    storage.create_publication("p", "*")
    with SimulatedUpstream(storage, password="111") as upstream:
        upstream.upgrade("4.2")  # logical mode needs it
        yield source_uri(upstream.port)


@contextmanager
def new_home() -> Iterator[Path]:
    """A new state folder, and a folder beside it."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CCPR_HOME", f"{folder}/home")
        patch.setenv("UPSTREAM_PASSWORD", "111")
        patch.setenv("KEY", KEY)
        patch.setenv("CCPR_KEY_COMMAND", f"echo {KEY}")
        Path(folder, "key").write_text(KEY)
        yield Path(folder)


def database_of(one: Setting) -> str:
    """What a subscription is to that can have the setting."""
    return "*" if one.needs is not None and "database" not in one.needs.levels else "d"


def stored() -> dict[str, Any]:
    with Workspace() as workspace:
        return json.loads(workspace.log.row(NAME).sync_config)


# ---- the ways: how a subscription is made with a value, and how one that is there gets another


def subscribe(uri: str, one: Setting, said: Any, code: int = 0) -> Any:
    scope = [] if one.at_creation else ["--database", database_of(one)]
    words = ["--from", uri, *scope, "--publication", "p", "--publisher", "sys", *as_options(one, said)]
    return command("subscribe", NAME, *words, code=code)


def alter(uri: str, one: Setting, said: Any, code: int = 0) -> Any:
    return command("alter", NAME, *as_options(one, said, later=True), code=code)


def _create(uri: str, one: Setting, rest: str, code: int) -> Any:
    scope = "ACCOUNT" if database_of(one) == "*" else "DATABASE d"
    return command("sql", f"CREATE SUBSCRIPTION {NAME} {scope} FROM '{uri}' PUBLICATION p OF sys {rest}", code=code)


def create_with(uri: str, one: Setting, said: Any, code: int = 0) -> Any:
    return _create(uri, one, f"WITH ({one.name.upper()} = {as_literal(said)})", code)


def create_by_clause(uri: str, one: Setting, said: Any, code: int = 0) -> Any:
    return _create(uri, one, f"{one.name.upper()} {as_literal(said)}", code)


def set_by_statement(uri: str, one: Setting, said: Any, code: int = 0) -> Any:
    return command("sql", f"ALTER SUBSCRIPTION {NAME} SET ({one.name} {as_literal(said)})", code=code)


def base_file(uri: str) -> dict[str, Any]:
    entry = {"upstream": "main", "database": "d", "publication": "p", "publisher": "sys"}
    return {"upstreams": {"main": {"uri": uri}}, "subscriptions": {NAME: entry}}


def apply(file: dict[str, Any], code: int = 0) -> Any:
    path = Path(os.environ["CCPR_HOME"]).parent / "ccpr.yaml"
    path.write_text(yaml.safe_dump(file, allow_unicode=True))
    return command("config", "apply", "-f", str(path), code=code)


def apply_file(uri: str, one: Setting, said: Any, code: int = 0) -> Any:
    return apply(as_file({one.name: said}, base_file(uri), NAME), code)


def apply_exported(uri: str) -> Any:
    exported = yaml.safe_load(command("config", "export")["text"])
    return apply({**exported, "upstreams": {name: {"uri": uri} for name in exported["upstreams"]}})


Way = Callable[..., Any]
CODES = {
    subscribe: {"BAD_SETTING", "BAD_NAME"},
    alter: {"BAD_SETTING", "BAD_NAME"},
    create_with: {"BAD_SETTING", "BAD_NAME", "SQL_SYNTAX"},
    create_by_clause: {"BAD_SETTING", "SQL_SYNTAX"},
    set_by_statement: {"BAD_SETTING", "BAD_NAME", "SQL_SYNTAX"},
    apply_file: {"CONFIG_INVALID", "CONFIG_CONFLICT"},
}
LATER: tuple[Way, ...] = (alter, set_by_statement, apply_file)


def first_ways(one: Setting) -> tuple[Way, ...]:
    return (subscribe, create_with, apply_file, *((create_by_clause,) if one.clause else ()))


# ---- each setting


@ONE
def test_each_way_to_create_one_stores_what_is_said_and_it_is_exported_so(one: Setting, uri: str) -> None:
    for way in first_ways(one):
        with new_home() as folder:
            (folder / "elsewhere").mkdir()
            said, meant = next(pair for pair in allowed(one.kind, folder) if pair[1] != one.default)
            way(uri, one, said)
            assert stored() == {**DEFAULTS, one.name: one.kind.plain(meant)}, way.__name__
            assert apply_exported(uri)["plan"] == [], way.__name__


@pytest.mark.parametrize("one", CHANGEABLE, ids=name_of)
def test_each_way_to_change_one_stores_what_is_said_and_it_is_exported_so(one: Setting, uri: str) -> None:
    with new_home() as folder:
        (folder / "elsewhere").mkdir()
        subscribe(uri, one, one.default)
        for way in LATER:
            for said, meant in [*allowed(one.kind, folder), (one.kind.plain(one.default), one.default)]:
                way(uri, one, said)
                assert stored() == {**DEFAULTS, one.name: one.kind.plain(meant)}, (way.__name__, said)
                assert apply_exported(uri)["plan"] == [], (way.__name__, said)


@ONE
def test_each_way_in_refuses_what_it_cannot_be_and_changes_nothing(one: Setting, uri: str) -> None:
    with new_home():
        for way in first_ways(one):
            _assert_refused(way, one, uri)
        assert command("subscriptions") == []
        subscribe(uri, one, one.default)
        for way in LATER if one.changeable else ():
            _assert_refused(way, one, uri)
        assert stored() == DEFAULTS


def _assert_refused(way: Way, one: Setting, uri: str) -> None:
    if isinstance(one.kind, Flag) and way in (subscribe, alter):
        return  # it has no value there
    for said in refused(one.kind):
        error = way(uri, one, said, code=2)["error"]
        assert error["code"] in CODES[way], (way.__name__, said, error)
        if error["code"] == "BAD_SETTING":
            assert error["subject"] == one.name
        if way is apply_file and not isinstance(one.kind, Url):
            assert f".{one.key}: not " in error["message"], "with its place, and without the value"


@pytest.mark.parametrize("one", [one for one in SETTINGS.values() if not one.changeable], ids=name_of)
def test_what_cannot_be_changed_later_is_refused_by_each_way_that_could(one: Setting, uri: str) -> None:
    other = next(meant for _, meant in allowed(one.kind, Path()) if meant != one.default)
    with new_home():
        subscribe(uri, one, one.default)
        for way, code in ((alter, "USAGE"), (set_by_statement, "BAD_SETTING"), (apply_file, "CONFIG_CONFLICT")):
            assert way(uri, one, other, code=2)["error"]["code"] == code
        assert stored() == DEFAULTS


@pytest.mark.parametrize("one", [one for one in SETTINGS.values() if one.needs], ids=name_of)
def test_what_a_subscription_cannot_have_is_refused_by_each_way(one: Setting, uri: str) -> None:
    assert one.needs is not None
    of_table = "database" in one.needs.levels
    scope, table = ["--database", "d"], ["--table", "t"] if of_table else []
    words = ["subscribe", NAME, "--from", uri, *scope, *table, "--publication", "p", "--publisher", "sys"]
    statement = f"DATABASE d {'TABLE t ' if of_table else ''}FROM '{uri}' PUBLICATION p OF sys"
    with new_home():
        if not one.at_creation:
            error = command(*words, *as_options(one, "d*"), code=2)["error"]
            assert (error["code"], error["message"]) == ("BAD_SETTING", one.needs.otherwise)
        sql = f"CREATE SUBSCRIPTION {NAME} {statement} WITH ({one.name} = 'd*')"
        assert command("sql", sql, code=2)["error"]["message"] == one.needs.otherwise
        if of_table:
            file = as_file({one.name: "d*"}, base_file(uri), NAME)
            file["subscriptions"][NAME]["table"] = "t"
            assert one.needs.otherwise in apply(file, code=2)["error"]["message"]
        command(*words)
        for words in (
            ("alter", NAME, *as_options(one, "d*", later=True)),
            ("sql", f"ALTER SUBSCRIPTION s SET ({one.name} 'd*')"),
        ):
            assert command(*words, code=2)["error"]["message"] == one.needs.otherwise
        assert stored() == DEFAULTS


@ONE
def test_each_setting_stands_on_each_reference_page(one: Setting) -> None:
    texts = {
        name: (DOCS / "reference" / name).read_text("utf-8") for name in ("configuration.md", "sql.md", "ccpr-yaml.md")
    }
    (row,) = re.findall(rf"^\* `{one.name}`: .*$", texts["configuration.md"], re.M)
    assert f"`{one.at_creation or one.option}`" in row
    assert one.help in row
    assert "](configuration.md#settings-of-a-subscription)" in texts["sql.md"], "by the names there"
    part = texts["ccpr-yaml.md"].split(f"\n## {one.part}.NAME\n")[1].split("\n## ")[0]
    assert len(re.findall(rf"(?:^\* |: |, )`{one.key}`(?::|,|\.$)", part, re.M)) == 1
    options = {
        name: {word for each in _params(name) for word in (*each.opts, *each.secondary_opts)}
        for name in ("subscribe", "alter")
    }
    assert (one.at_creation or one.option) in options["subscribe"]
    assert (one.option in options["alter"]) == one.changeable
    assert (one.negative in options["alter"]) == (isinstance(one.kind, Flag) and one.changeable)
    assert one.negative not in options["subscribe"]


def _params(name: str) -> Any:
    return Commands.deferred[name].load(name).params


# ---- all at once

FREE = {name: any_of(one) for name, one in SETTINGS.items() if not isinstance(one.kind, Url) and name != "databases"}
FOLDERS = st.text("ab ${}%é~#", min_size=1, max_size=6).filter(lambda name: name.strip() == name)


@pytest.mark.in_turn
@settings(max_examples=40)
@example(values={"tables": "${HOME}", "exclude_tables": "$${"}, mirror="{subscription}", storage="${a}")
@given(values=st.fixed_dictionaries({}, optional=FREE), mirror=st.none() | FOLDERS, storage=st.none() | FOLDERS)
def test_what_is_chosen_is_stored_exported_and_applied_as_the_same(
    values: dict[str, Any], mirror: str | None, storage: str | None, uri: str
) -> None:
    """By options, by a statement and by a file; and the exported file makes the same anew."""
    assume((values.get("mode"), values.get("with_indexes")) != ("logical", True))  # that is refused
    with tempfile.TemporaryDirectory() as place:
        for key, name in (("mirror", mirror), ("objects_from", storage)):
            if name is not None:
                (Path(place) / key / name).mkdir(parents=True)
                values = {**values, key: (Path(place) / key / name).as_uri()}
        said = {name: SETTINGS[name].kind.plain(value) for name, value in values.items()}
        expected = json.loads(Settings(**values).to_text())
        scope = ["--database", "d", "--publication", "p", "--publisher", "sys"]
        with new_home() as folder:
            options = [word for name, value in said.items() for word in as_options(SETTINGS[name], value)]
            command("subscribe", NAME, "--from", uri, *scope, *options)
            assert stored() == expected
            assert apply_exported(uri)["plan"] == []
            exported = yaml.safe_load((folder / "ccpr.yaml").read_text())
        with new_home():
            apply(exported)
            assert stored() == expected
        with new_home():
            chosen = ", ".join(f"{name} = {as_literal(value)}" for name, value in said.items())
            command(
                "sql",
                f"CREATE SUBSCRIPTION {NAME} DATABASE d FROM '{uri}' PUBLICATION p OF sys"
                + (f" WITH ({chosen})" if chosen else ""),
            )
            assert stored() == expected
        with new_home():
            apply(as_file(said, base_file(uri), NAME))
            assert stored() == expected
            fixed = {name: value for name, value in said.items() if not SETTINGS[name].changeable}
            apply(as_file(fixed, base_file(uri), NAME))
            assert stored() == {**DEFAULTS, **fixed}, "what is not said has its default"
