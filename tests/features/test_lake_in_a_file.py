"""Lakes in `ccpr.yaml`: added, altered, exported and pruned."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccpr.config.model import LakeTargetEntry
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.lake_readers import read_delta_rs
from tests.support.replica import command, source_uri

ALL: dict[str, Any] = {
    "format": "delta,iceberg",
    "tables": "t*",
    "database": "d",
    "columns": "name",
    "copy_on_write": True,
    "change_data": True,
    "keep": 5,
    "keep_for": 3600,
    "iceberg_version": 3,
    "catalog": "http://127.0.0.1:1/iceberg?warehouse=shop",
}


@pytest.fixture
def port(home: Path) -> Iterator[int]:
    storage = Storage()
    storage.create_database("d")
    storage.create_table("d", "t", {"n": "int not null"}, primary_key=["n"])
    with storage.begin() as transaction:
        transaction.insert("d", "t", {"n": [1, 2, 3]})
    storage.create_publication("p", "d")
    with SimulatedUpstream(storage) as upstream:
        yield upstream.port


def file_with(port: int, **lakes: dict[str, Any]) -> dict[str, Any]:
    uri = source_uri(port).replace(":env:UPSTREAM_PASSWORD", "")
    shop = {"upstream": "main", "database": "d", "publication": "p", "lakes": lakes}
    return {
        "version": 1,
        "upstreams": {"main": {"uri": uri, "password": "${UPSTREAM_PASSWORD}"}},
        "subscriptions": {"shop": shop if lakes else {key: value for key, value in shop.items() if key != "lakes"}},
    }


def apply(home: Path, file: dict[str, Any], *options: str, code: int = 0) -> Any:
    path = home / "ccpr.yaml"
    path.write_text(yaml.safe_dump(file))
    return command("config", "apply", "-f", str(path), *options, code=code)


def verbs(document: Any) -> list[str]:
    return [action["action"] for action in document["plan"]]


def test_a_lake_of_a_file_is_added_once_and_published(home: Path, port: int) -> None:
    place = {"to": (home / "lake").as_uri()}
    assert "add lake" in verbs(apply(home, file_with(port, lake=place)))
    assert verbs(apply(home, file_with(port, lake=place))) == []
    command("run", "shop")
    ((found,),) = [status["tables"] for status in command("target", "status", "shop")]
    assert read_delta_rs(found["uri"], found["version"]).num_rows == 3


def test_every_key_of_a_lake_is_kept_and_exported(home: Path, port: int) -> None:
    assert set(ALL) | {"to"} == set(LakeTargetEntry.model_fields)
    said = {"to": (home / "lake").as_uri(), **ALL}
    apply(home, file_with(port, lake=said))
    (listed,) = command("target", "list", "shop")
    shown = {**listed, "database": listed["source_database"]}
    assert {key: shown[key] for key in ALL} == ALL
    command("config", "export", "-f", str(home / "exported.yaml"))
    exported = yaml.safe_load((home / "exported.yaml").read_text())
    assert exported["subscriptions"]["shop"]["lakes"] == {"lake": said}


def test_what_is_kept_can_be_changed_and_nothing_else(home: Path, port: int) -> None:
    place = {"to": (home / "lake").as_uri()}
    apply(home, file_with(port, lake=place))
    assert verbs(apply(home, file_with(port, lake={**place, "keep": 7}))) == ["alter lake"]
    assert command("target", "list", "shop")[0]["keep"] == 7
    assert command("target", "alter", "shop", "lake")["keep"] is None
    both = {**place, "format": "delta,iceberg", "iceberg_version": 3}
    assert verbs(apply(home, file_with(port, lake=both))) == ["alter lake"]
    assert command("target", "list", "shop")[0]["iceberg_version"] == 3
    assert verbs(apply(home, file_with(port, lake={**both, "format": "iceberg"}))) == ["alter lake"]
    refused = apply(home, file_with(port, lake={**both, "iceberg_version": 2}), code=2)
    assert refused["error"]["code"] == "CONFIG_CONFLICT"
    refused = command("target", "alter", "shop", "lake", "--iceberg-version", "2", code=2)
    assert refused["error"]["code"] == "BAD_SETTING"
    assert command("target", "alter", "shop", "lake", "--keep", "4")["format"] == "iceberg"
    back = command("target", "alter", "shop", "lake", "--format", "delta")
    assert (back["format"], back["iceberg_version"], back["keep"]) == ("delta", 2, 4)
    assert command("target", "alter", "shop", "lake")["keep"] is None
    for change in ({"to": (home / "other").as_uri()}, {"columns": "name"}, {"tables": "x"}, {"copy_on_write": True}):
        refused = apply(home, file_with(port, lake={**place, **change}), code=2)
        assert refused["error"]["code"] == "CONFIG_CONFLICT", change


def test_a_lake_that_is_not_in_the_file_stays_unless_it_is_pruned(home: Path, port: int) -> None:
    apply(home, file_with(port, lake={"to": (home / "lake").as_uri()}))
    command("run", "shop")
    assert verbs(apply(home, file_with(port))) == []
    assert verbs(apply(home, file_with(port), "--prune", "--yes")) == ["remove lake"]
    assert command("target", "list", "shop") == []
    assert read_delta_rs(str(home / "lake" / "d.t"), 0).num_rows == 3, "its tables stay"
