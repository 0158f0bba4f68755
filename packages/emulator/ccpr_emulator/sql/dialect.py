"""Statements as sqlglot's trees, and queries as DuckDB's SQL.

sqlglot reads MySQL's dialect. What MatrixOne adds is rewritten in the text before: the state that a table is read at,
``t {snapshot = 'x'}`` and ``t {mo_ts = 123}``, becomes a part of the table's name behind a character that no name has;
REPLACE becomes INSERT, which the caller knows.
"""

import logging
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.sql.lexer import Token, excerpt, scan, tokens
from ccpr.matrixone.sql.quoting import in_backquotes

if TYPE_CHECKING:
    from sqlglot import exp


# Functions of MySQL and MatrixOne that DuckDB has not.
MACROS: Final = (
    "mo_concat(parts) AS CASE WHEN list_count(parts) < len(parts) THEN NULL ELSE array_to_string(parts, '') END",
    "mo_length(x) AS CASE WHEN typeof(x) = 'BLOB' THEN octet_length(CAST(x AS BLOB)) "
    "ELSE strlen(CAST(x AS VARCHAR)) END",
    "mo_truncate(x, d) AS trunc(CAST(x AS DOUBLE) * pow(10, d)) / pow(10, d)",
    "uuid() AS CAST(gen_random_uuid() AS VARCHAR)",
    "substring_index(s, d, n) AS CASE WHEN n >= 0 THEN array_to_string(list_slice(string_split(s, d), 1, n), d) "
    "ELSE array_to_string(list_slice(string_split(s, d), greatest(len(string_split(s, d)) + n + 1, 1), "
    "len(string_split(s, d))), d) END",
    "find_in_set(s, l) AS coalesce(list_position(string_split(l, ','), s), 0)",
    "field2(s, l) AS coalesce(list_position(l, s), 0)",
    "locate(a, b) AS strpos(b, a)",
    "space(n) AS repeat(' ', n)",
    "strcmp(a, b) AS CASE WHEN a = b THEN 0 WHEN a < b THEN -1 ELSE 1 END",
    "unix_timestamp(t) AS CAST(floor(epoch(CAST(t AS TIMESTAMP))) AS BIGINT)",
    "from_unixtime(n) AS make_timestamp(CAST(n * 1000000 AS BIGINT))",
    "datediff(a, b) AS CAST(CAST(a AS DATE) - CAST(b AS DATE) AS BIGINT)",
    "mo_to_days(a) AS CAST(CAST(a AS DATE) - DATE '0001-01-01' AS BIGINT) + 366",
    "time_to_sec(t) AS CAST(floor(epoch_us(CAST(t AS INTERVAL)) / 1000000) AS BIGINT)",
    "sec_to_time(n) AS to_seconds(CAST(n AS BIGINT))",
    "timediff(a, b) AS CAST(a AS TIMESTAMP) - CAST(b AS TIMESTAMP)",
    "inet_aton(s) AS list_sum(list_transform(string_split(s, '.'), lambda p, i: CAST(p AS BIGINT) * "
    "CAST(pow(256, 4 - i) AS BIGINT)))",
    "json_unquote(j) AS CASE WHEN json_valid(CAST(j AS VARCHAR)) THEN json_extract_string(CAST(j AS JSON), '$') "
    "ELSE CAST(j AS VARCHAR) END",
    "l2_distance(a, b) AS list_distance(CAST(a AS DOUBLE[]), CAST(b AS DOUBLE[]))",
    "l2_distance_sq(a, b) AS pow(list_distance(CAST(a AS DOUBLE[]), CAST(b AS DOUBLE[])), 2)",
    "inner_product(a, b) AS -list_inner_product(CAST(a AS DOUBLE[]), CAST(b AS DOUBLE[]))",
    "cosine_similarity(a, b) AS list_cosine_similarity(CAST(a AS DOUBLE[]), CAST(b AS DOUBLE[]))",
    "cosine_distance(a, b) AS 1 - list_cosine_similarity(CAST(a AS DOUBLE[]), CAST(b AS DOUBLE[]))",
    "vector_dims(a) AS len(CAST(a AS DOUBLE[]))",
    "serial(a, b) AS concat(a, b)",
    "st_geomfromtext(s) AS CAST(s AS VARCHAR)",
    "st_astext(g) AS CAST(g AS VARCHAR)",
    "hash_value(x) AS CAST(hash(x) >> 1 AS BIGINT)",
    "sleep(n) AS 0",
    "mo_ctl(a, b, c) AS error('mo_ctl stands alone in its SELECT')",
)


AT: Final = "\x01"  # between a table's name and the state that it is read at
_VECTOR = re.compile(r"vec(f32|f64|bf16|f16|int8|uint8)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Edit:
    """Other text in the place of tokens."""

    start: int
    end: int
    text: str


def parse(text: str) -> "exp.Expr":
    """One statement. Raises StatementError 1064, which shows no string, 20105 for what is not supported."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    prepared = rewritten(text)
    try:
        found = [tree for tree in sqlglot.parse(prepared, dialect="mysql") if tree is not None]
    except (SqlglotError, RecursionError) as error:
        place = getattr(error, "errors", None)
        start = 0
        if place and place[0].get("highlight"):
            start = max(0, prepared.find(place[0]["highlight"]))
        raise StatementError(
            1064, f"You have an error in your SQL syntax; near {excerpt(prepared, start, 80)!r}", "42000"
        ) from error
    if len(found) != 1:
        raise StatementError(1064, "You have an error in your SQL syntax; one statement is expected", "42000")
    tree = found[0]
    if isinstance(tree, exp.Command) or any(isinstance(node, exp.Command) for node in tree.find_all(exp.Command)):
        raise unsupported(text)
    return tree


def unsupported(text: str) -> StatementError:
    return StatementError(20105, f"not supported: the emulator does not execute {excerpt(text, 0, 60)!r}", "HY000")


def rewritten(text: str) -> str:
    """See the module."""
    found = list(tokens(text))
    # What is in an executable comment is read: its marks are comments here.
    edits = [Edit(token.start, token.end, " ") for token in scan(text) if token.kind == "comment"]
    if found and found[0].is_word("REPLACE"):
        edits.append(Edit(found[0].start, found[0].end, "insert"))
    for place, token in enumerate(found):
        if token.is_sign("{") and place:
            edits += _state(text, found, place)
        elif token.kind == "word" and _VECTOR.fullmatch(token.value) and found[place - 1].is_word("AS"):
            end = next((after.end for after in found[place:] if after.is_sign(")")), token.end)
            edits.append(Edit(token.start, end, "char"))
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _state(text: str, found: list[Token], place: int) -> list[Edit]:
    """The braces behind a table's name, moved into the name."""
    inside = found[place + 1 : place + 5]
    name = found[place - 1]
    if len(inside) < 4 or not inside[1].is_sign("=") or not inside[3].is_sign("}") or name.kind not in ("word", "name"):
        raise StatementError(1064, f"SQL syntax: {excerpt(text, found[place].start, 60)!r}", "42000")
    if not inside[0].is_word("SNAPSHOT", "MO_TS", "TIMESTAMP"):
        raise StatementError(1064, f"SQL syntax: {excerpt(text, found[place].start, 60)!r}", "42000")
    shown = in_backquotes(f"{name.value}{AT}{inside[0].value.lower()}{AT}{inside[2].value}")
    after = found[place + 5] if place + 5 < len(found) else None
    words = ("WHERE", "ORDER", "GROUP", "LIMIT", "JOIN", "LEFT", "INNER", "CROSS", "ON", "UNION", "HAVING", "RIGHT")
    has_alias = after is not None and (
        after.kind == "name" or after.is_word("AS") or (after.kind == "word" and after.value.upper() not in words)
    )
    alias = "" if has_alias else f" AS {in_backquotes(name.value)}"
    return [Edit(name.start, name.end, shown), Edit(found[place].start, inside[3].end, alias)]


def select_texts(text: str) -> list[str]:
    """The texts between the commas of a SELECT's list, as they name its columns; empty if it does not begin with
    SELECT."""
    found = list(tokens(text))
    if not found or not found[0].is_word("SELECT"):
        return []
    start, depth, texts = 1, 0, []
    while start < len(found) and found[start].is_word("DISTINCT", "ALL", "SQL_CALC_FOUND_ROWS", "STRAIGHT_JOIN"):
        start += 1
    begin = start
    for place in range(start, len(found) + 1):
        token = found[place] if place < len(found) else None
        ends = token is None or (
            depth == 0
            and (token.is_word("FROM", "INTO", "WHERE", "LIMIT", "UNION", "ORDER") or token.is_sign(",", ";"))
        )
        if ends:
            if place > begin:
                texts.append(text[found[begin].start : found[place - 1].end])
            begin = place + 1
            if token is None or not token.is_sign(","):
                return texts
        elif token is not None and token.is_sign("(", "{"):
            depth += 1
        elif token is not None and token.is_sign(")", "}"):
            depth -= 1
    return texts


def to_duckdb(tree: "exp.Expr") -> str:
    from sqlglot import exp

    tree = tree.copy()
    for node in reversed(list(tree.walk(bfs=True))):  # what is inside comes first
        changed = _for_duckdb(node)
        if changed is not node:
            tree = changed if node is tree else tree
            if node.parent is not None:
                node.replace(changed)
    for node in tree.find_all(exp.Column):
        node.set("db", None)
        node.set("catalog", None)
    return tree.sql(dialect=_duckdb())


@cache
def _duckdb() -> Any:
    from sqlglot.dialects.duckdb import DuckDB

    class MatrixOneOnDuckDB(DuckDB):
        class Generator(DuckDB.Generator):
            """As DuckDB's, without its warnings for what it cannot say."""

            def unsupported(self, message: str) -> None:
                return

    return MatrixOneOnDuckDB


def _for_duckdb(node: "exp.Expr") -> "exp.Expr":
    """What sqlglot translates in another way than MatrixOne means it."""
    from sqlglot import exp

    if isinstance(node, exp.Concat):
        return exp.Anonymous(
            this="mo_concat", expressions=[exp.Array(expressions=[_as_text(e) for e in node.expressions])]
        )
    if isinstance(node, exp.Length) and not isinstance(node.this, exp.Star):
        return exp.Anonymous(this="mo_length", expressions=[node.this])
    if isinstance(node, exp.Div):
        left, right = node.this, node.expression
        if isinstance(left, exp.Literal) and isinstance(right, exp.Literal):
            return exp.Div(this=exp.Cast(this=left, to=exp.DataType.build("double")), expression=right)
        return node
    if isinstance(node, exp.Trunc):
        decimals = node.args.get("decimals") or exp.Literal.number(0)
        return exp.Anonymous(this="mo_truncate", expressions=[node.this, decimals])
    if isinstance(node, exp.MD5 | exp.SHA | exp.SHA2 | exp.Substring | exp.Left | exp.Right | exp.Upper | exp.Lower):
        node.set("this", _as_text(node.this))
        return node
    if isinstance(node, exp.ToDays) or (isinstance(node, exp.Anonymous) and node.name.lower() == "to_days"):
        given = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
        return exp.Anonymous(this="mo_to_days", expressions=given)
    if isinstance(node, exp.GenerateSeries):
        return exp.Anonymous(
            this="generate_series",
            expressions=[e for e in (node.args.get("start"), node.args.get("end"), node.args.get("step")) if e],
        )
    return node


def _as_text(node: "exp.Expr") -> "exp.Expr":
    from sqlglot import exp

    return (
        node if isinstance(node, exp.Literal) and node.is_string else exp.Cast(this=node, to=exp.DataType.build("text"))
    )
