"""`ccpr emulator`: serve a recording, or a simulated upstream, on loopback."""

import signal
import ssl
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccpr.base.loops import Ending
from ccpr.cli.defects import CannotServe
from ccpr.cli.output import show_error
from ccpr.matrixone.errors import CcprError

if TYPE_CHECKING:
    from ccpr_emulator.engine.storage import Storage
    from ccpr_emulator.serving.served import ServedUpstream


def emulator(
    recording: Annotated[
        Path | None, typer.Option("--recording", help="Folder of a recording (about.json, snapshot-001 …).")
    ] = None,
    living: Annotated[
        bool,
        typer.Option(
            "--living", help="Serve a simulated upstream instead of a recording: empty, accepts SQL, kept in memory."
        ),
    ] = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="TCP port on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    chunk_bytes: Annotated[
        int, typer.Option("--chunk-bytes", min=1, max=2**30, help="Size of the chunks of an object.")
    ] = 104_857_600,
    password: Annotated[
        str | None,
        typer.Option(
            "--password",
            envvar="CCPR_EMULATOR_PASSWORD",
            help="Password that every login needs; if not given, any password is accepted.",
            show_envvar=True,
        ),
    ] = None,
    flush_after: Annotated[
        float,
        typer.Option(
            "--flush-after",
            min=0.0,
            help="Seconds after which a snapshot is flushed by itself; a real upstream needs about a minute.",
        ),
    ] = 60.0,
    refuse_flush: Annotated[
        bool, typer.Option("--refuse-flush", help="Refuse mo_ctl, as a server does for a role without the privilege.")
    ] = False,
    merge_every: Annotated[
        float,
        typer.Option(
            "--merge-every",
            min=0.0,
            help="Seconds after which tables of many small objects are merged, and garbage is collected, as a real "
            "upstream does; 0: never.",
        ),
    ] = 0.0,
    strict_publication: Annotated[
        bool,
        typer.Option(
            "--strict-publication",
            help="Accept only the recorded publication; otherwise any name of the recorded publisher is accepted.",
        ),
    ] = False,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            help="A fault to inject, for example 'delay kind=object_list seconds=2'; docs/reference/emulator.md lists "
            "them.",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", help="PEM file of a certificate: then TLS is offered.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="PEM file of its private key, if it is not in the same file.")
    ] = None,
) -> None:
    """Serve a recording, or a simulated upstream (--living), over the MySQL protocol on 127.0.0.1 until SIGTERM or
    Ctrl-C. The first line printed is `listening on 127.0.0.1:PORT`. The exit code is 70 if the fault `crash` struck."""
    from ccpr_emulator.engine.storage import Storage
    from ccpr_emulator.recorded_upstream import RecordedUpstream
    from ccpr_emulator.serving.faults import parse_fault
    from ccpr_emulator.simulated_upstream import SimulatedUpstream

    if living == (recording is not None):
        raise typer.BadParameter("give one of --recording and --living", param_hint="--recording")
    try:
        faults = [parse_fault(text) for text in fault or []]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--fault") from error

    ending = Ending(signal.SIGTERM, signal.SIGINT)
    try:
        tls, may_flush = _tls(tls_certificate, tls_key), not refuse_flush
        server: ServedUpstream
        if recording is None:
            storage = Storage(flush_after=flush_after)
            if merge_every:
                threading.Thread(target=_merge, args=(storage, merge_every, ending.event), daemon=True).start()
            server = SimulatedUpstream(
                storage, port=port, password=password, chunk_bytes=chunk_bytes, may_flush=may_flush, tls=tls
            )
            secret = "any" if password is None else "<password>"
            client = f"-h 127.0.0.1 -P {server.port} -u root -p{secret}"
            about = f"simulated, empty: mariadb {client}\n            or mysql {client}"
        else:
            server = recorded = RecordedUpstream(
                recording,
                port=port,
                password=password,
                chunk_bytes=chunk_bytes,
                flush_after=flush_after,
                may_flush=may_flush,
                strict_publication=strict_publication,
                tls=tls,
            )
            known = recorded.recording
            about = f"plays {known.name}: publisher {known.publisher}, publication {known.publication.name}"
        server.inject(*(found for found in faults if found is not None))
        _serve(server, about, ending)
    except CcprError as error:
        show_error(error)
        raise typer.Exit(1) from error
    except OSError as error:
        show_error(CannotServe(f"the emulator cannot be served: {error}", subject=f"127.0.0.1:{port}"))
        raise typer.Exit(1) from error


def _merge(storage: "Storage", every: float, done: threading.Event) -> None:
    while not done.wait(every):
        storage.tidy()


def _serve(server: "ServedUpstream", about: str, ending: Ending) -> None:
    server.on_crash(ending.set)
    with ending, server:
        print(f"listening on 127.0.0.1:{server.port}", flush=True)
        print(about, flush=True)
        ending.wait()
    if server.crashed.is_set():
        raise typer.Exit(70)


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
