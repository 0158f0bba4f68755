"""A configuration file is read as hostile input: what is wrong is an error with its line, and no value is in it."""

import math
from pathlib import Path
from typing import Any

import pytest

from ccpr.config.document import MOST_BYTES, read_document, written
from ccpr.config.errors import ConfigInvalid
from ccpr.config.model import PARTS, schema
from ccpr.config.wanted import WantedConfig, read_file, read_text
from ccpr.matrixone.client.endpoint import EVERYTHING
from ccpr.state.setting_kinds import Flag, Number, SettingKind, Span, Whole
from ccpr.state.settings import SETTINGS, Settings
from tests.support.setting_values import OWN_PARTS

ENVIRONMENT = {"PW": "se${cret}@:/", "PORT": "6002"}
FILE = """\
upstreams:
  main:
    uri: mysql://sys#root@h:${PORT}
    password: ${PW}
  commands: {uri: 'mysql://sys#root:env:PW@h:6001'}
policies:
  often: {interval: 10, retain_for: 7d, retain: 2}
objectives: {fresh: {max_lag: 2m}}
mirrors: {bucket: {url: '/mirrors/{subscription}', shared: true}}
subscriptions:
  shop:
    upstream: main
    database: shop
    policy: often
    retain: 5
    objective: fresh
    mirror: bucket
    targets: {db: {uri: 'mysql://a:pl$${ain}@h/d', as_text: [t.c]}}
spark: {master: 'local[2]', config: {spark.ui.enabled: true, spark.executor.cores: 2}}
"""


def read(text: str) -> WantedConfig:
    return read_text(text.encode(), "ccpr.yaml", ENVIRONMENT)


def refused(text: str | bytes) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as raised:
        read_text(text if isinstance(text, bytes) else text.encode(), "ccpr.yaml", ENVIRONMENT)
    return raised.value


def test_names_are_what_they_name_and_a_subscriptions_own_setting_wins() -> None:
    wanted = read(FILE)
    (shop,) = wanted.subscriptions
    assert (shop.endpoint.port, shop.password, shop.table, shop.paused) == (6002, "se${cret}@:/", None, None)
    assert shop.settings == Settings(
        sync_interval=10, retain=5, retain_for=7 * 86400, mirror="/mirrors/shop", shared=True, max_lag=120
    )
    (target,) = shop.targets
    assert (target.address.database, target.password, target.settings.as_text) == ("d", "pl${ain}", ("t.c",))
    assert wanted.spark is not None
    assert (wanted.spark.master, dict(wanted.spark.config)) == (
        "local[2]",
        {"spark.ui.enabled": "true", "spark.executor.cores": "2"},
    )
    assert wanted.plain == (18,)
    assert "cret" not in repr(wanted)


def test_several_databases_are_patterns() -> None:
    (one,) = read(FILE.replace("database: shop", "databases: 'shop_*,crm'")).subscriptions
    assert (one.database, one.settings.databases) == (EVERYTHING, "shop_*,crm")


def test_a_password_may_be_named_as_commands_name_it() -> None:
    wanted = read(FILE.replace("upstream: main", "upstream: commands"))
    assert wanted.subscriptions[0].password == ENVIRONMENT["PW"]


@pytest.mark.parametrize(
    ("before", "after", "line", "says"),
    [
        ("database: shop", "databse: shop", 13, "there is no such key; did you mean database"),
        ("database: shop", "database: 12", 13, "put it in quotes"),
        ("    database: shop\n", "", 11, "it has neither `database` nor `databases`"),
        ("database: shop", "database: shop\n    databases: shop", 11, "it has both `database` and `databases`"),
        ("database: shop", "databases: ''", 13, "it is empty; '*' is for all databases"),
        ("upstream: main", "upstream: mian", 12, "`upstreams` has no 'mian'; did you mean main?"),
        ("policy: often", "policy: offen", 14, "`policies` has no 'offen'; did you mean often?"),
        ("objective: fresh", "objective: flesh", 16, "`objectives` has no"),
        ("mirror: bucket", "mirror: buckets", 17, "`mirrors` has no"),
        ("retain: 5", "retain: -5", 15, "not from 0 to 1,000,000,000"),
        ("retain: 5", "retain: true", 15, "not a whole number"),
        ("retain: 5", "retain: 5\n    retain: 6", 16, "the key 'retain' is there twice"),
        ("retain: 5", "max_mb_s: .nan", 15, "not a number"),
        ("retain: 5", f"retain: {'9' * 9999}", 15, "not one that YAML can have"),
        ("retain: 5", "interval: 7w", 15, "a number of seconds"),
        ("retain: 5", "interval: 0s", 15, "not from 1 to 1,000,000,000"),
        ("retain: 5", "flush: never", 15, "not one of on_demand, wait"),
        ("retain: 5", "retain: *often", 15, "aliases"),
        ("retain: 5", "retain: !!python/object:os.system 5", 15, "tags"),
        ("retain: 5", "1: 5", 15, "a key must be text"),
        ("retain: 5", "retain: [", 17, "expected"),
        ("${PW}", "${PASSWORD}", 4, "PASSWORD is not set"),
        ("${PW}", "${PW", 4, "not followed by a name"),
        ("    password: ${PW}\n", "", 2, "there is no password"),
        ("sys#root@h", "sys#root:x@h", 2, "two passwords"),
        ("uri: mysql://sys#root@", "uri: http://sys#root@", 3, "mysql://"),
        ("mysql://a:pl$${ain}@h/d", "mysql://a:pl$${ain}@h", 18, "mysql://user:password@host:port/database"),
        ("  shop:\n", "  'sh op':\n", 11, "not a name for this place"),
        ("spark: {master", "spark: {remote: 'sc://h', master", 19, "Spark runs in one"),
        ("spark: {", "followers: {", 19, "there is no such key"),
    ],
)
def test_what_is_wrong_has_its_line_and_no_value(before: str, after: str, line: int, says: str) -> None:
    assert before in FILE
    error = refused(FILE.replace(before, after, 1))
    assert f"line {line}:" in error.message
    assert says in error.message
    assert error.subject.startswith("ccpr.yaml, line ")
    assert "cret" not in str(error)
    assert "pl${" not in str(error)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"x" * (MOST_BYTES + 1), "the most"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"a: \x01", "characters"),
        (b"[1, 2]", "keys are expected"),
        (b"just text", "keys are expected"),
        (b"a: 1\n---\nb: 2\n", "one document"),
        (b"[" * 100_000, "nested too deeply"),
        (b"a:\n" + b"".join(b" " * depth + b"a:\n" for depth in range(1, 30)), "nested too deeply"),
        (b"a: &a [x, x]\nb: &b [*a, *a]\n", "aliases"),
        (b"? [a, b]\n: 1\n", "a key must be text"),
        (b"<<: {a: 1}\n", "there is no such key"),
        (b'password: "se', ""),
    ],
)
def test_files_that_are_not_one_are_refused_and_nothing_grows(content: bytes, says: str) -> None:
    assert says in refused(content).message


NUMBERS = {"010": 10, "08": 8, "0o10": 8, "0x1F": 31, "+7": 7}
TEXTS = ("1:30", "1_000", "0b11", "yes", "No", "on", "off", "y", "2026-11-27", "2026-11-27 10:00:00", "<<", "=", "0X1f")


def test_scalars_are_those_of_yaml_1_2() -> None:
    numbers = {**NUMBERS, "1e3": 1000.0, ".5": 0.5, "-.INF": -math.inf, "!!int '010'": 10, "!!float 1": 1.0}
    others = {"~": None, "": None, "Null": None, "True": True, "FALSE": False, "'010'": "010", "!!str 010": "010"}
    for text, meant in (numbers | others | {text: text for text in TEXTS}).items():
        found = read_document(f"a: {text}".encode(), "x").value["a"]
        assert (found, type(found)) == (meant, type(meant)), text
    for text in ("!!int 1:30", "!!bool yes", "!!null x", "!!float 1_0", "!!int 1.5"):
        with pytest.raises(ConfigInvalid):
            read_document(f"a: {text}".encode(), "x")
    assert read_document(b"no: 1\non: 2\n2026-11-27: 3", "x").value == {"no": 1, "on": 2, "2026-11-27": 3}


@pytest.mark.parametrize("kind", [Whole, Span, Number, Flag])
def test_each_setting_takes_such_numbers_as_they_are_and_refuses_such_texts(kind: type[SettingKind[Any]]) -> None:
    chosen = [one for one in SETTINGS.values() if type(one.kind) is kind and one.part in OWN_PARTS]
    assert chosen
    for one in chosen:
        for text, meant in NUMBERS.items() if kind is not Flag else ():
            if one.kind.least <= meant <= one.kind.most:  # type: ignore[attr-defined]
                (shop,) = read(FILE.replace("retain: 5", f"{one.key}: {text}")).subscriptions
                assert getattr(shop.settings, one.name) == meant, (one.key, text)
        for text in TEXTS:
            error = refused(FILE.replace("retain: 5", f"{one.key}: {text}"))
            assert "line 15" in error.message, (one.key, text)
            assert error.remedy


def test_what_is_written_is_read_as_it_was() -> None:
    texts = [*TEXTS, *NUMBERS, "1e3", "1e5", ".inf", "null", "~", "", "true", "a: b", "- x", "é", "a\nb", "'", '"']
    value = {text or "empty": text for text in texts} | {"numbers": [10, -1, 1.5, 1e22, True, None, math.inf]}
    assert read_document(written(value).encode(), "x").value == value


def test_a_file_without_a_word_wants_nothing() -> None:
    for text in ("", "# nothing\n", "{}"):
        assert read(text).subscriptions == ()


def test_all_problems_are_said_at_once_but_no_more_than_ten() -> None:
    many = "subscriptions:\n" + "".join(f"  s{number}: {{upstream: u, database: d}}\n" for number in range(30))
    text = refused(many).message
    assert text.count("has no 'u'") == 10
    assert "and 20 more" in text


def test_a_file_that_cannot_be_read_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="No such file"):
        read_file(tmp_path / "missing.yaml")
    with pytest.raises(ConfigInvalid, match="Is a directory"):
        read_file(tmp_path)
    (tmp_path / "huge.yaml").write_bytes(b"# " * MOST_BYTES)
    with pytest.raises(ConfigInvalid, match="the most"):
        read_file(tmp_path / "huge.yaml")


def test_lines_are_those_of_keys_and_items() -> None:
    document = read_document(b"a:\n  b:\n    - x\n    - y\n", "f")
    assert [document.line_of(path) for path in (("a",), ("a", "b"), ("a", "b", 1), ("a", "c"))] == [1, 2, 4, 1]


def test_the_schema_has_every_key_with_a_sentence() -> None:
    found = schema()
    known = {"ConfigFile": found, **found["$defs"]}
    assert set(known) == {part.__name__ for part in PARTS.values()}
    for part in PARTS.values():
        properties = known[part.__name__]["properties"]
        assert set(properties) == set(part.model_fields)
        assert all(one["description"].endswith((".", "…")) for one in properties.values()), part
        assert known[part.__name__]["additionalProperties"] is False
