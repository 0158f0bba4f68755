"""How a delta gets into a table: by way of temporary tables in one session.

There are two: one for new and changed rows, one for deleted keys. They are not written to the binary log, do not end
the transaction when they are made, and vanish with the session, however it ends. Where tasks share a large delta out,
each attempt of one has two ordinary tables of its own (`stage_in_task`), and what the tasks name is merged at once.

In MatrixOne initial loads, too, go through staging, by one connection, since its LOAD DATA checks no keys and no
expressions: it stores a second row of a key, and NULL for UNHEX. What it has staged is counted, column by column. Its
staging tables are ordinary ones. Ordinary ones have names that only this session has; it drops what tasks have left,
and so does the next session (`TargetSession.drop_stages`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ccpr.matrixone.ddl.definition import ColumnDefinition, ColumnType, CreateTable, format_create_table
from ccpr.matrixone.sql.quoting import quote_name, quote_names
from ccpr.mirror.delta.split import DeltaPart
from ccpr.schema.choices import Dialect
from ccpr.targets.base import MoreRowsThere, SplitRows
from ccpr.targets.encoding import LoadColumn
from ccpr.targets.errors import TargetValueRefused
from ccpr.targets.target_session import TargetSession, TaskLogin, TaskSession

_BATCH_BYTES = 16 << 20  # parts are combined up to this size: a statement costs as much as some thousand rows
_LOADED = (
    *("bool", "tinyint", "smallint", "int", "bigint", "decimal", "float", "double", "vecf32", "vecf64"),
    *("char", "varchar", "text", "longtext", "date", "time", "datetime", "timestamp", "uuid"),
)
_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Staged:
    """How many rows are staged for `Staging.merge`, and where: in the tables of the staging itself, if no others are
    named. `replaced` of the upserts have keys that the table has, None if that is not known."""

    upserts: int
    deletes: int
    replaced: int | None = None
    stages: "tuple[StageTable, ...]" = ()


@dataclass(frozen=True, slots=True)
class StageTable:
    """A table that rows are loaded into before they get to theirs.

    Attributes
    ----------
    columns : as they are loaded.
    final : the same as the table has them; other types in MatrixOne, where LOAD DATA evaluates nothing: bytes are
        staged as hexadecimal digits and bits as a number.
    options : of CREATE TABLE.
    """

    name: str
    dialect: Dialect
    columns: tuple[LoadColumn, ...]
    final: tuple[LoadColumn, ...]
    temporary: bool = False
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        dialect: Dialect,
        columns: tuple[LoadColumn, ...],
        options: tuple[tuple[str, str], ...],
        *,
        shared: bool = False,
    ) -> "StageTable":
        """`shared`: other sessions are to see it."""
        is_matrixone = dialect is Dialect.MATRIXONE
        staged = tuple(map(_as_loaded, columns)) if is_matrixone else columns
        return cls(name, dialect, staged, columns, not (is_matrixone or shared), options)

    @property
    def quoted(self) -> str:
        return quote_name(self.name)

    @property
    def create(self) -> str:
        plain = tuple(replace(column.target, default=None, invisible=False, comment="") for column in self.columns)
        text = format_create_table(CreateTable(self.name, plain, options=self.options))
        return text.replace("CREATE TABLE", "CREATE TEMPORARY TABLE", 1) if self.temporary else text

    @property
    def drop(self) -> str:
        return f"DROP {'TEMPORARY ' if self.temporary else ''}TABLE IF EXISTS {self.quoted}"

    def insert(self, table: str) -> str:
        """The statement that stores the staged rows in a table, whose name is quoted."""
        names = quote_names([column.name for column in self.final])
        values = ",".join(self._value(column, quote_name(column.name)) for column in self.final)
        return f"INSERT INTO {table} ({names}) SELECT {values} FROM {self.quoted}"

    def delete(self, table: str, key: Sequence[str]) -> str:
        """The statement that deletes the staged keys from a table, whose name is quoted."""
        by_name = {column.name: column for column in self.final}
        if self.dialect is Dialect.MATRIXONE:  # whose DELETE … JOIN … ON deletes every row of the table
            pairs = (
                (f"{table}.{quote_name(name)}", self._value(by_name[name], f"s.{quote_name(name)}")) for name in key
            )
            where = " AND ".join(f"{staged} = {there}" for there, staged in pairs)
            return f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {self.quoted} s WHERE {where})"
        on = " AND ".join(f"t.{quote_name(name)} = s.{quote_name(name)}" for name in key)
        return f"DELETE t FROM {self.quoted} s STRAIGHT_JOIN {table} t ON {on}"

    @property
    def counted(self) -> str:
        """The query for what `Counted` counts."""
        values = ", ".join(f"COUNT({quote_name(column.name)})" for column in self.columns)
        return f"SELECT COUNT(*), {values} FROM {self.quoted}"

    def _value(self, column: LoadColumn, staged: str) -> str:
        return f"UNHEX({staged})" if self.dialect is Dialect.MATRIXONE and column.is_bytes else staged


def _as_loaded(column: LoadColumn) -> LoadColumn:
    """MatrixOne's LOAD DATA knows these types only. Of others it refuses some, takes the quotes off a JSON text and the
    blanks off a member, and takes a member that is a number for its place: INSERT does none of that."""
    kind = column.target.type
    digits = kind.parameters[0] if kind.name == "decimal" and kind.parameters else 0
    if kind.name in _LOADED and digits <= _MOST_DIGITS:
        return column
    plain = ColumnType("bigint", unsigned=True) if column.is_bit else ColumnType("longtext")
    return replace(column, target=ColumnDefinition(column.name, plain, column.target.nullable))


@dataclass(slots=True)
class Counted:
    """How many rows, and values of each column that are not NULL, were sent to a staging table."""

    columns: tuple[LoadColumn, ...]
    rows: int = 0
    values: list[int] = field(default_factory=list)

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        found = [rows.num_rows - rows.column(column.arrow_name).null_count for column in self.columns]
        self.values = [sum(pair) for pair in zip(self.values or [0] * len(found), found, strict=True)]

    def check(self, stored: Sequence[tuple[int, ...]], subject: str) -> None:
        """Raises TargetValueRefused if the answer to `StageTable.counted` differs."""
        sent = (self.rows, *(self.values or [0] * len(self.columns)))
        if [tuple(map(int, row)) for row in stored] == [sent]:
            return
        names = ("rows", *(f"values of column {column.name}" for column in self.columns))
        shown = [
            f"{many} {name} were sent, {there} stored"
            for name, many, there in zip(names, sent, stored[0] if stored else (), strict=False)
            if many != there
        ]
        raise TargetValueRefused(
            f"the target does not store a value as it is: {'; '.join(shown) or 'nothing was counted'}", subject=subject
        )


class Staging:
    """The staging tables for one table's delta.

    Parameters
    ----------
    create : the table's definition in the target.
    columns : of `create`, in its order.
    shared : another session merges what is staged.
    """

    def __init__(
        self,
        session: "TargetSession | TaskSession",
        create: CreateTable,
        columns: tuple[LoadColumn, ...],
        table_id: int,
        subject: str,
        *,
        shared: bool = False,
    ) -> None:
        self._session, self._create, self._subject = session, create, subject
        keys = tuple(column for column in columns if column.name in create.primary_key)
        self._stages = tuple(
            StageTable.of(f"{session.stages}{table_id}{suffix}", session.dialect, those, create.options, shared=shared)
            for suffix, those in (("", columns), ("_keys", keys))
        )
        self._shared = shared
        self._counted = tuple(Counted(stage.columns) for stage in self._stages)

    def fill(self, parts: Iterable[DeltaPart]) -> Staged:
        """Make the tables and send the rows, in a transaction of their own. Raises what `parts` and
        `LoadingConnection.load` raise."""
        with self._session.transaction():
            for stage in self._stages:
                self._session.raw.changed(stage.drop)
                self._session.raw.changed(stage.create)
            upserts, deletes = _Batches(), _Batches()
            counts = [0, 0]
            replaced: int | None = 0
            for part in parts:
                replaced = None if replaced is None or part.replaced is None else replaced + part.replaced
                for place, (batches, rows) in enumerate(((upserts, part.upserts), (deletes, part.deletes))):
                    if batches.add(rows):
                        counts[place] += self._send(place, batches)
            for place, batches in enumerate((upserts, deletes)):
                counts[place] += self._send(place, batches)
            if self._session.dialect is Dialect.MATRIXONE:
                for stage, counted in zip(self._stages, self._counted, strict=True):
                    counted.check(self._session.raw.rows(stage.counted), self._subject)
        return Staged(counts[0], counts[1], replaced, self._stages if self._shared else ())

    def merge(self, *every: Staged, keys_are_unique: bool = False) -> int:
        """Delete by all staged keys, then insert: this order allows rows that swap the values of a unique column. Runs
        in the caller's transaction.

        Returns how many of the keys that were to be deleted were there. Raises MoreRowsThere if more keys of upserts
        were there than are known to be, unless `keys_are_unique`.
        """
        table, key = self._create.quoted_name, self._create.primary_key
        gone = replaced = 0
        for staged in every:
            upserts, deletes = staged.stages or self._stages
            replaced += self._delete(upserts.delete(table, key), staged.upserts)
            gone += self._delete(deletes.delete(table, key), staged.deletes)
        known = [staged.replaced for staged in every if staged.replaced is not None]
        if not keys_are_unique and len(known) == len(every) and replaced > sum(known):
            raise MoreRowsThere
        for staged in every:
            if staged.upserts:
                upserts, _ = staged.stages or self._stages
                stored = self._session.raw.changed(upserts.insert(table))
                if stored != staged.upserts:
                    what = f"{staged.upserts} rows were sent, {stored} stored"
                    raise TargetValueRefused(what, subject=self._subject)
        return gone

    def _delete(self, statement: str, keys: int) -> int:
        """How many of the staged keys were there."""
        if not keys:
            return 0
        found = self._session.raw.changed(statement)
        if found > keys:
            raise TargetValueRefused(f"{keys} keys were to be deleted, and {found} rows were", subject=self._subject)
        return found

    def drop(self) -> None:
        with self._session.transaction():
            for stage in self._stages:
                self._session.raw.changed(stage.drop)

    def _send(self, place: int, batches: "_Batches") -> int:
        rows = batches.take()
        if not rows:
            return 0
        stage = self._stages[place]
        for one in rows:
            self._counted[place].add(one)
        return self._session.raw.load(stage.quoted, stage.columns, rows, self._subject)


class _Batches:
    def __init__(self) -> None:
        self._rows: list[pa.Table] = []
        self._bytes = 0

    def add(self, rows: pa.Table) -> bool:
        """True if there are enough to be sent."""
        if rows.num_rows:
            self._rows.append(rows)
            self._bytes += rows.nbytes
        return self._bytes >= _BATCH_BYTES

    def take(self) -> list[pa.Table]:
        rows, self._rows, self._bytes = self._rows, [], 0
        return rows


@dataclass(frozen=True, slots=True)
class StagedTable:
    """What tasks need to know of a table whose change they stage; can be pickled."""

    login: TaskLogin
    create: CreateTable
    columns: tuple[LoadColumn, ...]
    table_id: int
    subject: str

    def stage(self, pieces: Sequence[SplitRows]) -> Iterator[Staged]:
        """In a task: stage some pieces of the change in tables of this attempt alone, which the next session drops if
        nobody merges them."""
        with self.login.session(self.subject) as session:
            staging = Staging(session, self.create, self.columns, self.table_id, self.subject, shared=True)
            yield staging.fill(part for piece in pieces for part in piece.parts())
