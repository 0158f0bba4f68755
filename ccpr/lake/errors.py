"""What can go wrong at a lake, each with a code and a remedy."""

from ccpr.matrixone.errors import Terminal, Transient


class LakeChanged(Terminal):
    """Somebody else wrote to a table of the lake (OPTIMIZE, VACUUM, an insert), or its files have changed. Nothing more
    is published to it."""

    code = "LAKE_CHANGED"
    about = "table of a lake"
    default_remedy = (
        "Let only ccpr write to the lake. `ccpr target rebuild NAME TARGET TABLE` publishes the table anew."
    )


class LakeForeign(Terminal):
    """The place belongs to another subscription, or holds a table that ccpr has not made."""

    code = "LAKE_FOREIGN"
    about = "lake"
    default_remedy = "Nothing was changed. Name another folder or prefix, or delete what is there if it is not needed."


class LakeAhead(Transient):
    """The lake shows a later state of the upstream than the mirror: the mirror is an older copy that was restored."""

    code = "LAKE_AHEAD"
    about = "lake"
    default_remedy = "Nothing was changed. The next iteration reaches the lake's state, and it is published from there."


class LakeConflict(Transient):
    """Another process has published to the same table at this moment."""

    code = "LAKE_CONFLICT"
    about = "table of a lake"
    default_remedy = "It is tried again from what the other process has published. Two services must not share a lake."


class LakeStoreUnsafe(Terminal):
    """The store cannot create a file only if it does not exist, so a commit could replace another."""

    code = "LAKE_STORE_UNSAFE"
    about = "lake"
    default_remedy = (
        "Use a store that knows `If-None-Match: *` (S3 and most with its protocol), or a folder with hard links."
    )


class LakeTableRefused(Terminal):
    """The table cannot be a table of the lake's format as it is defined."""

    code = "LAKE_TABLE_REFUSED"
    about = "table"
    default_remedy = "Change the table upstream, or leave it out of the lake with `--tables`."


class LakeTableUnknown(Terminal):
    """The lake has no such table."""

    code = "LAKE_TABLE_UNKNOWN"
    about = "table"
    default_remedy = "`ccpr target status NAME` lists its tables. Use the name upstream, t or db.t."


class IcebergFailed(Transient):
    """Iceberg's library, or the catalog that it speaks to, does not do what it was asked."""

    code = "ICEBERG_FAILED"
    about = "Iceberg catalog or table"
    default_remedy = "It is tried again. What the message says, or the catalog's own log, says why."


class IcebergJarMissing(Terminal):
    """Iceberg's own library is not there, or is another file than expected."""

    code = "ICEBERG_JAR_MISSING"
    about = "jar"
    default_remedy = (
        "Install Maven (`mvn`), which fetches it once; or put the file into a folder and name that in "
        "CCPR_ICEBERG_JARS."
    )
