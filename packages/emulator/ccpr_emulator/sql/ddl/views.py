"""Views and sequences."""

from functools import partial

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.tokens import Tokens
from ccpr_emulator.engine.entries import SEQUENCE, VIEW
from ccpr_emulator.sql.ddl.acts import Act, Context, all_of, tolerated
from ccpr_emulator.sql.ddl.columns import read_type, type_text
from ccpr_emulator.sql.dialect import parse as parse_query
from ccpr_emulator.sql.names import list_of, names_in_brackets, table_name


def create_view(tokens: Tokens, context: Context) -> Act:
    replaces = tokens.accept("or", "replace")
    while tokens.at("algorithm", "definer", "sql"):
        tokens.next()
        while not tokens.at("algorithm", "definer", "sql", "view") and not tokens.at_end():
            tokens.next()
    tokens.expect("view")
    tolerant = tokens.accept("if", "not", "exists")
    names = table_name(tokens, context.database)
    columns = None
    if tokens.accept("("):
        columns = names_in_brackets(tokens)
    tokens.expect("as")
    if tokens.at_end():
        raise tokens.unknown()
    query = tokens.sql[tokens.tokens[tokens.position].start :].strip().rstrip(";")
    tokens.skip_rest()

    def create() -> None:
        result = context.reader.read(parse_query(f"SELECT * FROM ({query}) AS v LIMIT 0"))
        if columns is not None and len(columns) != len(result.columns):
            raise StatementError(1353, "In definition of view, the list of columns has another length", "HY000")
        named = columns or [name for name, _ in result.columns]
        texts = {
            name: type_text(column, result.rows.schema.field(place).type)
            for place, (name, (_, column)) in enumerate(zip(named, result.columns, strict=True))
        }
        context.storage.create_view(
            *names,
            texts,
            query,
            create_sql=tokens.sql.strip().rstrip(";"),
            account=context.login.account,
            replaces=replaces,
        )

    return partial(tolerated, tolerant, "create", create)


def view_or_sequence(kind: str, tokens: Tokens, context: Context) -> Act:
    storage, account = context.storage, context.login.account
    if kind == "create_sequence":
        tolerant = tokens.accept("if", "not", "exists")
        names = table_name(tokens, context.database)
        given = {"start": 1, "increment": 1}
        while not tokens.at_end() and not tokens.at(";"):
            word = tokens.next().lower()
            if word in given:
                tokens.accept("with")
                tokens.accept("by")
                given[word] = tokens.number()
            elif word in ("minvalue", "maxvalue"):
                tokens.number()
            elif word == "as":
                read_type(tokens)
            elif word not in ("no", "cycle"):
                tokens.position -= 1
                raise tokens.unknown()
        return partial(
            tolerated,
            tolerant,
            "create",
            storage.create_sequence,
            *names,
            **given,
            create_sql=tokens.sql,
            account=account,
        )
    tolerant = tokens.accept("if", "exists")
    relation = VIEW if kind == "drop_view" else SEQUENCE
    every = list_of(tokens, lambda: table_name(tokens, context.database))
    return all_of(
        partial(tolerated, tolerant, "drop", storage.drop_relation, *names, relation, account=account)
        for names in every
    )
