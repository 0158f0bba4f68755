"""What can be wrong with a state file, and with a second copy."""

from ccpr.matrixone.errors import Terminal


class BadStateFile(Terminal):
    """The file is not a subscription's state as `ccpr state export` writes it, or contradicts itself."""

    code = "STATE_FILE_INVALID"
    about = "file"
    default_remedy = (
        "Nothing was written. Import the file as it was exported, or another export of the same subscription."
    )


class StateFileNewer(Terminal):
    """The state was exported by a newer version of this program."""

    code = "STATE_FILE_NEWER"
    about = "file"
    default_remedy = "Nothing was written. Import it with a version at least as new as that one."


class MirrorContradictsState(Terminal):
    """The mirror does not belong to the exported state, or is older or newer than it."""

    code = "MIRROR_CONTRADICTS_STATE"
    about = "mirror"
    default_remedy = (
        "Nothing was written. Import the state of the same age as the mirror. If there is none, subscribe again "
        "with another mirror."
    )


class CopyDiverged(Terminal):
    """The newest point of the second copy is not in the mirror's history: the mirror was restored from an older copy,
    is written anew, or has lost what it noted of the copy. Nothing was changed."""

    code = "COPY_DIVERGED"
    about = "second copy"
    default_remedy = (
        "Keep it, and copy to another place with --to; or go on from it: `ccpr copy NAME --promote URL`; or lose "
        "what only it has: `ccpr copy NAME --to URL --give-up LSN`, its newest point."
    )
