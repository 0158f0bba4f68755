"""Names in checkpoints whose letter case is not the real one, as after a change of a server's
`lower_case_table_names`. Source: docs/requirements.md C9."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from ccpr.state.checkpoint.checkpoint_store import TableCheckpoint, json_text


def real_names(
    points: Mapping[int, tuple[str, str]], schemas: Collection[str], tables: Collection[tuple[str, str]]
) -> dict[int, tuple[str, str]]:
    """By table id the right (database, table) of those points whose names have to be corrected.

    A name stays as it is if it exists, if several existing names could be meant, and if another point already has the
    right one.
    """
    taken, spelled = set(points.values()), {}
    for table_id, old in sorted(points.items()):
        schema = _real(old[0], schemas)
        new = (schema, _real(old[1], [name for database, name in tables if database == schema]))
        if new != old and new not in taken:
            taken.add(new)
            spelled[table_id] = new
    return spelled


def renamed(point: TableCheckpoint, schema: str, name: str) -> TableCheckpoint:
    """The point under another name, also in its description."""
    info = point.info
    if info is not None and (info.get("database"), info.get("name")) == (point.schema, point.name):
        info = {**info, "database": schema, "name": name}
    return replace(point, schema=schema, name=name, info_text=None if info is None else json_text(info))


def _real(name: str, names: Collection[str]) -> str:
    """The one of `names` that differs from the name in letter case only; else the name."""
    if name in names:
        return name
    found = [other for other in names if other.casefold() == name.casefold()]
    return found[0] if len(found) == 1 else name
