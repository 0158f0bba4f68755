"""A service from its components: started in their order, ended in reverse."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ccpr.serve.listening import Component


def serve(
    components: Sequence[Component],
    wait: Callable[[], None],
    ready: Callable[[], None] = lambda: None,
    failed: Callable[[], bool] = lambda: False,
) -> bool:
    """Until `wait` returns. What a component raises when it starts ends those that were started before. Returns what
    `failed` said then.

    Parameters
    ----------
    ready : called when all have started.
    """
    with ExitStack() as started:
        for component in components:
            component.start()
            started.callback(component.stop)
        ready()
        wait()
        return failed()
