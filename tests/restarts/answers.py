"""What real servers answered around their stops, kills and starts, and while statements waited for locks: kinds of
statements, number, text. Measured on MatrixOne 4.0, 4.2 and a main of August 2026 (docs/reliability.md,
"What servers say"). Kinds are those that the emulator counts (docs/reference/emulator.md); `login` is one, too.

The tables here are what the test of the classification and the rounds of restarts play.
"""

from dataclasses import dataclass, field
from typing import Final

LOST: Final = 2013  # no answer: the connection breaks
CREATE, DROP, LOGIN = "create_snapshot", "drop_snapshot", "login"
CHANGES: Final = (CREATE, DROP)
CATALOG: Final = ("select_mo_database", "select_mo_tables", "select_mo_columns")
COMMANDS: Final = (
    "get_snapshot_ts",
    "check_snapshot_flushed",
    "get_ddl",
    "get_databases",
    "get_mo_indexes",
    "object_list",
    "get_object",
)
READS: Final = (*COMMANDS, *CATALOG, "show_publication_coverage", "mo_ctl", "select")
ALL: Final = (*CHANGES, *READS)
OF: Final = "sys p"
STATEMENTS: Final = {
    CREATE: "CREATE SNAPSHOT IF NOT EXISTS `s` FOR DATABASE `d` FROM `sys` PUBLICATION `p`",
    DROP: "DROP SNAPSHOT IF EXISTS `s` FROM `sys` PUBLICATION `p`",
    "get_snapshot_ts": f"__++__internal_get_snapshot_ts s {OF}",
    "check_snapshot_flushed": f"__++__internal_check_snapshot_flushed s {OF}",
    "get_ddl": f"__++__internal_get_ddl s {OF} database d -",
    "get_databases": f"__++__internal_get_databases s {OF} account - -",
    "get_mo_indexes": f"__++__internal_get_mo_indexes 272515 {OF} s",
    "object_list": f"__++__internal_object_list s - {OF}",
    "get_object": f"__++__internal_get_object {OF} 01a1fbac-0e0a-76cf-9a9e-edfe00740d11_00000 1",
    "select_mo_database": "SELECT dat_id FROM mo_catalog.mo_database {mo_ts = 5} WHERE account_id = 0",
    "select_mo_tables": "SELECT relname FROM mo_catalog.mo_tables {mo_ts = 5} WHERE account_id = 0",
    "select_mo_columns": "SELECT attname FROM mo_catalog.mo_columns {mo_ts = 5} WHERE account_id = 0",
    "show_publication_coverage": "SHOW PUBLICATION COVERAGE `p`",
    "mo_ctl": "SELECT mo_ctl('dn','flush','272515')",
    "select": "SELECT version()",
    "select_rows": "SELECT `n` FROM `d`.`t` {mo_ts = 5}",
    LOGIN: "connect",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """An error, and to which kinds of statements it was given. `when`: TERM (an orderly stop), KILL, TN (another node
    of the cluster was stopped or killed)."""

    kinds: tuple[str, ...]
    number: int
    text: str
    when: tuple[str, ...] = ("TERM",)


def _internal(kinds: tuple[str, ...], text: str, *when: str) -> Answer:
    return Answer(kinds, 20101, f"internal error: {text}", when or ("TERM",))


WAIT_ACTIVE: Final = "context canceled transaction error: wait active"
UNKNOWN_COMMIT: Final = "txn commit status is unknown: 0a1b2c3d4e5f60718293a4b5c6d7e8f9"
BROKEN_PIPE: Final = "write tcp4 127.0.0.1:36210->127.0.0.1:34102: write: broken pipe"
LOST_TEXT: Final = "Lost connection to MySQL server during query"
STOPS: Final = (
    Answer(ALL, 1105, "context canceled"),
    Answer(ALL, 1105, WAIT_ACTIVE),
    Answer(ALL, 1053, "Server shutdown in progress"),
    Answer(CHANGES, 20638, UNKNOWN_COMMIT),
    Answer(ALL, LOST, LOST_TEXT, ("TERM", "KILL")),
    Answer(ALL, LOST, f"{LOST_TEXT} ([Errno 104] Connection reset by peer)", ("TERM", "KILL")),
    Answer(CHANGES, 20702, "lock table bind changed", ("TN",)),
    _internal((*CHANGES, *COMMANDS), "failed to query publication info: context canceled"),
    _internal(
        ("get_snapshot_ts", "get_ddl", "get_mo_indexes", "object_list"), "failed to query snapshot: context canceled"
    ),
    _internal(("object_list",), "failed to resolve snapshot 's': context canceled"),
    _internal(("get_ddl", "object_list"), "failed to get database: context canceled"),
    _internal(("get_ddl", "object_list"), "failed to get table: context canceled"),
    _internal(("get_ddl",), "failed to get table names: context canceled"),
    _internal(("object_list",), "failed to get relations: context canceled"),
    _internal(("get_mo_indexes",), "failed to query mo_indexes: context canceled"),
    _internal(("mo_ctl",), "force flush failed: context canceled", "TN"),
    _internal(("select_rows",), "panic context canceled: runtime.Callers: goroutine 7 [running]"),
    Answer(("select_rows",), 1105, "internal error: panic context canceled: runtime.Callers: goroutine 7 [running]"),
    Answer((*CATALOG, "mo_ctl"), 20638, UNKNOWN_COMMIT, ("TN",)),
    _internal(("get_ddl", "object_list"), f"failed to get database: {UNKNOWN_COMMIT}", "TN"),
    _internal(("get_mo_indexes",), f"failed to query mo_indexes: {UNKNOWN_COMMIT}", "TN"),
    _internal(("get_ddl",), "failed to get database: backend connection closed", "TN"),
    _internal(("object_list",), f"failed to get database: {BROKEN_PIPE}", "TN"),
    Answer(CATALOG, 1105, BROKEN_PIPE, ("TN",)),
)
LOGINS: Final = (
    Answer((LOGIN,), 2003, "Can't connect to MySQL server on '127.0.0.1' ([Errno 111] Connection refused)"),
    Answer((LOGIN,), LOST, LOST_TEXT, ("TERM", "KILL")),
    Answer((LOGIN,), LOST, f"{LOST_TEXT} ([Errno 104] Connection reset by peer)", ("TERM", "KILL")),
    Answer((LOGIN,), 1815, "context canceled"),
    Answer((LOGIN,), 1815, WAIT_ACTIVE),
    Answer((LOGIN,), 1105, "context canceled"),
    Answer((LOGIN,), 1105, WAIT_ACTIVE),
    Answer((LOGIN,), 1053, "Server shutdown in progress"),
)
# Of locks and load; CREATE SNAPSHOT was never answered so, it waited.
WAITS: Final = (
    Answer(ALL, 1205, "Lock wait timeout exceeded; try restarting transaction"),
    Answer(ALL, 20709, "remote lock wait timeout"),
    Answer(ALL, 20701, "deadlock detected"),
    Answer(ALL, 20619, "w-w conflict"),
)
# In the source of the server, and never seen: by their texts all are to be tried again.
NOT_SEEN: Final = tuple(
    Answer(ALL, number, text)
    for number, text in (
        (20500, "rpc timeout"),
        (20501, "rpc client closed"),
        (20502, "backend connection closed"),
        (20503, "rpc stream closed"),
        (20504, "no available backend"),
        (20505, "cannot connect to backend"),
        (20506, "service unavailable"),
        (20600, "the transaction 0a1b2c3d has been committed or aborted"),
        (20605, "dn shard uuid: , id: 1 not found"),
        (20609, "rpc error"),
        (20628, "txn need retry in rc mode"),
        (20631, "txn need retry in rc mode, def changed"),
        (20634, "retry for CN rolling restart"),
        (20635, "new txn in CN rolling restart"),
        (20703, "lock table not found on remote lock service"),
        (20705, "cannot commit a orphan transaction"),
        (20706, "lock options conflict"),
        (20710, "lock wait timeout"),
    )
)
_CHECKPOINTS: Final = (
    "No available checkpoints for snapshot read at:1795493098324711490-0, table:mo_database, tid:1, "
    "txn:0a1b2c3d/Active/S:1795493098324711490-0"
)
# Of a past that is there, and that the server does not find after a restart.
LOST_PAST: Final = (
    _internal((*CATALOG, "check_snapshot_flushed"), _CHECKPOINTS),
    _internal(("get_ddl", "object_list"), f"failed to get database: internal error: {_CHECKPOINTS}"),
    _internal(("get_mo_indexes",), f"failed to query mo_indexes: internal error: {_CHECKPOINTS}"),
    Answer(("check_snapshot_flushed",), 0, "ExpectedEOB"),
    _internal(
        ("get_mo_indexes",),
        'failed to query mo_indexes: SQL parser error: table "mo_indexes" does not exist',
    ),
)


@dataclass(frozen=True, slots=True)
class End:
    """What is answered where something really is not there or not permitted, and the code of it."""

    kind: str
    number: int
    text: str
    code: str


_NO_RECORD: Final = "internal error: find 0 snapshot records by name(s), expect only 1"
ENDS: Final = (
    *(
        End(kind, 20101, "internal error: publication sys.p does not exist", "PUBLICATION_MISSING")
        for kind in (*CHANGES, *COMMANDS)
    ),
    End("get_snapshot_ts", 20101, _NO_RECORD, "SNAPSHOT_GONE"),
    End("get_ddl", 20101, f"internal error: failed to query snapshot: {_NO_RECORD}", "SNAPSHOT_GONE"),
    End(
        "object_list",
        20101,
        f"internal error: failed to resolve against snapshot 's': {_NO_RECORD}",
        "SNAPSHOT_GONE",
    ),
    End(DROP, 20101, "internal error: snapshot s does not exist", "SNAPSHOT_GONE"),
    End(CREATE, 1062, "Duplicate entry 's' for key 'sname'", "SNAPSHOT_EXISTS"),
    End(CREATE, 20101, "internal error: database d does not exist", "DATABASE_MISSING"),
    End(CREATE, 20101, "internal error: table d.t does not exist", "TABLE_MISSING"),
    End("get_ddl", 20101, "internal error: failed to get database: ExpectedEOB", "DATABASE_MISSING"),
    End("object_list", 20101, "internal error: failed to get database: ExpectedEOB", "DATABASE_MISSING"),
    End("get_ddl", 20101, "internal error: failed to get table: no such table d.t", "TABLE_MISSING"),
    End("get_object", 20405, "file 01a1fbac-0e0a-76cf-9a9e-edfe00740d11_00000 is not found", "OBJECT_GONE"),
    End("select_rows", 1049, "Unknown database d", "DATABASE_MISSING"),
    End(LOGIN, 1045, "Access denied for user u. internal error: check password failed", "ACCESS_DENIED"),
    End(LOGIN, 20101, "internal error: there is no user u", "ACCESS_DENIED"),
    End(LOGIN, 20101, "internal error: there is no tenant acc9", "ACCESS_DENIED"),
    End(LOGIN, 20101, "internal error: there is no role r", "ACCESS_DENIED"),
)


@dataclass(frozen=True, slots=True)
class Given:
    """One answer to one kind of statement."""

    kind: str
    number: int
    text: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.kind}: {self.number} {self.text[:100]}"


def given(answers: tuple[Answer, ...]) -> list[Given]:
    """Each answer to each kind of statement that got it."""
    return [Given(kind, answer.number, answer.text) for answer in answers for kind in answer.kinds]


def at_a_stop(kind: str) -> list[Answer]:
    """What an orderly stop of a server may answer to a statement of this kind, or to a login."""
    if kind != LOGIN and kind not in ALL:
        kind = "select"
    return [one for one in (*STOPS, *LOGINS) if kind in one.kinds and "TERM" in one.when and one.number != 2003]
