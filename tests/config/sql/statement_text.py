"""Statements about subscriptions back to text: what is generated can be parsed."""

from collections.abc import Sequence
from decimal import Decimal

from ccpr.config.sql.subscription_statements import (
    AlterSubscription,
    Assignment,
    CreateLake,
    CreateSubscription,
    DropLake,
    DropSubscription,
    PauseSubscription,
    ResumeSubscription,
    SelectSubscriptions,
    ShowLakes,
    ShowPublications,
    ShowStatus,
    ShowSubscriptions,
    Statement,
    Value,
)
from ccpr.matrixone.sql.quoting import quote_name, quote_string


def format_statement(statement: Statement) -> str:
    """Text that `parse` reads back as the same value. It holds the password: never for people."""
    match statement:
        case CreateSubscription():
            return _format_create(statement)
        case AlterSubscription():
            changes = [f"UPSTREAM = {quote_string(statement.uri)}"] if statement.uri is not None else []
            if statement.publication is not None:
                changes.append(f"PUBLICATION = {quote_string(statement.publication)}")
            changes += map(_format_setting, statement.settings)
            return f"ALTER SUBSCRIPTION {quote_name(statement.name)} SET ({', '.join(changes)})"
        case PauseSubscription():
            return f"PAUSE SUBSCRIPTION {quote_name(statement.name)}"
        case ResumeSubscription():
            return f"RESUME SUBSCRIPTION {quote_name(statement.name)}"
        case DropSubscription():
            if_exists = "IF EXISTS " if statement.if_exists else ""
            options = f"{' PURGE' if statement.purge else ''}{' FORCE' if statement.force else ''}"
            return f"DROP SUBSCRIPTION {if_exists}{quote_name(statement.name)}{options}"
        case ShowSubscriptions():
            return "SHOW SUBSCRIPTIONS"
        case ShowStatus():
            return f"SHOW SUBSCRIPTION {quote_name(statement.name)} STATUS"
        case ShowPublications():
            return f"SHOW PUBLICATIONS FROM {quote_string(statement.uri)}"
        case SelectSubscriptions():
            where = " AND ".join(f"{column} = {_format_value(value)}" for column, value in statement.where)
            columns = ", ".join(statement.columns) or "*"
            return f"SELECT {columns} FROM {statement.source}{f' WHERE {where}' if where else ''}"
        case CreateLake():
            text = f"CREATE LAKE {_of_lake(statement)} TO {quote_string(statement.uri)}"
            return text + _format_settings(statement.settings)
        case DropLake():
            if_exists = "IF EXISTS " if statement.if_exists else ""
            return f"DROP LAKE {if_exists}{_of_lake(statement)}{' PURGE' if statement.purge else ''}"
        case ShowLakes():
            return f"SHOW LAKES OF {quote_name(statement.subscription)}"


def _of_lake(statement: CreateLake | DropLake) -> str:
    return f"{quote_name(statement.name)} OF {quote_name(statement.subscription)}"


def _format_create(statement: CreateSubscription) -> str:
    text = f"CREATE SUBSCRIPTION {quote_name(statement.name)} DATABASE {quote_name(statement.database)}"
    text += f" TABLE {quote_name(statement.table)}" if statement.table is not None else ""
    text += f" FROM {quote_string(statement.uri)}"
    if statement.publication is not None:
        text += f" PUBLICATION {quote_name(statement.publication)}"
        text += f" OF {quote_name(statement.publisher)}" if statement.publisher is not None else ""
    return text + _format_settings(statement.settings)


def _format_settings(settings: Sequence[Assignment]) -> str:
    return f" WITH ({', '.join(map(_format_setting, settings))})" if settings else ""


def _format_setting(setting: Assignment) -> str:
    return f"{setting.name.upper()} = {_format_value(setting.value)}"


def _format_value(value: Value) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return quote_string(value) if isinstance(value, str) else format(Decimal(repr(value)), "f")
