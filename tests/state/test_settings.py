"""The entries of settings, what their kinds read, and how settings are stored."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.schema.choices import DdlPolicy, DuplicateKeys, MaxDrop
from ccpr.state.errors import BadSetting
from ccpr.state.setting_entry import FilePart, Setting
from ccpr.state.setting_kinds import Flag, SettingKind, Url, seconds_of
from ccpr.state.settings import SETTINGS, TARGET_SETTINGS, Settings, TargetSettings
from tests.support.setting_values import allowed, any_of, refused

ALL = [*SETTINGS.values(), *TARGET_SETTINGS.values()]
KINDS = {f"{type(one.kind).__name__} {one.kind.words}": one.kind for one in ALL}
EACH = pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
EACH_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@EACH
def test_an_entry_is_complete(one: Setting) -> None:
    assert one.help.endswith(".")
    assert one.kind.read(one.default) == one.default
    one.kind.check(one.default)
    assert bool(one.negative) == (isinstance(one.kind, Flag) and one.changeable)
    assert (one.part is FilePart.TARGET) == (one.name in TARGET_SETTINGS)


@pytest.mark.parametrize("settings", [SETTINGS, TARGET_SETTINGS], ids=["subscription", "target"])
def test_no_two_settings_have_one_option_or_key(settings: dict[str, Setting]) -> None:
    known = settings.values()
    options = [name for one in known for name in (one.option, one.negative) if name]
    assert len(set(options)) == len(options)
    assert len({(one.part, one.key) for one in known}) == len(known)


def test_each_field_has_an_entry_with_its_default() -> None:
    for declaring, known in ((Settings, SETTINGS), (TargetSettings, TARGET_SETTINGS)):
        assert {field.name: field.default for field in fields(declaring)} == {
            name: one.default for name, one in known.items()
        }


@EACH_KIND
def test_what_is_said_means_the_same_as_a_literal_an_option_and_read_again(
    kind: SettingKind[Any], tmp_path: Path
) -> None:
    for said, meant in allowed(kind, tmp_path):
        as_option = said if isinstance(said, bool | list) else str(said)
        for value in (kind.read(said), kind.parse(as_option), kind.read(kind.plain(meant)), kind.read(meant)):
            assert (value, type(value)) == (meant, type(meant))
        kind.check(meant)
        json.dumps(kind.plain(meant))


@EACH_KIND
def test_what_is_no_value_is_an_error_that_does_not_repeat_it(kind: SettingKind[Any]) -> None:
    if isinstance(kind, Url):
        return  # stores say which URLs there are
    for said in [*refused(kind), "s3cret,,", None, {"s3cret": 1}, ["s3cret"]]:
        with pytest.raises(ValueError, match=r"^not ") as raised:
            kind.check(kind.read(said))
        assert "s3cret" not in str(raised.value)


def test_an_error_names_the_setting_and_what_it_may_be() -> None:
    for name, said, text in (
        ("retain", "-1", "retain is '-1', not from 0 to 1,000,000,000"),
        ("flush", "never", "flush is 'never', not one of on_demand, wait"),
        ("retain_for", "2w", "retain_for is '2w', not a number of seconds, or one with s, m, h or d"),
        ("max_mb_s", "nan", "max_mb_s is 'nan', not a number"),
    ):
        with pytest.raises(BadSetting) as raised:
            SETTINGS[name].parse(said)
        assert (raised.value.message, raised.value.subject) == (text, name)


@given(st.fixed_dictionaries({name: any_of(one) for name, one in SETTINGS.items() if not isinstance(one.kind, Url)}))
def test_settings_are_read_as_they_were_stored(values: dict[str, Any]) -> None:
    settings = Settings(**values)
    assert Settings.from_text(settings.to_text()) == settings
    assert json.loads(settings.to_text()) == {**json.loads(Settings().to_text()), **values}


def test_settings_of_an_older_release_have_the_defaults_of_later_ones() -> None:
    assert Settings.from_text('{"retain": 3}') == Settings(retain=3)


COLUMN = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map("t.{}".format)
LIMITS = st.just(MaxDrop()) | st.builds(MaxDrop, st.integers(0, MaxDrop.MOST))


@given(
    st.builds(
        TargetSettings,
        st.sampled_from(DdlPolicy),
        st.lists(COLUMN).map(tuple),
        st.sampled_from(DuplicateKeys),
        LIMITS,
    )
)
def test_the_settings_of_a_target_are_read_as_their_columns_have_them(settings: TargetSettings) -> None:
    columns = settings.columns(TARGET_SETTINGS)
    assert {type(value) for value in columns.values()} <= {str, int, type(None)}
    assert TargetSettings.from_row(columns) == settings


def test_a_target_from_before_a_column_has_its_default() -> None:
    row = {"ddl_policy": "full", "as_text": "[]", "duplicate_keys": None, "max_drop": None}
    assert TargetSettings.from_row(row) == TargetSettings(DdlPolicy.FULL)


@given(st.integers(0, 10**11 - 1), st.sampled_from(["", "s", "m", "h", "d"]))
def test_a_time_is_seconds_or_a_number_with_its_unit(number: int, unit: str) -> None:
    assert seconds_of(f"{number}{unit}") == number * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[unit]
