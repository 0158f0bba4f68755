"""What a copied object's file says of the columns of its table: found where the file is checked on its arrival, so that
no later step opens it again for that, which on an object store would mean to read it a second time."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version

from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectUnsupported
from ccpr.matrixone.objects.object_layout import ObjectBytes
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.types import DECIMAL64, DECIMAL128, ZERO_DATE_TYPES
from ccpr.matrixone.schema import Column, Table, Unread, integer_of, text_of
from ccpr.mirror.errors import MirrorDamaged

RELEASE = version("matrixone-ccpr")
_WHOLE = -1  # in the place of a seqnum


@dataclass(frozen=True, slots=True)
class Findings:
    """
    Attributes
    ----------
    digits : of decimal columns by seqnum, how many digits the longest value has.
    unread : by seqnum, the columns of a form that this release does not know, with the reason; -1 for the whole file.
    zero_dates : by seqnum, how many values are the zero value `0000-00-00`.
    sums : of the file (`ccpr.matrixone.objects.object_layout`); None if its form is not known. No part of the text.
    """

    digits: Mapping[int, int] = field(default_factory=dict)
    unread: Mapping[int, str] = field(default_factory=dict)
    zero_dates: Mapping[int, int] = field(default_factory=dict)
    sums: bytes | None = None

    @classmethod
    def of(
        cls, content: ObjectBytes, stats: ObjectStats, *, inflate: bool = True, sums: bytes | None = None
    ) -> "Findings":
        """Of a file, which is checked for it, with `inflate` down to its columns, and compared with `sums`, if it has
        any; else they are made. Raises ObjectDamaged, ObjectMismatch."""
        try:
            file = ObjectFile(content, subject=f"object {stats.name}", sums=sums)
            unread = file.check(stats, inflate=inflate)
            return cls(file.digits(), unread, file.zero_dates(unread), sums or file.sums())
        except ObjectUnsupported as error:
            return cls(unread={_WHOLE: error.message})

    def to_text(self) -> str | None:
        """JSON; None if there is nothing to say."""
        if not self.digits and not self.unread and not self.zero_dates:
            return None
        zero_dates = {"zero_dates": self.zero_dates} if self.zero_dates else {}
        return json.dumps({"digits": self.digits, "unread": self.unread, **zero_dates}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str | None) -> "Findings":
        """Raises ValueError for what `to_text` does not write."""
        if text is None:
            return cls()
        try:
            value = json.loads(text)
            digits = {int(seqnum): integer_of(number) for seqnum, number in value["digits"].items()}
            unread = {int(seqnum): text_of(reason) for seqnum, reason in value["unread"].items()}
            zero_dates = value.get("zero_dates", {})
            return cls(digits, unread, {int(seqnum): integer_of(number) for seqnum, number in zero_dates.items()})
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not what was found in a file: {text[:80]!r}") from error


def decimals(table: Table) -> list[Column]:
    """The columns whose digits are measured."""
    return [column for column in table.columns if column.type.oid in (DECIMAL64, DECIMAL128)]


def is_measured(table: Table) -> bool:
    """Whether what its files say of the columns is known, as far as this release can say it."""
    unread = (column.unread for column in table.columns)
    return all(column.digits for column in decimals(table)) and all(
        one is None or one.release == RELEASE for one in unread
    )


def with_findings(
    table: Table,
    known: Mapping[int, Column],
    files: Iterable[Findings],
    *,
    removed: Iterable[Findings] = (),
    whole: bool = False,
) -> Table:
    """The table with what is `known` of its columns, by seqnum, and what was found in further files.

    Parameters
    ----------
    removed : of files that the table no longer has; asked for only if they matter. A count of zero dates is not known
        any more if one of them cannot be read.
    whole : `files` are all that the table has.
    """
    digits = {column.seqnum: 1 for column in decimals(table)}
    digits |= {seqnum: known[seqnum].digits for seqnum in digits if seqnum in known and known[seqnum].digits}
    unread = {seqnum: column.unread for seqnum, column in known.items() if column.unread is not None}
    zero_dates = _counted(table, known, whole=whole)
    for file in files:
        _add(zero_dates, file.zero_dates, 1)
        for seqnum, number in file.digits.items():
            if seqnum in digits:
                digits[seqnum] = max(digits[seqnum], number)
        for seqnum, reason in file.unread.items():
            every = [column.seqnum for column in table.columns] if seqnum == _WHOLE else [seqnum]
            unread |= {one: Unread(reason, RELEASE) for one in every if one not in unread}
    if not whole and any(zero_dates.values()):
        try:
            for file in removed:
                _add(zero_dates, file.zero_dates, -1)
        except (MirrorDamaged, ObjectDamaged):  # it is not needed any more, and no reason to fail
            zero_dates = dict.fromkeys(zero_dates)
    columns = (
        replace(
            column,
            digits=digits.get(column.seqnum, 0),
            unread=unread.get(column.seqnum),
            zero_dates=zero_dates.get(column.seqnum),
        )
        for column in table.columns
    )
    return replace(table, columns=tuple(columns))


def _counted(table: Table, known: Mapping[int, Column], *, whole: bool) -> dict[int, int | None]:
    """By seqnum, how many zero dates the columns had that can have some."""
    dates = [column.seqnum for column in table.columns if column.type.oid in ZERO_DATE_TYPES]
    return {seqnum: known[seqnum].zero_dates if seqnum in known and not whole else 0 for seqnum in dates}


def _add(counts: dict[int, int | None], found: Mapping[int, int], sign: int) -> None:
    for seqnum, number in found.items():
        count = counts.get(seqnum)
        if count is not None:
            counts[seqnum] = max(0, count + sign * number)
