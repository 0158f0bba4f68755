"""What can be wrong with an object, read or written: typed errors, all terminal. Source: docs/architecture.md, "What
bad input gets"."""

from typing import ClassVar

from ccpr.matrixone.errors import CcprError, Terminal


class ObjectDamaged(Terminal):
    """The object's bytes contradict the format or themselves."""

    code: ClassVar[str] = "OBJECT_DAMAGED"
    about: ClassVar[str] = "object"
    default_remedy: ClassVar[str] = (
        "`ccpr run NAME` fetches it again; if it stays damaged, the upstream's own file is damaged: "
        "`ccpr alter NAME --consistency isolated` lets the other tables go on."
    )


class ObjectChanged(ObjectDamaged):
    """A part of the object's file does not have the checksum with which it was copied."""

    code: ClassVar[str] = "OBJECT_CHANGED"
    default_remedy: ClassVar[str] = "`ccpr verify NAME --repair` fetches it again."


class ObjectUnsupported(Terminal):
    """The object is of a version, type or size that this release does not read. It is copied."""

    code: ClassVar[str] = "OBJECT_UNSUPPORTED"
    about: ClassVar[str] = "object"
    default_remedy = (
        "Read the other columns (`ccpr tables NAME` names those that cannot be read), or use a release that knows"
        " this one."
    )


_NEXT = 8  # numbers of a form that later releases may have


def unknown_form(what: str, number: int, newest: int, *, subject: str) -> CcprError:
    """The error for the number of a form (a version, an algorithm) that is not known. Forms are numbered one after the
    other: the next ones are a later MatrixOne's; what is far from them is damage."""
    kind = ObjectUnsupported if newest < number <= newest + _NEXT else ObjectDamaged
    return kind(f"{what} {number} is not known to this release", subject=subject)


class ValueRefused(Terminal):
    """A column holds a value that cannot be read as the requested type."""

    code: ClassVar[str] = "VALUE_REFUSED"
    about: ClassVar[str] = "column"
    default_remedy: ClassVar[str] = "Read the other columns, or ask for another type: see docs/reference/types.md."


class ObjectMismatch(Terminal):
    """The object is sound, but not the one that the object list or the table's schema describes."""

    code: ClassVar[str] = "OBJECT_MISMATCH"
    about: ClassVar[str] = "object"
    default_remedy: ClassVar[str] = (
        "`ccpr run NAME` reads catalog and list at a new snapshot; if they still disagree, report it with this text."
    )


class BadObjectName(Terminal):
    """A text that was to be used in a path or a statement is not the name of an object."""

    code: ClassVar[str] = "BAD_OBJECT_NAME"
    about: ClassVar[str] = "object"
    default_remedy: ClassVar[str] = (
        "Look at where the name came from: the upstream's object list never gives such a name."
    )


class NotWritable(Terminal):
    """The rows that are to be written into an object do not fit the table's types, or the format."""

    code: ClassVar[str] = "NOT_WRITABLE"
    about: ClassVar[str] = "object"
    default_remedy: ClassVar[str] = (
        "Correct the value that the message names, or declare the column with a type that holds it."
    )
