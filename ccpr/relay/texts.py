"""CREATE TABLE texts as the relay serves them: under another database's name, and without the mark of a replica.

`get_ddl` of an upstream adds ``PROPERTIES("from_publication" = "true")``, by which the tables of a downstream are
read-only and stay so (docs/upstream.md, "A MatrixOne behind the relay"). For a copy that is to be written to, that one
property is taken out, and where AUTO_INCREMENT goes on is put in; nothing else is changed.

A MatrixOne counts from where its CREATE TABLE says, and does not look at rows that came as objects: it would give their
numbers again. So the text says the number after the greatest in the table's objects, those of deleted rows included.
"""

import pyarrow.compute as pc

from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.zonemap import parse_zonemap
from ccpr.matrixone.schema import FAKE_KEY, Column, Table
from ccpr.matrixone.sql.errors import DdlUnreadable, SqlUnclosed
from ccpr.matrixone.sql.lexer import Token, complete_tokens
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.relay.errors import RelayText
from ccpr.relay.served_points import ServedPoint

PROPERTY = "from_publication"
_GREATEST = 2**63 - 1  # that a MatrixOne reads in a table's options


def served_text(table: Table, database: str, *, writable: bool, next_number: int | None = None) -> str:
    """The table's text for a database of this name; `next_number` is that of AUTO_INCREMENT. Raises RelayText."""
    subject = f"table {table.qualified_name}"
    if not table.ddl:
        raise RelayText("the mirror has no CREATE TABLE text of it", subject=subject)
    try:
        tokens = complete_tokens(table.ddl)
    except SqlUnclosed as error:
        raise RelayText("its CREATE TABLE text cannot be read", subject=subject) from error
    text = table.ddl
    cut = _property(tokens) if writable else None
    if cut is not None:
        text = text[: cut[0]].rstrip() + text[cut[1] :]
    if next_number is not None:
        at = _end_of_columns(tokens)
        if at is None:
            raise RelayText("its CREATE TABLE text does not list its columns where it is expected", subject=subject)
        text = f"{text[:at]} AUTO_INCREMENT = {next_number:d}{text[at:]}"
    place = _database(tokens, table)
    if place is not None and text[place[0] : place[1]] not in (in_backquotes(database), database):
        return f"{text[: place[0]]}{in_backquotes(database)}{'.' * (place[0] == place[1])}{text[place[1] :]}"
    if place is None and database != table.database:
        raise RelayText("its CREATE TABLE text does not name its database where it is expected", subject=subject)
    return text


def _database(tokens: list[Token], table: Table) -> tuple[int, int] | None:
    """Where the database's name is in ``CREATE TABLE `database`.`table` (``; without one, where it would be: that is
    how SHOW CREATE TABLE prints."""
    if len(tokens) < 5 or not tokens[0].is_word("CREATE") or not tokens[1].is_word("TABLE"):
        return None
    name = tokens[2]
    if name.kind not in ("name", "word"):
        return None
    if name.value == table.database and tokens[3].is_sign("."):
        return name.start, name.end
    return (name.start, name.start) if name.value == table.name and tokens[3].is_sign("(") else None


def _end_of_columns(tokens: list[Token]) -> int | None:
    """Behind the parenthesis that ends them."""
    depth = 0
    for token in tokens:
        depth += token.is_sign("(") - token.is_sign(")")
        if depth == 0 and token.is_sign(")"):
            return token.end
    return None


def _property(tokens: list[Token]) -> tuple[int, int] | None:
    """From where to where the property reaches, with its clause if it is the only one in it."""
    for number, token in enumerate(tokens):
        if (
            not token.is_word("PROPERTIES")
            or not tokens[number + 1 : number + 2]
            or not tokens[number + 1].is_sign("(")
        ):
            continue
        end = next((at for at in range(number, len(tokens)) if tokens[at].is_sign(")")), None)
        if end is None:
            return None
        pairs = [at for at in range(number + 2, end) if tokens[at].kind == "text" and tokens[at - 1].is_sign("(", ",")]
        mark = next((at for at in pairs if tokens[at].value == PROPERTY), None)
        if mark is None:
            continue
        if len(pairs) == 1:
            return token.start, tokens[end].end
        later = next((at for at in pairs if at > mark), None)
        if later is not None:
            return tokens[mark].start, tokens[later].start
        return tokens[mark - 1].start, tokens[end].start
    return None


def next_number(mirror: Mirror, state: ServedPoint, table_id: int) -> int | None:
    """The number that the table has not used yet; None if it counts nothing, or has used none above 0. Looks at the
    zone maps of its objects. Raises RelayText, MirrorDamaged."""
    table = state.tables[table_id]
    counted = _counted(table)
    if not counted:
        return None
    objects = mirror.manifest(state.ref(table_id)).data_objects
    kept = objects.filter(pc.is_valid(objects.column("sha256")))
    with files_of(table.qualified_name):
        files = (mirror.open_object(one.stats.name, one.sums) for one in Manifest(table, kept).listed_objects())
        used = max((_greatest(file, column) for file in files for column in counted), default=0)
    return min(used + 1, _GREATEST) if used > 0 else None


def _counted(table: Table) -> list[Column]:
    """The columns with AUTO_INCREMENT; of a table without one and without primary key its hidden key."""
    try:
        columns = create_table_of(table).columns
    except DdlUnreadable as error:
        raise RelayText(
            "its CREATE TABLE text does not say for certain which columns are AUTO_INCREMENT",
            subject=f"table {table.qualified_name}",
            remedy="Load the other tables without it: --table T, once for each.",
        ) from error
    names = {column.name for column in columns if column.auto_increment}
    chosen = [column for column in table.columns if column.name in names]
    return chosen or [column for column in table.columns if column.hidden and column.name == FAKE_KEY]


def _greatest(file: ObjectFile, column: Column) -> int:
    if column.seqnum > min(file.max_seqnum, len(file.columns) - 1):
        return 0
    zone = parse_zonemap(file.columns["zonemap"][column.seqnum].tobytes())
    return zone.maximum if zone is not None and zone.oid == column.type.oid else 0
