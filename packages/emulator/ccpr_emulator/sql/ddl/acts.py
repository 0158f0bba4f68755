"""What a statement that was read does, and what it needs of a session."""

from collections.abc import Callable
from typing import Any, Protocol

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.backing import Login
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.sql.changes import Changes
from ccpr_emulator.sql.queries import Reader

Act = Callable[[], object]
_TOLERATED = {"create": (1007, 1050, 20101), "drop": (1049, 1051, 1146, 20101)}


class Context(Protocol):
    """What DDL needs of a session."""

    login: Login
    database: str
    reader: Reader
    changes: Changes

    @property
    def storage(self) -> Storage: ...


def all_of(acts: Any) -> Act:
    """One after the other."""
    whole = list(acts)

    def act() -> None:
        for one in whole:
            one()

    return act


def tolerated(tolerant: bool, verb: str, act: Callable[..., Any], *names: Any, **options: Any) -> None:
    """With IF EXISTS or IF NOT EXISTS (`tolerant`) it is not an error that something is missing, or is there."""
    try:
        act(*names, **options)
    except StatementError as error:
        if not tolerant or error.number not in _TOLERATED[verb] or "publishing" in error.text:
            raise
