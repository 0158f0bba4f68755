"""SELECT without a table: constants, system variables, functions, and the orders that are given by one (`mo_ctl`)."""

import json
import re
from dataclasses import dataclass
from typing import Final

from ccpr.matrixone.server import mo_catalog as catalog
from ccpr.matrixone.server.answers import BIGINT, VAR_STRING, Cell, ResultColumn, StatementError
from ccpr.matrixone.server.backing import Login
from ccpr.matrixone.server.backing import internal as internal_error
from ccpr.matrixone.server.connection import SERVER_VERSION
from ccpr.matrixone.server.statements import Value
from ccpr.matrixone.server.upstream import Upstream

# The variables that clients read when they connect.
VARIABLES: Final[dict[str, str | int]] = {
    "auto_increment_increment": 1,
    "autocommit": 1,
    "character_set_client": "utf8mb4",
    "character_set_connection": "utf8mb4",
    "character_set_database": "utf8mb4",
    "character_set_results": "utf8mb4",
    "character_set_server": "utf8mb4",
    "collation_connection": "utf8mb4_0900_ai_ci",
    "collation_database": "utf8mb4_bin",
    "collation_server": "utf8mb4_bin",
    "init_connect": "",
    "interactive_timeout": 28800,
    "license": "APACHE",
    "lower_case_table_names": 1,
    "max_allowed_packet": 67108864,
    "net_buffer_length": 16384,
    "net_write_timeout": 60,
    "performance_schema": 0,
    "sql_mode": "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES",
    "system_time_zone": "UTC",
    "time_zone": "SYSTEM",
    "transaction_isolation": "REPEATABLE-READ",
    "transaction_read_only": 0,
    "tx_isolation": "REPEATABLE-READ",
    "version": SERVER_VERSION,
    "version_comment": "emulator of MatrixOne",
    "wait_timeout": 28800,
}


def variables_of(server: str) -> dict[str, str | int]:
    """Those of a server that calls itself so."""
    return {**VARIABLES, "version_comment": f"{server} of MatrixOne"}


_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ZERO_DATE = "0000-00-00"


@dataclass(frozen=True, slots=True)
class Asked:
    """Of whom, and by which session: its database (empty without one) and its number."""

    upstream: Upstream
    login: Login
    database: str
    number: int


def value_of(asked: Asked, value: Value) -> tuple[ResultColumn, Cell]:
    if value.kind == "literal":
        cell = value.arguments[0]
    elif value.kind == "variable":
        if value.name not in VARIABLES:
            raise internal_error(f"the system variable does not exist: {value.name}")
        cell = variables_of(asked.upstream.name)[value.name]
    elif value.name == "mo_ctl":
        cell = _mo_ctl(asked, [str(argument) for argument in value.arguments])
    elif value.name == "cast":
        cell = _cast(asked, *map(str, value.arguments))
    elif value.name == "date" and len(value.arguments) == 1:
        cell = _date(asked, str(value.arguments[0]))
    else:
        calls: dict[str, Cell] = {
            "version": SERVER_VERSION,
            "database": asked.database or None,
            "schema": asked.database or None,
            "current_role": asked.login.role,
            "current_role_name": asked.login.role,
            "current_user_name": asked.login.user,
            "current_user": f"{asked.login.user}@127.0.0.1",
            "user": f"{asked.login.user}@127.0.0.1",
            "connection_id": asked.number,
            "current_account_name": asked.login.account,
        }
        if value.arguments or value.name not in calls:
            raise StatementError(
                1064,
                f"SQL syntax: the {asked.upstream.name} does not know the function {value.name} with these arguments",
                "42000",
            )
        cell = calls[value.name]
    kind, charset = (BIGINT, catalog.BINARY) if isinstance(cell, int) else (VAR_STRING, catalog.UTF8)
    return ResultColumn(value.shown_as, kind, charset), cell


def _cast(asked: Asked, literal: str, kind: str) -> str | None:
    """CAST of a date; the zero date is null, since the server's default sql_mode has NO_ZERO_DATE."""
    if kind != "date" or not _DATE.fullmatch(literal):
        raise StatementError(20102, f"not supported: the {asked.upstream.name} casts dates only, not to {kind}")
    return None if literal == _ZERO_DATE else _date(asked, literal)


def _date(asked: Asked, literal: str) -> str:
    """DATE(…), whatever the sql_mode; the zero date is one since 4.2.0."""
    if not _DATE.fullmatch(literal) or (
        literal.startswith("0000-") and (literal != _ZERO_DATE or asked.upstream.release != "4.2")
    ):
        raise StatementError(1690, f"data out of range: data type date, '{literal}'")
    return literal


def _mo_ctl(asked: Asked, arguments: list[str]) -> str:
    """mo_ctl('dn', …), one JSON text (docs/upstream.md 5.6 and "Checked on live clusters"). Only for account sys
    with its admin role."""
    if not (asked.login.is_sys and asked.login.is_admin and asked.upstream.may_flush):
        raise internal_error("do not have privilege to execute the statement")
    known = ("flush", "checkpoint", "diskcleaner")
    if len(arguments) != 3 or arguments[0].lower() != "dn" or arguments[1].lower() not in known:
        raise internal_error(
            f"invalid operation: the {asked.upstream.name} knows only mo_ctl('dn', …) of flush, checkpoint and "
            "diskcleaner force_gc"
        )
    method, target, backing = arguments[1].lower(), arguments[2], asked.upstream.backing
    if method == "checkpoint":
        backing.checkpoint()
    elif method == "diskcleaner":
        if target != "force_gc":
            raise internal_error(f"invalid operation: the {asked.upstream.name} knows no {target} of the disk cleaner")
        backing.collect()
    elif target.isdecimal() and int(target[:20]) in backing.flushable():
        backing.flush({int(target)})
    else:
        backing.flush({_table_id(asked, target)})
    shown = {"diskcleaner": "DiskCleaner"}.get(method, method.capitalize())
    return json.dumps({"method": shown, "result": [{"ReturnStr": "OK"}]}, indent=2)


def _table_id(asked: Asked, target: str) -> int:
    """The id of `database.table` in the login's account, or of `database.table.<account id>` in any account."""
    backing, ids = asked.upstream.backing, {}
    for account, number in backing.accounts().items():
        if backing.owns_data(account):
            for table in backing.catalog(account).tables:
                name = f"{table.database.decode()}.{table.name.decode()}"
                ids[f"{name}.{number}"] = table.id
                if account == asked.login.account:
                    ids[name] = table.id
    if target not in ids:
        raise internal_error(f"no such table {target}")
    return ids[target]
