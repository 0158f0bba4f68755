"""An upstream without a MatrixOne: serves a recording over the MySQL protocol, on loopback.

Use::

    # listens on 127.0.0.1:emulator.port, in threads of this process
    with RecordedUpstream(folder) as emulator:
        connection = pymysql.connect(host="127.0.0.1", port=emulator.port, user="root", autocommit=True)
        ...
        emulator.status().sessions_that_fetched   # counters
        emulator.log()                            # the statements that arrived: see
        `ccpr_emulator.serving.emulated_upstream.Logged` emulator.inject(CutObject(after_bytes=1000))   # faults: see
        `ccpr_emulator.serving.faults`
        emulator.drop_snapshot("xr_1_2_0")        # without the client
        emulator.disconnect_all()                 # as a restart of the upstream would

``SHOW EMULATOR STATUS`` returns the same counters (name, value).

The n-th new snapshot that a client takes shows the n-th recorded one, with the recorded timestamp; after the last one
further snapshots show the last state, each one second later. A snapshot is flushed after ``mo_ctl('dn','flush', …)``
for each of its tables, after ``mo_ctl('dn','checkpoint','')``, or after `flush_after` seconds; until then object lists
show what was flushed before it. Any publication name of the recorded publisher is accepted unless
`strict_publication`. Rows of user tables are not served.
"""

import ssl
from pathlib import Path

from ccpr.matrixone.server.backing import Snapshot
from ccpr.matrixone.server.upstream import CHUNK_BYTES, Release
from ccpr_emulator.replay.recording import Recording, open_recording
from ccpr_emulator.replay.state import ReplayState
from ccpr_emulator.serving.emulated_upstream import EmulatedUpstream
from ccpr_emulator.serving.served import ServedUpstream


class RecordedUpstream(ServedUpstream):
    """A server that plays one recording. A context manager; or call `start` and `stop`.

    Parameters
    ----------
    recording : a recording's folder, or an opened recording.
    port : 0 for a free one.
    password : of every login; None admits any.
    chunk_bytes : size of get_object's chunks.
    flush_after : seconds after which a snapshot's rows are on storage without a request; None = only on request.
    may_flush : False refuses mo_ctl, as for a role without the privilege.
    strict_publication : only the recorded publication name exists.
    release : which MatrixOne's statements it answers.
    tls : a server-side context, to offer TLS.

    Raises
    ------
    BadRecording : the folder is not a recording.
    OSError : the port is in use.
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
        release: Release = "4.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        opened = recording if isinstance(recording, Recording) else open_recording(recording)
        self._state = ReplayState(opened, flush_after=flush_after, strict_publication=strict_publication)
        super().__init__(
            EmulatedUpstream(self._state, chunk_bytes, may_flush, release=release),
            port=port,
            password=password,
            tls=tls,
        )

    @property
    def recording(self) -> Recording:
        return self._state.recording

    def snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots that exist, oldest first."""
        return tuple(self._state.snapshots(self.recording.publisher))

    def drop_snapshot(self, name: str) -> None:
        """Drop a snapshot as another client would; does nothing if it does not exist."""
        self._state.drop_snapshot(self.recording.publisher, name, if_exists=True)
