"""An upstream without a MatrixOne: serves a recording over the MySQL protocol, on loopback.

Use::

    with Emulator(folder) as emulator:            # listens on 127.0.0.1:emulator.port, in threads of this process
        connection = pymysql.connect(host="127.0.0.1", port=emulator.port, user="root", use_unicode=False, conv={}, autocommit=True)
        ...
        emulator.status().sessions_that_fetched   # counters: see `emulator.status.Status`
        emulator.log()                            # the statements that arrived: see `emulator.status.Logged`
        emulator.inject(CutObject(after_bytes=1000))   # faults: see `emulator.faults`
        emulator.drop_snapshot("xr_1_2_0")        # behind the client's back
        emulator.disconnect_all()                 # as a restart of the upstream would

The same counters come over the wire with ``SHOW EMULATOR STATUS`` (name, value).

What it plays: the n-th new snapshot that a client takes shows the n-th recorded one, with the recorded timestamp; after the last one the
last state stays, one second later each time. A snapshot is not flushed until ``mo_ctl('dn','flush', …)`` came for each of its tables or
``mo_ctl('dn','checkpoint','')``, or `flush_after` seconds went by; until then object lists show what was flushed before it. Any
publication name of the recorded publisher is accepted unless `strict_publication`. Rows of user tables are not served.
"""

import ssl
from functools import partial
from pathlib import Path
from types import TracebackType

from emulator.backing import Snapshot
from emulator.faults import Fault
from emulator.recording import Recording, open_recording
from emulator.session import Logins
from emulator.state import State
from emulator.status import Logged, Status
from emulator.upstream import CHUNK_BYTES, Upstream
from emulator.wire import Server


class Emulator:
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
        self._state = State(opened, flush_after=flush_after, strict_publication=strict_publication)
        self._upstream = Upstream(self._state, chunk_bytes, may_flush)
        self._serve = partial(Server, Logins(self._upstream), password=password, tls=tls)
        self._server = self._serve(port=port)

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def recording(self) -> Recording:
        return self._state.recording

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        """Ends every connection and waits for the threads."""
        self._upstream.faults.clear()
        self._server.stop()

    def restart(self) -> None:
        """After `stop`: the same upstream at the same port, with its snapshots and what was flushed."""
        self._server = self._serve(port=self.port)
        self.start()

    def __enter__(self) -> "Emulator":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def status(self) -> Status:
        return self._upstream.status()

    def log(self) -> tuple[Logged, ...]:
        """The last 10,000 statements, oldest first."""
        return self._upstream.counters.log()

    def snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots that exist, oldest first."""
        return tuple(self._state.snapshots(self.recording.publisher))

    def drop_snapshot(self, name: str) -> None:
        """Take a snapshot away as another client would; nothing happens if it is not there."""
        self._state.drop_snapshot(self.recording.publisher, name, if_exists=True)

    def inject(self, *faults: Fault) -> None:
        self._upstream.faults.put(*faults)

    def clear_faults(self) -> None:
        self._upstream.faults.clear()

    def disconnect_all(self) -> int:
        """Break every open connection; returns how many. New ones are served."""
        return self._server.disconnect_all()
