"""When a program that starts often collects garbage: not while it imports. Imports make 140,000 objects that live as
long as the process; to look through them again and again, and twice more at its end, takes a third of a small command's
time."""

import atexit
import gc
from typing import Any

_FIRST_COLLECTION = 300_000  # objects that must be made before it: twice what the imports of an iteration make


def collect_late() -> None:
    """Collect nothing before so many objects were made, what is there by then never, and at the end of the process
    nothing. From the first collection on all is as usual. To be called once, by a program."""
    usual = gc.get_threshold()

    def first(phase: str, _: dict[str, Any]) -> None:
        if phase == "stop":
            gc.callbacks.remove(first)
            gc.freeze()
            gc.set_threshold(*usual)

    gc.set_threshold(_FIRST_COLLECTION, *usual[1:])
    gc.callbacks.append(first)
    atexit.register(gc.freeze)
