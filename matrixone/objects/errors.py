"""What can be wrong with an object: four typed errors, all terminal. Source: architecture.md, "What bad input gets"."""

from typing import ClassVar

from matrixone.errors import Terminal


class ObjectDamaged(Terminal):
    """The bytes contradict the format or themselves."""

    code: ClassVar[str] = "OBJECT_DAMAGED"
    default_remedy: ClassVar[str] = "Fetch the object again from the upstream; if it stays damaged, the upstream's own file is."


class ObjectUnsupported(Terminal):
    """The bytes are well-formed but of a version, type or size that this release does not read."""

    code: ClassVar[str] = "OBJECT_UNSUPPORTED"
    default_remedy: ClassVar[str] = "Leave this table out of the subscription, or use a release that knows this format."


class ObjectMismatch(Terminal):
    """The object is sound, but it is not the one that the object list or the table's schema describes."""

    code: ClassVar[str] = "OBJECT_MISMATCH"
    default_remedy: ClassVar[str] = (
        "Read the catalog and the object list again at one snapshot; if they still disagree, fetch the object again."
    )


class BadObjectName(Terminal):
    """A text that is to become a path or a statement is not an object's name."""

    code: ClassVar[str] = "BAD_OBJECT_NAME"
    default_remedy: ClassVar[str] = "Look at where the name came from: the upstream's object list never gives such a name."
