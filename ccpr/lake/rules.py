"""How the tables of a lake are published, as values that need no Arrow."""

from dataclasses import dataclass
from enum import StrEnum


class Mapped(StrEnum):
    """How the columns of the files are called."""

    NONE = "none"  # as the columns of the table
    NAME = "name"  # by number: a RENAME COLUMN changes no file. Delta calls this column mapping


@dataclass(frozen=True, slots=True)
class TableRules:
    """How a table is published.

    Attributes
    ----------
    mapped : how the columns of the files are called.
    copy_on_write : files are written again where rows of them go, and there are no deletion vectors.
    change_data : the changes of rows are published as files of their own.
    """

    mapped: Mapped = Mapped.NONE
    copy_on_write: bool = False
    change_data: bool = False


DEFAULT_RULES = TableRules()
