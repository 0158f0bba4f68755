"""What can be wrong with a mirror, and with what a reader asks of it."""

from ccpr.matrixone.errors import Terminal, Transient
from ccpr.matrixone.objects.errors import ObjectMismatch


class MirrorNotFound(Terminal):
    """There is no mirror at this place, or it has no point yet."""

    code = "MIRROR_NOT_FOUND"
    about = "folder or URL of a mirror"
    default_remedy = (
        "Check the spelling; `ccpr doctor NAME` shows where the mirror of a subscription is. `ccpr run NAME` "
        "makes its first point."
    )


class MirrorEncrypted(Terminal):
    """The files of the mirror are encrypted, and no key was given."""

    code = "MIRROR_ENCRYPTED"
    about = "file of a mirror"
    default_remedy = (
        "Say where the key is: behind the mirror's URL ?encrypt=file:/path, env:NAME or command; for a subscription "
        "`ccpr alter NAME --encrypt file:/path`. Without its key it cannot be read."
    )


class MirrorNotEncrypted(Terminal):
    """A key was given for a mirror whose files are not encrypted."""

    code = "MIRROR_NOT_ENCRYPTED"
    about = "mirror"
    default_remedy = (
        "Leave the key away, or copy it to a place where it is encrypted: `ccpr copy`. A second copy that stays "
        "in clear takes --in-clear, one of the setting ?encrypt=none."
    )


class KeyUnusable(Transient):
    """The key of an encrypted mirror cannot be had: its file or variable is missing, its command fails, or it is no
    key."""

    code = "KEY_UNUSABLE"
    about = "where the key is"
    default_remedy = "Put it there again; `ccpr key new` makes a new one, which opens nothing that is there already."


class KeyWrong(Transient):
    """A file of a mirror is encrypted with another key than those that were given."""

    code = "KEY_WRONG"
    about = "file of a mirror"
    default_remedy = (
        "Add the key with this number to the others, one a line: the first encrypts new files. `ccpr key show` "
        "lists the numbers."
    )


class BadOption(Terminal):
    """An option of the read is missing or cannot be understood: a point, columns, an option of Spark's data
    source."""

    code = "BAD_OPTION"
    about = "option"
    default_remedy = (
        'spark.read.format("matrixone").option("mirror", folder).option("table", "db.table"), and if wanted at, '
        "columns, hidden."
    )


class BadFilter(Terminal):
    """A filter is not written as one, names a column that the table does not have, or compares it with a value of
    another type."""

    code = "BAD_FILTER"
    about = "filter"
    default_remedy = (
        'Write ("column", "operator", value) with one of the operators = != < <= > >=, "in", "not in" '
        '(a list of values); or ("column", "is null"), ("column", "is not null").'
    )


class KeyChanged(Terminal):
    """A table was replaced by one with another key, so its rows at the two points cannot be matched."""

    code = "KEY_CHANGED"
    about = "table"
    default_remedy = "Read the table as a whole at the later point, and replace what was made of the earlier one."


class QueryFailed(Terminal):
    """DuckDB cannot run a statement of `ccpr query`: it is not SQL as DuckDB knows it, or names a missing table or
    column."""

    code = "QUERY_FAILED"
    about = "query"
    default_remedy = "Check it; `ccpr tables NAME` lists the tables, and `ccpr tables NAME TABLE` shows their columns."


class BadName(Terminal):
    """The name cannot be used in a path, a key or a partition."""

    code = "BAD_NAME"
    about = "name"
    default_remedy = "Choose a name of letters, digits, '_' and '-', at most 60 characters."


class TableMissingInMirror(Terminal):
    """The point has no table of this name, or several whose database and name are written the same way."""

    code = "TABLE_NOT_IN_POINT"
    about = "table"
    default_remedy = "See `ccpr tables NAME` for the tables of a point."


class PointNotReached(Terminal):
    """The replica, or this table of it, has not reached the point."""

    code = "POINT_NOT_REACHED"
    about = "point"
    default_remedy = "See `ccpr points NAME` for the points; omit --at for the newest."


class PointGone(Terminal):
    """The point is not kept any more, or the time is before the oldest one."""

    code = "POINT_GONE"
    about = "point"
    default_remedy = "See `ccpr points NAME` for the points that are kept."


class HoldMissing(Terminal):
    """No point of the mirror is held by this name."""

    code = "HOLD_MISSING"
    about = "held point"
    default_remedy = (
        "`ccpr points NAME` shows the held points with their names. A time is written as 2026-11-20T12:30:00."
    )


class MirrorDamaged(Terminal):
    """A file of the mirror is missing or differs from what was written."""

    code = "MIRROR_DAMAGED"
    about = "file of the mirror"
    default_remedy = (
        "`ccpr verify NAME --repair` fetches damaged objects again. `ccpr resync NAME --table DB.TABLE` also creates a "
        "lost manifest again. Else restore the named file from a copy, or, if old points alone have it, give these up: "
        "`ccpr points drop NAME --before LSN`."
    )


class StoreFailed(Transient):
    """The store refused a read or a write (full, read-only, unreachable)."""

    code = "STORE_FAILED"
    about = "file of the mirror"
    default_remedy = (
        "Free space or give access at the named place, then run it again: the iteration continues where it stopped."
    )


class StoreConflict(Terminal):
    """A file of the mirror exists already, with other bytes. Nothing is overwritten."""

    code = "STORE_CONFLICT"
    about = "file"
    default_remedy = (
        "Another program writes to this mirror, or it was put together from copies: `ccpr verify NAME` says which "
        "files are damaged."
    )


class TableWithoutKey(Terminal):
    """The table has neither a primary key nor the hidden one."""

    code = "TABLE_WITHOUT_KEY"
    about = "table"
    default_remedy = (
        "Hidden index tables have no key: leave the table out of the target. "
        "For another table report this text with its DDL."
    )


class KeysNotUnique(ObjectMismatch):
    """Two visible rows of one point have the same key."""


class KeysNotBytes(Terminal):
    """The packed keys of two rows are equal and a text in them differs: the upstream compares by a collation (decision
    keys-are-bytes)."""

    code = "KEYS_NOT_BYTES"
    about = "table"
    default_remedy = (
        "Give the columns of its key COLLATE utf8mb4_bin upstream, or leave the table out of targets. The mirror "
        "has it at each point."
    )
