"""An upstream without a MatrixOne: serves a recording over the MySQL protocol, on loopback.

Use::

    # listens on 127.0.0.1:emulator.port, in threads of this process
    with RecordedUpstream(folder) as emulator:
        connection = pymysql.connect(host="127.0.0.1", port=emulator.port, user="root", use_unicode=False, conv={}, autocommit=True)
        ...
        emulator.status().sessions_that_fetched   # counters: see `wire.status.Status`
        emulator.log()                            # the statements that arrived: see `wire.status.Logged`
        emulator.inject(CutObject(after_bytes=1000))   # faults: see `wire.faults`
        emulator.drop_snapshot("xr_1_2_0")        # behind the client's back
        emulator.disconnect_all()                 # as a restart of the upstream would

The same counters come over the wire with ``SHOW EMULATOR STATUS`` (name, value).

What it plays: the n-th new snapshot that a client takes shows the n-th recorded one, with the recorded timestamp;
after the last one the last state stays, one second later each time. A snapshot is not flushed until
``mo_ctl('dn','flush', …)`` came for each of its tables or ``mo_ctl('dn','checkpoint','')``, or `flush_after` seconds
went by; until then object lists show what was flushed before it. Any publication name of the recorded publisher is
accepted unless `strict_publication`. Rows of user tables are not served.
"""

import ssl
from pathlib import Path

from emulator.replay.recording import Recording, open_recording
from emulator.replay.state import ReplayState
from wire.backing import Snapshot
from wire.serving import Served
from wire.upstream import CHUNK_BYTES, Upstream


class RecordedUpstream(Served):
    """A server that plays one recording. A context manager; or call `start` and `stop`.

    Parameters
    ----------
    recording : a recording's folder, or one already opened.
    port : 0 takes a free one.
    password : what every login must know; None admits any.
    chunk_bytes : size of get_object's chunks.
    flush_after : seconds after which a snapshot's rows are on storage by themselves; None = only when asked.
    may_flush : False refuses mo_ctl, as for a role without the privilege.
    strict_publication : only the recorded publication name exists.
    tls : a server-side context, to offer TLS.

    Raises
    ------
    BadRecording : the folder is no recording.
    OSError : the port is taken.
    """

    def __init__(
        self,
        recording: Path | Recording,
        *,
        port: int = 0,
        password: str | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        flush_after: float | None = None,
        may_flush: bool = True,
        strict_publication: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        opened = recording if isinstance(recording, Recording) else open_recording(recording)
        self._state = ReplayState(opened, flush_after=flush_after, strict_publication=strict_publication)
        super().__init__(Upstream(self._state, chunk_bytes, may_flush), port=port, password=password, tls=tls)

    @property
    def recording(self) -> Recording:
        return self._state.recording

    def __enter__(self) -> "RecordedUpstream":
        self.start()
        return self

    def snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots that exist, oldest first."""
        return tuple(self._state.snapshots(self.recording.publisher))

    def drop_snapshot(self, name: str) -> None:
        """Take a snapshot away as another client would; nothing happens if it is not there."""
        self._state.drop_snapshot(self.recording.publisher, name, if_exists=True)
