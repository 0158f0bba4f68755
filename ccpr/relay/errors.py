"""The errors of the relay. Those that state and retention need, too, are in `ccpr.state.errors`."""

from ccpr.matrixone.errors import Terminal, Transient


class RelayListen(Terminal):
    """The relay cannot or must not listen at this address."""

    code = "RELAY_LISTEN"
    about = "address of the relay"
    default_remedy = "Choose another address: --listen HOST:PORT; of `ccpr serve`, --relay-listen HOST:PORT."


class RelayTls(Terminal):
    """The certificate or key for TLS cannot be used."""

    code = "RELAY_TLS"
    about = "file of a certificate or key"
    default_remedy = (
        "Give PEM files that belong together: --tls-cert FILE --tls-key FILE; to `ccpr serve`, --relay-tls-cert FILE "
        "--relay-tls-key FILE."
    )


class RelayText(Terminal):
    """A table's CREATE TABLE text is missing or cannot be served, so a MatrixOne cannot create it."""

    code = "RELAY_TEXT"
    about = "table"
    default_remedy = (
        "Rename the table upstream so that its name needs no blank or quote, run an iteration, and try again."
    )


class IndexTablesMissing(Terminal):
    """A table has indexes whose tables the mirror does not have. A MatrixOne would answer queries by empty ones."""

    code = "INDEX_TABLES_MISSING"
    about = "table"
    default_remedy = (
        "Make another subscription, to its database alone, with `ccpr subscribe … --with-indexes`; or load its "
        "rows: --into mysql://HOST:PORT/DATABASE."
    )


class DownstreamHasDatabase(Terminal):
    """The other cluster has a database of this name. Nothing is ever loaded into one that exists."""

    code = "DOWNSTREAM_HAS_DATABASE"
    about = "database of another cluster"
    default_remedy = "Choose another name with --as DATABASE, or drop the database there if it is not needed."


class DownstreamUnfit(Terminal):
    """The other cluster cannot take a copy: it lacks the statements, or the login may not use them."""

    code = "DOWNSTREAM_UNFIT"
    about = "other cluster"
    default_remedy = (
        "It must be a MatrixOne 4.0 or later, and the login one of account sys with the role moadmin (root, dump)."
    )


class RelayAddress(Terminal):
    """The other cluster must reach the relay, and the address that it can use is not known."""

    code = "RELAY_ADDRESS"
    about = "other cluster"
    default_remedy = (
        "Say where it reaches this machine, and listen there: --relay-address HOST:PORT --listen 0.0.0.0:PORT "
        "--insecure, or the end of a tunnel there with --listen 127.0.0.1:PORT here."
    )


class DownstreamRefused(Terminal):
    """The other cluster did not create the database from the relay; the message is its own."""

    code = "DOWNSTREAM_REFUSED"
    about = "other cluster"
    default_remedy = (
        "If it names a connection: --relay-address must be the address of the relay as that cluster sees it, and "
        "the relay must run without TLS."
    )


class FollowUnfit(Terminal):
    """No cluster can follow this subscription as it is, or under this name."""

    code = "FOLLOW_UNFIT"
    about = "subscription or database"
    default_remedy = "Choose another name for the database there: --as DATABASE."


class FollowerGone(Terminal):
    """The subscription of a follower no longer exists: it was dropped in that cluster."""

    code = "FOLLOWER_GONE"
    about = "follower"
    default_remedy = (
        "`ccpr follower remove NAME FOLLOWER` forgets it. To have it again, drop the database there and type "
        "`ccpr follower add` again."
    )


class FollowerStopped(Transient):
    """A follower has stopped with an error of its own. The relay resumes it, after an hour at most."""

    code = "FOLLOWER_STOPPED"
    about = "follower"
    default_remedy = (
        "The message is that cluster's. When its cause is gone, the same `ccpr follower add` resumes it at once. "
        "To load everything again: `ccpr follower remove NAME FOLLOWER --drop-database`, then `ccpr follower "
        "add`."
    )


class FollowerDropsHeld(Terminal):
    """Most or all tables are gone at the newest point. A follower's cluster would drop them, so it is shown no such
    point."""

    code = "FOLLOWER_DROPS_HELD"
    about = "follower"
    default_remedy = (
        "If they are to go: `ccpr follower approve NAME FOLLOWER`. When they are there again upstream, the follower "
        "goes on by itself."
    )


class FollowerPaused(Terminal):
    """The subscription of a follower was paused in that cluster."""

    code = "FOLLOWER_PAUSED"
    about = "follower"
    default_remedy = "To go on, type the same `ccpr follower add` again."


class FollowerFailing(Transient):
    """A follower makes no progress."""

    code = "FOLLOWER_FAILING"
    about = "follower"
    default_remedy = (
        "The message is that cluster's. Check that the relay runs (`ccpr status NAME` says where), and that it is "
        "reached from there."
    )


class DownstreamFailed(Terminal):
    """The other cluster stopped loading the copy, with an error of its own."""

    code = "DOWNSTREAM_FAILED"
    about = "subscription in another cluster"
    default_remedy = "The message is that cluster's. Try again; the loaded copy is dropped first."


class DownstreamSilent(Transient):
    """The other cluster has not asked the relay for anything for a long time."""

    code = "DOWNSTREAM_SILENT"
    about = "subscription in another cluster"
    default_remedy = (
        "Check that it runs, and that it reaches the relay; then type the same again. The loaded copy is dropped first."
    )


class CopyDiffers(Terminal):
    """The rows that were loaded are not those of the point. The copy was not released for writing."""

    code = "COPY_DIFFERS"
    about = "table of another cluster"
    default_remedy = (
        "Do not use it. Check the mirror with `ccpr verify NAME --deep`, and type the same again: what was loaded is "
        "dropped first."
    )
