"""A service from its components: started in their order, ended in reverse."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ccpr.service.daemon.listening import Component


def serve(
    components: Sequence[Component],
    until: threading.Event,
    ready: Callable[[], None] = lambda: None,
    failed: Callable[[], bool] = lambda: False,
) -> bool:
    """Until the event is set. What a component raises when it starts ends those that were started before. Returns what
    `failed` said when the event was set.

    Parameters
    ----------
    ready : called when all have started.
    """
    with ExitStack() as started:
        for component in components:
            component.start()
            started.callback(component.stop)
        ready()
        until.wait()
        return failed()
