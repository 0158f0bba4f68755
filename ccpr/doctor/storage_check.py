"""Whether objects can be read straight from the upstream's storage: one that a point lists is read from there and by
get_object, and both are compared."""

from collections.abc import Iterator

from ccpr.doctor.check import Check, Verdict
from ccpr.doctor.upstream_check import connect_once
from ccpr.matrixone.client.object_answers import get_object
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.errors import ObjectMismatch
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.mirror.errors import PointNotReached
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.storage import open_storage
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow
from ccpr.state.subscription import Subscription

_ACCESS, _BYTES = "storage", "storage's bytes"


def check_storage(workspace: Workspace, row: LogRow) -> Iterator[Check]:
    """Nothing if the subscription does not read from storage."""
    subscription = Subscription.from_row(row)
    if not subscription.settings.objects_from:
        return
    storage = open_storage(subscription.settings.objects_from)
    try:
        storage.check()
    except CcprError as error:
        yield Check("upstream", _ACCESS, Verdict.FAILED, f"{error.message} [{error.subject}]", error.remedy, error.code)
        return
    yield Check("upstream", _ACCESS, Verdict.OK, f"{storage.url} can be asked for objects")
    try:
        yield _compared(workspace, subscription)
    except CcprError as error:
        yield Check("upstream", _BYTES, Verdict.FAILED, f"{error.message} [{error.subject}]", error.remedy, error.code)


def _compared(workspace: Workspace, subscription: Subscription) -> Check:
    stats = _smallest(workspace.mirror_of(subscription))
    if stats is None:
        return Check("upstream", _BYTES, Verdict.SKIPPED, "no object is known before the first point")
    stored = open_storage(subscription.settings.objects_from).open(stats.name, stats.size)
    if stored is None:
        told = f"object {stats.name} is not there: the upstream is asked for such objects"
        remedy = "If that is so for all of them, this is not the place of the upstream's objects: --objects-from."
        return Check("upstream", _BYTES, Verdict.WARNING, told, remedy)
    password = workspace.vault.open(subscription.sealed_password, subscription.endpoint)
    with connect_once(subscription.endpoint, password) as session:
        sent = b"".join(get_object(session, subscription.publication, stats.name, stats.size))
    if b"".join(stored.pieces()) != sent:
        raise ObjectMismatch("storage and get_object give different bytes", subject=f"object {stats.name}")
    told = f"object {stats.name}, {stats.size} bytes, {stored.form}: the same by get_object"
    return Check("upstream", _BYTES, Verdict.OK, told)


def _smallest(mirror: Mirror) -> ObjectStats | None:
    """Of the objects of a table of the newest point."""
    try:
        point = mirror.point()
    except PointNotReached:
        return None
    table = min((ref for ref in point.tables.values() if ref.objects), key=lambda ref: ref.bytes, default=None)
    if table is None:
        return None
    return min((listed.stats for listed in mirror.manifest(table).listed_objects()), key=lambda stats: stats.size)
