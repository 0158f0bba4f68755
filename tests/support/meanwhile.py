"""What happens upstream between two statements of a session."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ccpr.matrixone.client.upstream_session import Session
from tests.support.patching import replaced


@contextmanager
def before_statements(action: Callable[[str], None]) -> Iterator[None]:
    """During the block `action` is called with each statement that this thread is about to send, by any session."""
    here = threading.get_ident()

    def first(original: Callable[..., Any]) -> Callable[..., Any]:
        def method(session: Session, sql: str, *arguments: object, **options: object) -> object:
            if threading.get_ident() == here:
                action(sql)
            return original(session, sql, *arguments, **options)

        return method

    with ExitStack() as held:
        for name in ("_run", "stream"):
            held.enter_context(replaced("ccpr.matrixone.client.upstream_session", f"Session.{name}", first))
        yield


@contextmanager
def once_before(part: str, action: Callable[[], object]) -> Iterator[None]:
    """`action` is called once, before the first statement that has this part. The block fails if there is none."""
    done = False

    def act(sql: str) -> None:
        nonlocal done
        if part in sql and not done:
            done = True
            action()

    with before_statements(act):
        yield
    assert done, f"no statement has {part!r}"
