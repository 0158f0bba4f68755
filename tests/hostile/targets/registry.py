"""Rows of the program's own tables in a target, damaged or forged: `ccpr_registry`, `ccpr_loads`, `ccpr_intents`."""

import json
import random
from typing import Any

from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.errors import CcprError
from ccpr.schema.alterations import drop_table, shadow_name, show_loaded
from ccpr.schema.choices import Dialect
from ccpr.schema.sync_mark import release
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import TableState, TargetTable
from ccpr.targets.expected_tables import ExpectedTables, named, target_of
from ccpr.targets.intent_statements import RederivedIntent, change_statements
from ccpr.targets.intents import ChangeOf, Intent, all_names, intent_row
from ccpr.targets.ownership import name_of
from ccpr.targets.registry import load_row, registry_row, table_json
from tests.hostile.mutate import mutated, mutated_json
from tests.targets.target_database import source_table

_DIALECT = Dialect.MARIADB
_PLACE = ("d", _DIALECT, "task")
_FIRST = (
    "CREATE TABLE `t` (`id` bigint NOT NULL AUTO_INCREMENT, `v` varchar(20) DEFAULT 'x', "
    "`g` int GENERATED ALWAYS AS (`id` * 2) STORED, PRIMARY KEY (`id`), UNIQUE KEY `u` (`v`))"
)
_LATER = _FIRST.replace("DEFAULT 'x',", "DEFAULT 'x', `w` int DEFAULT NULL,")
_TEXTS = (
    "DROP TABLE evil",
    "evil",
    "'), evil('",
    "CREATE TABLE `d`.`t` (`evil` int)",
    "CREATE TABLE `d`.`t` (`id` bigint DEFAULT (evil()))",
    "ENGINE=evil",
)
_AT = Location(3, 30)


def _row(table: TargetTable) -> dict[str, Any]:
    value = table_json(table)
    return {
        "table_id": table.id,
        "table_schema": table.database,
        "table_name": table.name,
        "state": "live",
        "create_text": table.create,
        **{key: json.dumps(value[key]) for key in ("source", "erased", "suspended")},
    }


class RegistryRows:
    """An input: JSON of the rows of the three tables. A statement that is accepted is one of those that our own data
    gives for a change of these tables."""

    name = "registry"
    decoded_bytes = 0

    def __init__(self) -> None:
        first, later, other = source_table(_FIRST), source_table(_LATER), source_table(_FIRST, 2)
        self._own = ExpectedTables(lambda: (first, later, other))
        one, two, new = (target_of(source, _DIALECT, "d") for source in (first, later, other))
        made = release(one.create, one.stripped or {}, one.disabled or {}, _DIALECT)
        shadow, old = shadow_name("load", "task", 2), shadow_name("old", "task", 1)
        gone = named(one, "ccpr_gone_1")
        shown = show_loaded(parse_create_table(new.create), shadow, [(name_of(one), old)], _DIALECT)
        intents = (
            Intent(ChangeOf.ALTER, change_statements([one], [two], _DIALECT), (name_of(one),), (two,)),
            Intent(
                ChangeOf.ALTER,
                change_statements([one], [gone], _DIALECT),
                all_names([name_of(one)], [name_of(gone)]),
                (gone,),
            ),
            Intent(ChangeOf.DROP, (drop_table(name_of(one)),), (name_of(one),), gone=(1,), loaded=(1,)),
            Intent(
                ChangeOf.RELEASE,
                made.statements,
                (name_of(one),),
                (one,),
                TableState.RELEASED,
                optional=tuple(made.optional),
            ),
            Intent(
                ChangeOf.SHOW,
                shown,
                all_names([("d", shadow), name_of(new)], [name_of(one)], [("d", old)]),
                (new,),
                points=((2, _AT),),
                gone=(1,),
                loaded=(2,),
            ),
        )
        load = {"table_id": 2, "lsn": 3, "snapshot_ts": 30, "definition": json.dumps(table_json(new))}
        rows = [_row(one)]
        self._seeds = []
        for intent in intents:
            stored = {"id": "x", "change": intent.to_json(), "next_statement": 0, "before": "ab"}
            self._seeds.append({"registry": rows, "loads": [load], "intents": [stored]})
        for seed in self._seeds:
            assert self._accepted(json.loads(json.dumps(seed))), seed["intents"]

    def make(self, chance: random.Random) -> bytes:
        value = json.loads(json.dumps(chance.choice(self._seeds)))
        choice = chance.random()
        holder = chance.choice([*value["registry"], *value["loads"], *value["intents"], *value["intents"]])
        key = chance.choice(list(holder))
        if choice < 0.5 and "change" in holder:
            holder["change"] = mutated_json(holder["change"], chance)
        elif choice < 0.7:
            holder[key] = chance.choice((*_TEXTS, None, 7, "[" * 50_000, '{"a":' * 9_000, "9" * 5_000))
        else:
            text = holder[key] if isinstance(holder[key], str) else json.dumps(holder[key])
            holder[key] = mutated(text.encode(), chance, [one.encode() for one in _TEXTS]).decode(errors="replace")
        if chance.random() < 0.3 and isinstance(value["intents"][0].get("change"), dict):
            change = value["intents"][0]["change"]
            evil = chance.choice(_TEXTS)
            stored = change.get("statements")
            change["statements"] = [*stored, evil] if isinstance(stored, list) and chance.random() < 0.5 else [evil]
        return json.dumps(value).encode()

    def run(self, data: bytes) -> str:
        try:
            return "rows" if self._accepted(json.loads(data)) else "other"
        except CcprError as error:
            return error.code

    def _accepted(self, value: dict[str, Any]) -> bool:
        registered = {table.id: (table, state) for table, state in map(registry_row, value["registry"])}
        loading = {table.id: (location, table) for location, table in map(load_row, value["loads"])}
        for row in value["intents"]:
            change = row["change"] if isinstance(row["change"], str) else json.dumps(row["change"])
            stored = intent_row({**row, "change": change})
            made = RederivedIntent(stored.intent, *_PLACE, self._own, registered, loading).statements()
            if made != stored.intent.statements:
                return False
            assert not any("evil" in statement for statement in made), made
        return True

    def close(self) -> None:
        pass
