"""What can be wrong with a restore or a drill."""

from ccpr.matrixone.errors import Terminal


class RestoreIncomplete(Terminal):
    """Tables of a point could not be loaded into a database; the others are there."""

    code = "RESTORE_INCOMPLETE"
    about = "tables"
    default_remedy = "Do what the message says of each, and type the same again: what is there is not loaded twice."


class RestoredDiffers(Terminal):
    """What was loaded into a database, or written to a file, is not what was read for it."""

    code = "RESTORED_DIFFERS"
    about = "table"
    default_remedy = "Look who else writes there. Drop it and restore again."


class DrillFailed(Terminal):
    """A drill has restored a point, and what it found is not what was recorded, or a table could not be restored."""

    code = "DRILL_FAILED"
    about = "point"
    default_remedy = (
        "`ccpr drill NAME --history` shows what differed. `ccpr verify NAME --deep` says which files are damaged, and "
        "fetches what the upstream still has."
    )


class ScratchTaken(Terminal):
    """The place in which a drill restores has something that the drill did not make."""

    code = "SCRATCH_TAKEN"
    about = "folder or database"
    default_remedy = "Name an empty folder, or a server on which the login may make databases."
