"""Errors of a recording, and of a stream of changes."""

from ccpr.matrixone.errors import Terminal


class BadRecording(Terminal):
    """The folder is not a recording, or a file in it is damaged."""

    code = "CCPR_EMULATOR_RECORDING"
    about = "file of a recording"
    default_remedy = (
        "Point --recording at a folder with about.json and snapshot-001; if a file in it is damaged, take the "
        "recording again."
    )


class RecordUnusable(Terminal):
    """The record of a load is missing, unreadable, cannot be written, or is of a load with other options."""

    code = "LOAD_RECORD_UNUSABLE"
    about = "file"
    default_remedy = (
        "Name the file that `ccpr workload run --record` has written, or begin a new load with another file."
    )


class LoadLost(Terminal):
    """The database lacks changes that it acknowledged, or has changes that this load did not make."""

    code = "LOAD_LOST"
    about = "database"
    default_remedy = (
        "Do not use the record with a database that was restored, or to which two loads write. For a new load drop the "
        "database and delete the record."
    )


class LoadDiffers(Terminal):
    """The rows differ from those of the record."""

    code = "LOAD_DIFFERS"
    about = "what was compared"
    default_remedy = (
        "Keep record and rows, and report them. `ccpr workload check` names the first keys that differ; only "
        "`ccpr workload run` may write to the tables."
    )


class NeverAnswered(Exception):
    """A real upstream never answers this statement."""
