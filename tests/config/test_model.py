"""The keys of a file that are settings come from their entries: those of targets, too."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccpr.config.errors import ConfigInvalid
from ccpr.config.model import PARTS, schema
from ccpr.config.wanted import read_text
from ccpr.state.setting_entry import Setting
from ccpr.state.settings import SETTINGS, TARGET_SETTINGS, TargetSettings
from tests.support.setting_values import allowed, refused


def read_target(**said: Any) -> TargetSettings:
    """A file is YAML, and so JSON."""
    target = {"uri": "mysql://a:b@h/d", **said}
    entry = {"upstream": "main", "database": "d", "targets": {"db": target}}
    file = {"upstreams": {"main": {"uri": "mysql://sys#a:b@h:1"}}, "subscriptions": {"s": entry}}
    (subscription,) = read_text(json.dumps(file).encode(), "ccpr.yaml", {}).subscriptions
    return subscription.targets[0].settings


@pytest.mark.parametrize("one", TARGET_SETTINGS.values(), ids=TARGET_SETTINGS)
def test_a_setting_of_a_target_is_read_or_refused_with_its_place(one: Setting) -> None:
    for said, meant in allowed(one.kind, Path()):
        assert read_target(**{one.key: said}) == TargetSettings(**{one.name: meant})
    for said in refused(one.kind):
        with pytest.raises(ConfigInvalid, match=rf"subscriptions\.s\.targets\.db\.{one.key}: not "):
            read_target(**{one.key: said})


def _alternatives(described: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for one in described.get("anyOf", [described]):
        if "anyOf" in one:
            yield from _alternatives(one)
        elif one != {"type": "null"}:
            yield {key: value for key, value in one.items() if key not in ("title", "description", "default")}


def test_each_setting_is_a_key_of_one_part_with_its_schema_and_its_sentence() -> None:
    found = schema()["$defs"]
    for one in (*SETTINGS.values(), *TARGET_SETTINGS.values()):
        parts = [part for place, part in PARTS.items() if place and place[-1] == one.part]
        (model,) = parts
        assert one in model.settings
        described = found[model.__name__]["properties"][one.key]
        assert described["description"] == one.sentence_in_file
        assert list(_alternatives(described)) == list(_alternatives(one.kind.schema))
        assert (one.key in found[model.__name__].get("required", ())) == one.required


def test_a_model_says_only_what_a_file_names() -> None:
    assert read_target() == TargetSettings()
    assert read_target(ddl_policy=None) == TargetSettings()
