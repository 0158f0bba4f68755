"""Errors of a stream of changes."""

from ccpr.matrixone.errors import Terminal


class RecordUnusable(Terminal):
    """The record of a load is missing, is not one, cannot be written, or is of another load than the options say."""

    code = "LOAD_RECORD_UNUSABLE"
    about = "file"
    default_remedy = (
        "Name the file that `ccpr workload run --record` has written, or begin a new load with another file."
    )


class LoadLost(Terminal):
    """The database does not have changes that it acknowledged, or has changes that this load did not make. The load
    cannot go on there."""

    code = "LOAD_LOST"
    about = "database"
    default_remedy = (
        "Do not use the record with a database that was restored, or that two loads write to. For a new load drop the "
        "database and delete the record."
    )


class LoadDiffers(Terminal):
    """The rows are not those that the record says."""

    code = "LOAD_DIFFERS"
    about = "what was compared"
    default_remedy = (
        "Keep record and rows, and report them. `ccpr workload check` names the first keys that differ; other writers "
        "than `ccpr workload run` must not touch the tables."
    )
