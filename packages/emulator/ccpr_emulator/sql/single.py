"""The fast path of INSERT: one row of literals outside a transaction, in a form that was seen before. What it cannot
do is left to `ccpr_emulator.sql.changes`, which also says what is wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final

from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import Column
from ccpr.matrixone.server.answers import StatementError
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.entries import TableEntry
from ccpr_emulator.engine.live_keys import unique_columns
from ccpr_emulator.engine.single_rows import ToColumn, insert_single
from ccpr_emulator.engine.stored_table import ALIVE
from ccpr_emulator.sql.changes import Changed, Changes
from ccpr_emulator.sql.defaults import is_now, now_text
from ccpr_emulator.sql.literals import DEFAULT, Head, head_of, is_end, rows_from
from ccpr_emulator.sql.names import WrittenTable
from ccpr_emulator.sql.text import INTEGER_RANGES, array_of

Check = Callable[[str], bool]
_MOST_FORMS: Final = 1000
_KEY_TYPES = frozenset((*INTEGER_RANGES, types.CHAR, types.VARCHAR)) - {types.YEAR}


@dataclass(eq=False)
class _Form:
    """What is known of INSERTs with the same text up to VALUES.

    Attributes
    ----------
    places : for each user column, the place of its value in the row, or None.
    checks : whether a text is a value of the column as it stands, for each user column.
    defaults : texts of the columns that are not given; a function makes one that changes.
    """

    entry: TableEntry
    definition: Definition
    head: Head
    length: int
    places: list[int | None]
    checks: list[Check]
    nullable: list[bool]
    defaults: list[Any]
    counter: int | None
    keys: dict[str, list[tuple[int, bool]]]
    columns: dict[str, ToColumn]


@dataclass(eq=False)
class SingleInserts:
    """Of one session."""

    changes: Changes
    forms: dict[tuple[str, str], _Form] = field(default_factory=dict)

    def run(self, text: str, database: str) -> Changed | None:
        """None if it has to be done in the other way."""
        place = text.find("(", text.find("VALUES") if "VALUES" in text else text.find("values"))
        if place <= 0:
            return None
        begin = (text[:place], database)
        form = self.forms.get(begin)
        if form is None or form.entry.dropped != ALIVE or form.entry.definition is not form.definition:
            form = self._learn(text, begin)
        if form is None:
            return None
        found = rows_from(text, place)
        if found is None or len(found[0]) != 1 or not is_end(text, found[1]):
            return None
        row = found[0][0]
        return self._insert(form, row) if len(row) == form.length else None

    def _insert(self, form: _Form, row: list[Any]) -> Changed | None:
        values: list[Any] = []
        for number, place in enumerate(form.places):
            if place is None:
                default = form.defaults[number]
                values.append(default() if callable(default) else default)
                continue
            value = row[place]
            if value is None:
                if not form.nullable[number]:
                    return None
            elif value is DEFAULT or not isinstance(value, str) or not form.checks[number](value):
                return None
            values.append(value)
        storage, entry, insert_id = self.changes.storage, form.entry, 0
        with storage.lock.raw:
            if form.counter is not None:
                given = values[form.counter]
                if given is None:
                    insert_id, entry.next_auto = entry.next_auto, entry.next_auto + 1
                    values[form.counter] = str(insert_id)
                elif int(given) <= 0:
                    return None
                else:
                    entry.next_auto = max(entry.next_auto, int(given) + 1)
            keys = {}
            for name, parts in form.keys.items():
                key = [None if values[n] is None else int(values[n]) if number else values[n] for n, number in parts]
                keys[name] = None if None in key else key[0] if len(key) == 1 else tuple(key)
            if not insert_single(storage, entry, form.columns, tuple(values), keys):
                return None
        return Changed(1, insert_id)

    def _learn(self, text: str, begin: tuple[str, str]) -> _Form | None:
        if len(self.forms) >= _MOST_FORMS:
            self.forms.clear()
        head = head_of(text)
        usable = head is not None and head.verb == "insert" and not head.ignore and head.end == len(begin[0])
        form = self._form_of(head) if usable and head is not None else None
        if form is None:
            self.forms.pop(begin, None)  # the table may be made later
        else:
            self.forms[begin] = form
        return form

    def _form_of(self, head: Head) -> _Form | None:
        try:
            target = self.changes.target_of(head.database, head.table)
            columns = target.definition.user_columns
            chosen = columns if head.columns is None else [target.column(name) for name in head.columns]
        except StatementError:
            return None
        definition = target.definition
        if len(set(chosen)) < len(chosen) or any(found.generated for found in definition.attributes.values()):
            return None
        key_parts = unique_columns(definition)
        if any(definition.column(name).type.oid not in _KEY_TYPES for names in key_parts.values() for name in names):
            return None
        order = {column.name: number for number, column in enumerate(columns)}
        counters = [order[name] for name, found in definition.attributes.items() if found.auto_increment]
        defaults = []
        for column in columns:
            default = None if column in chosen or order[column.name] in counters else self._default(target, column)
            if default is _NEVER:
                return None
            defaults.append(default)
        return _Form(
            target.entry,
            definition,
            head,
            len(chosen),
            [list(chosen).index(column) if column in chosen else None for column in columns],
            [_check_of(column) for column in columns],
            [column.nullable or order[column.name] in counters for column in columns],
            defaults,
            counters[0] if counters else None,
            {
                name: [(order[one], definition.column(one).type.oid in INTEGER_RANGES) for one in names]
                for name, names in key_parts.items()
            },
            {column.name: partial(array_of, column) for column in columns},
        )

    def _default(self, target: WrittenTable, column: Column) -> Any:
        """A text, None, a function, or `_NEVER`."""
        text = target.definition.attributes_of(column.name).default
        if not text or text.lower() == "null":
            return None if column.nullable else _NEVER
        if is_now(text):
            return now_text
        if "(" in text:
            return _NEVER
        (value,) = self.changes.defaults.cells(text, 1)
        return value if value is None or (isinstance(value, str) and _check_of(column)(value)) else _NEVER


_NEVER: Final = object()


def _check_of(column: Column) -> Check:
    """Whether a text is a value of the column that needs no conversion and cannot fail later."""
    oid, width, scale = column.type.oid, column.type.width, column.type.scale
    if types.is_set(column):
        return lambda text: False
    if oid in INTEGER_RANGES:
        low, high = INTEGER_RANGES[oid]
        return lambda text: text.removeprefix("-").isdecimal() and text.isascii() and low <= int(text[:30]) <= high
    if oid in (types.CHAR, types.VARCHAR):
        return lambda text: len(text) <= width and _is_unicode(text)
    if oid == types.TEXT:
        return _is_unicode
    if oid in types.MAX_PRECISION:
        return lambda text: _is_decimal(text, width - scale, scale)
    if oid == types.FLOAT64:
        return _is_double
    if oid == types.BOOL:
        return lambda text: text in ("0", "1")
    if oid == types.ENUM:
        labels = frozenset(column.labels)
        return lambda text: text in labels
    if oid in (types.DATETIME, types.TIMESTAMP):
        length = 19 if scale == 0 else 20 + scale
        return lambda text: len(text) in (19, length) and _is_time(text)
    if oid == types.DATE:
        return lambda text: len(text) == 10 and _is_time(text)
    return lambda text: False


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _is_decimal(text: str, whole: int, fraction: int) -> bool:
    left, _, right = text.removeprefix("-").partition(".")
    return (left + right).isdecimal() and text.isascii() and len(left) <= whole and len(right) <= fraction


def _is_double(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text[-1].isdigit() and "_" not in text


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return text[4] == text[7] == "-" and (len(text) == 10 or (text[10] == " " and text[13] == text[16] == ":"))
