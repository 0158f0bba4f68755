"""A mirror and what the catalog database knows of it: they are compared whenever the mirror is opened by the name of
its subscription, and what is committed is published.

Either of them may have been restored from an older copy, moved, or replaced by another. Then nothing is written, and
the error says what to do. Source: docs/reliability.md; decision the-mirror-says-whose-it-is.
"""

import secrets
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import sqlalchemy as sa

from ccpr.mirror.errors import MirrorDamaged, StoreConflict
from ccpr.mirror.layout import HEAD, IDENTITY, Head, Identity, lsn_of_point
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.point_files import PointFile
from ccpr.mirror.points import Point
from ccpr.state.database import repeatable, together
from ccpr.state.errors import MirrorAhead, MirrorBehind, MirrorDisagrees, MirrorForeign, MirrorMissing, StateUnavailable
from ccpr.state.history import GlobalPoint, PointHistory, as_mirror_point
from ccpr.state.kept_records import KeptChanged, KeptRecords, KeptState
from ccpr.state.ledger import due_time
from ccpr.state.log import CcprLog
from ccpr.state.log_rows import Claim, LogRow
from ccpr.state.point_rows import TablePoint
from ccpr.state.quarantine import Quarantine

_NOTHING = Head(None, None, 0, 0)


def publish_pending(log: CcprLog, name: str, mirror: Mirror, claim: Claim | None = None) -> None:
    """Check that mirror and catalog database agree, and publish what was committed and not yet published: what a crash
    in between left undone is done here. Repeating it writes the same.

    Every executor may do it. One that was superseded may write a head that is old by now: each compares what it has
    written with what is committed then, so the last to write is also the last to compare. `claim`: of the executor that
    is going to write to the mirror. It marks a new mirror as the subscription's; without it one without a mark stays as
    it is. Raises MirrorMissing, MirrorForeign, MirrorAhead, MirrorBehind, and MirrorDamaged.
    """
    disagreed: tuple[int, str | None] | None = None
    while True:
        found = _Published.read(mirror)
        known = _Committed.read(log, name, found)
        row, history = known.row, known.history
        try:
            _check(known, found, mirror)
        except MirrorDisagrees:
            before, disagreed = disagreed, (row.iteration_lsn, row.epoch)
            if before != disagreed:
                continue  # the two were not read at one moment
            raise
        if claim is not None and row.epoch is None:
            _mark(log, claim, history, mirror)
        elif claim is not None and row.mirror_url != (url := mirror_url(mirror)):
            log.overwrite(claim, {"mirror_url": url}, lambda _: None)
        elif row.epoch is None or known.head == found.head or not known.head.iteration_lsn:
            return
        else:
            files = [point.file for point in known.later if point.file] + _kept_files(known, found)
            missing = [path for path in files if mirror.store.size(path) is None]
            if missing:
                missing = _write_kept_again(known, mirror, missing)
            if not missing:
                _publish(mirror, known.head, found.identity)
                if history.head() == known.head:
                    return
            elif claim is not None:
                rewrite_points(log, claim, history, mirror)
            else:
                subject = mirror.files.subject(missing[0])
                raise MirrorDamaged("the file of a committed point is missing", subject=subject)


def _kept_files(known: "_Committed", found: "_Published") -> list[str]:
    """Files of points that stay by themselves, and their list, if another list is published."""
    if not known.head.kept or (found.head is not None and found.head.kept == known.head.kept):
        return []
    return [
        known.head.kept,
        *(file.path for file in known.history.files() if file.lsn < (known.head.oldest_point or 0)),
    ]


def _write_kept_again(known: "_Committed", mirror: Mirror, missing: Collection[str]) -> list[str]:
    """Of missing files, write the list of kept points and those points themselves: the mirror was restored from a copy
    that was made before they were written. Their names have the digests of what the catalog database knows, so no lease
    is needed. Returns what is still missing."""
    history = known.history
    kept = KeptRecords(history.engine, history.task_id).state()
    points = history.global_points()
    for point in points:
        if point.file in missing and point.lsn < kept.chain_from:
            write_alone(history, mirror, point)
    mirror.store.sync("points")
    if kept.file in missing:
        mirror.write_kept(kept.content(points), kept.revision)
    return [path for path in missing if mirror.store.size(path) is None]


def _publish(mirror: Mirror, head: Head, identity: Identity | None) -> None:
    """Releases that do not know the list of kept points would drop them: they may not write to the mirror any more."""
    if head.kept and identity is not None and not identity.guarded:
        mirror.write_identity(replace(identity, guarded=True))
    mirror.publish_head(head)


def write_point(mirror: Mirror, point: Point, changed: Mapping[int, TablePoint], earlier: list[PointFile]) -> str:
    """Write the file of a point, in which these tables changed, and return its path. Lagging tables are not shown."""
    refs = {table_id: table.ref for table_id, table in changed.items()}
    return mirror.write_point(point, {**refs, **dict.fromkeys(point.behind)}, earlier)


def write_alone(history: PointHistory, mirror: Mirror, point: GlobalPoint) -> str:
    """Write a point's file with all its tables, which differs from no other, and return its path."""
    behind = Quarantine(history.engine, history.task_id).behind(point.lsn)
    shown = as_mirror_point(point, history.refs(point.lsn)[0], behind, history.definitions_of(point.lsn))
    return mirror.write_point(shown, {}, [])


def new_epoch() -> str:
    return secrets.token_hex(4)


def mirror_url(mirror: Mirror) -> str:
    """Where the mirror is; for a folder with the name of this machine, as a catalog database may be shared."""
    return mirror.store.url.replace("file:///", f"file://{socket.gethostname()}/", 1)


def check_agreement(log: CcprLog, row: LogRow, mirror: Mirror) -> None:
    """Raises what `publish_pending` does; writes nothing."""
    found = _Published.read(mirror)
    history = log.of(row.task_id).history
    _check(_Committed.of(row, history, found), found, mirror)


def rewrite_points(
    log: CcprLog, claim: Claim, history: PointHistory, mirror: Mirror, values: Mapping[str, Any] | None = None
) -> None:
    """Write the files of all points from what the catalog database knows, and record their names, with other values of
    the subscription's row. The head that names the newest is yet to be published. Raises LeaseLost."""
    before, records = [file.path for file in history.files()], log.of(claim.task_id)
    kept = records.kept.state()
    files = _write_points(history, mirror, kept.chain_from)
    named = {file.path for file in files}
    old = [path for path in before if path not in named and mirror.store.size(path) is not None]
    due = due_time(history.head().watermark)
    after = _rewritten(history, mirror, kept, files)

    def record(connection: sa.Connection) -> None:
        history.set_files(connection, files)
        if kept.revision:
            records.kept.write(connection, kept, after)
        records.ledger.schedule_deletion(connection, [*old, *filter(None, [kept.file])], due)

    try:
        log.overwrite(claim, dict(values or {}), record)
    except KeptChanged as error:
        text = "points were held or released while the files of points were written anew"
        raise StateUnavailable(text, subject=f"subscription {claim.name}") from error


def _rewritten(history: PointHistory, mirror: Mirror, kept: KeptState, files: Sequence[PointFile]) -> KeptState:
    """What is kept, with a new file that names these."""
    if not kept.revision:
        return kept
    paths, revision = {file.lsn: file.path for file in files}, kept.revision + 1
    content = kept.content([replace(point, file=paths[point.lsn]) for point in history.global_points()])
    return replace(kept, revision=revision, file=mirror.write_kept(content, revision))


def _write_points(history: PointHistory, mirror: Mirror, chain_from: int) -> list[PointFile]:
    """The files, oldest first."""
    behind, definitions = Quarantine(history.engine, history.task_id).behind_by_point(), history.definitions()
    files: list[PointFile] = []
    chain: list[PointFile] = []
    for point in history.global_points():
        late, file = behind.get(point.lsn, {}), definitions.get(point.lsn, "")
        shown = as_mirror_point(point, history.refs(point.lsn)[0], late, file)
        path = write_point(mirror, shown, history.changed(point.lsn), chain[::-1])
        files.append(PointFile(path, point.lsn, point.at.physical))
        chain += files[-1:] if point.lsn >= chain_from else []
    mirror.store.sync("points")
    return files


def rewrite_damaged(log: CcprLog, name: str, mirror: Mirror, damaged: Collection[str]) -> None:
    """Write those of HEAD and IDENTITY that are damaged from what the catalog database has.

    Raises MirrorAhead if the mirror has the files of later iterations.
    """
    row = log.row(name)
    committed = log.of(row.task_id).history.head()
    newest = max((lsn for file in mirror.store.names("points") if (lsn := lsn_of_point(file)) is not None), default=0)
    if newest > committed.iteration_lsn:  # of the next iteration there may be one that was not committed
        message = f"the mirror has a point {newest}, the catalog database is at {committed.iteration_lsn}"
        raise MirrorAhead(message, subject=mirror.store.url)
    if IDENTITY in damaged and row.epoch is not None:
        mirror.write_identity(Identity(row.task_id, name, row.epoch, guarded=bool(committed.kept)))
    if HEAD in damaged:
        mirror.publish_head(committed)


# ---- comparing


@dataclass(frozen=True, slots=True)
class _Published:
    """What the mirror says."""

    identity: Identity | None
    head: Head | None

    @classmethod
    def read(cls, mirror: Mirror) -> "_Published":
        return cls(mirror.identity(), mirror.published_head())


@dataclass(frozen=True, slots=True)
class _Committed:
    """What the catalog database says, read after what is published, as that follows from it. `point`: the mirror's
    newest point; None if the database does not have it. `later`: the points after that, if there were later
    iterations."""

    row: LogRow
    history: PointHistory
    head: Head
    point: GlobalPoint | None
    later: tuple[GlobalPoint, ...]

    @classmethod
    @repeatable
    def read(cls, log: CcprLog, name: str, published: _Published) -> "_Committed":
        with together(log.engine):
            row = log.row(name)
            return cls.of(row, log.of(row.task_id).history, published)

    @classmethod
    def of(cls, row: LogRow, history: PointHistory, published: _Published) -> "_Committed":
        there = published.head or _NOTHING
        committed, newest = history.head(), there.newest_point
        point = None if newest is None else history.point(newest)
        is_later = committed.iteration_lsn != there.iteration_lsn
        later = history.global_points(-1 if newest is None else newest) if is_later else ()
        return cls(row, history, committed, point, tuple(later))


def _check(known: _Committed, found: _Published, mirror: Mirror) -> None:
    """Raises MirrorDisagrees unless what is published follows from what is committed."""
    row, committed = known.row, known.head
    if found.identity is None and found.head is None:
        if committed.iteration_lsn and not (row.epoch is None and _is_there(known, mirror)):
            raise MirrorMissing(_missing(row), subject=mirror.store.url)
        return
    _check_identity(row, found.identity, mirror)
    published = found.head or _NOTHING
    if published.iteration_lsn > committed.iteration_lsn:
        message = (
            f"the mirror is at iteration {published.iteration_lsn}, the catalog database at {committed.iteration_lsn}"
        )
        raise MirrorAhead(message, subject=mirror.store.url)
    same = published.kept_revision == committed.kept_revision
    if published.kept_revision > committed.kept_revision or (same and published.kept != committed.kept):
        raise MirrorAhead("the mirror has other held or kept points", subject=mirror.store.url)
    if published.newest_point is not None and not _is_known(known.point, mirror, published):
        message = f"the catalog database does not have the mirror's point {published.newest_point}"
        raise MirrorAhead(message, subject=mirror.store.url)
    if published.iteration_lsn == committed.iteration_lsn:
        if (published.newest_point, published.watermark) != (committed.newest_point, committed.watermark):
            raise MirrorAhead("the mirror's last iteration was another one", subject=mirror.store.url)
    elif not _is_there(known, mirror):
        message = (
            f"the mirror is at iteration {published.iteration_lsn}, the catalog database at {committed.iteration_lsn}"
        )
        raise MirrorBehind(f"{message}, and the files of points in between are missing", subject=mirror.store.url)


def _check_identity(row: LogRow, identity: Identity | None, mirror: Mirror) -> None:
    if identity is None:
        if row.epoch is not None:
            raise MirrorForeign("it does not say whose it is: mirror.json is missing", subject=mirror.store.url)
        return
    check_owner(identity, row.task_id, mirror)
    if identity.is_copy:
        remedy = "`ccpr copy NAME --promote URL` makes it the mirror that is written."
        raise MirrorForeign("it is a second copy of the mirror", subject=mirror.store.url, remedy=remedy)
    if row.epoch not in (None, identity.epoch):
        text = "another catalog database has taken it over, or one of the two was restored from a copy before that"
        raise MirrorForeign(text, subject=mirror.store.url)


def check_owner(identity: Identity, task_id: str, mirror: Mirror) -> None:
    """Raises MirrorForeign if the mirror is another subscription's."""
    if identity.task_id != task_id:
        text = f"it belongs to subscription {identity.subscription!r} ({identity.task_id})"
        remedy = "Name the right place: `ccpr alter NAME --mirror URL`. Or give a new subscription an empty place."
        raise MirrorForeign(text, subject=mirror.store.url, remedy=remedy)


def _missing(row: LogRow) -> str:
    text = f"there is no mirror at this place, but the catalog database has {row.iteration_lsn} iterations in it"
    return f"{text}; it was last written at {row.mirror_url}" if row.mirror_url else text


def _is_known(known: GlobalPoint | None, mirror: Mirror, published: Head) -> bool:
    """Whether the catalog database has the mirror's newest point, and not another one of that number."""
    if known is None:
        return False
    if known.file and known.file == published.point:
        return True
    try:
        point = mirror.point(published.newest_point)
    except MirrorDamaged:
        return known.snapshot in {ref.name for ref in published.snapshots}
    return (point.snapshot, point.at) == (known.snapshot, known.at)


def _is_there(known: _Committed, mirror: Mirror) -> bool:
    """Whether the ledgers, definitions and manifests of the later points are in the mirror; so are their objects,
    which are written first."""
    points = known.later[::-1]
    ledgers = (point.ledger for point in points if point.ledger)
    changed = (known.history.changed(point.lsn).values() for point in points)
    manifests = (name for tables in changed for table in tables if table.ref for name in table.ref.files)
    besides = known.history.definitions() if points else {}
    definitions = (besides[point.lsn] for point in points if point.lsn in besides)
    return all(mirror.store.size(name) is not None for name in chain(ledgers, definitions, manifests))


# ---- marking


def _mark(log: CcprLog, claim: Claim, history: PointHistory, mirror: Mirror) -> None:
    """Make the mirror the subscription's: an identity, and files of points that the catalog database knows."""
    found = mirror.identity()
    identity = found or Identity(claim.task_id, claim.name, new_epoch())
    if found is None:
        try:
            mirror.write_identity(identity, new=True)
        except StoreConflict as error:
            raise MirrorForeign(
                "another subscription has just begun to write here", subject=mirror.store.url
            ) from error
    rewrite_points(log, claim, history, mirror, {"epoch": identity.epoch, "mirror_url": mirror_url(mirror)})
