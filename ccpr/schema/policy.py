"""Which changes of a definition are applied to a target, and which require operator action, as data
(docs/requirements.md B9).

* `additive`: what takes nothing away from readers of the target: new tables, columns and indexes, wider types,
  defaults, comments.
* `full`: everything.
* `manual`: nothing; each change waits.

A table's changes are applied together or not at all. While they wait, the table stays at its point and the others go
on (B4).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ccpr.schema import table_diff
from ccpr.schema.choices import DdlPolicy
from ccpr.schema.table_changes import CatalogChange, ChangeKind
from ccpr.schema.table_diff import ColumnRetyped, DefinitionChange

# What `additive` applies, unless the change is destructive (a narrower type is). Renames, moves and another key are
# not among them: they take a name, a place or a row's identity away from a reader.
_ADDITIONS = (
    table_diff.ColumnAdded,
    ColumnRetyped,
    table_diff.ColumnNullabilityChanged,
    table_diff.ColumnDefaultChanged,
    table_diff.ColumnCommentChanged,
    table_diff.ColumnVisibilityChanged,
    table_diff.IndexAdded,
    table_diff.IndexDropped,
    table_diff.ConstraintAdded,
    table_diff.ConstraintDropped,
    table_diff.TableCommentChanged,
    table_diff.TableOptionsChanged,
)
_IN_PLACE = (
    table_diff.TableRenamed,
    table_diff.TableCommentChanged,
    table_diff.ColumnRenamed,
    table_diff.IndexAdded,
    table_diff.IndexDropped,
    table_diff.ConstraintAdded,
    table_diff.ConstraintDropped,
)
_APPLIED: dict[DdlPolicy, tuple[type, ...]] = {
    DdlPolicy.ADDITIVE: _ADDITIONS,
    DdlPolicy.FULL: (object,),
    DdlPolicy.MANUAL: (),
}
_APPLIED_KINDS = {
    DdlPolicy.ADDITIVE: frozenset({ChangeKind.CREATED}),
    DdlPolicy.FULL: frozenset(ChangeKind),
    DdlPolicy.MANUAL: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether one table's change is applied.

    Attributes
    ----------
    waiting : descriptions of what requires operator action; empty if the change is applied.
    destructive : descriptions of what removes values that the target holds.
    """

    change: CatalogChange
    steps: tuple[DefinitionChange, ...]
    waiting: tuple[str, ...]
    destructive: tuple[str, ...]

    @property
    def applies(self) -> bool:
        return not self.waiting


def decide(policy: DdlPolicy, change: CatalogChange, steps: Sequence[DefinitionChange]) -> Decision:
    """`steps` are the differences of the definitions (`diff_tables`); none for a table that was created or dropped."""
    waiting = [step.describe() for step in steps if not _applies(policy, step)]
    destructive = [step.describe() for step in steps if step.destructive]
    if _concerns_all_rows(change, steps):
        described = (
            f"{change.table.qualified_name} truncated" if change.kind is ChangeKind.REPLACED else change.describe()
        )
        if change.kind not in _APPLIED_KINDS[policy]:
            waiting.append(described)
        if change.kind is not ChangeKind.CREATED:
            destructive.append(described)
    return Decision(change, tuple(steps), tuple(waiting), tuple(destructive))


def _applies(policy: DdlPolicy, step: DefinitionChange) -> bool:
    return isinstance(step, _APPLIED[policy]) and (policy is DdlPolicy.FULL or not step.destructive)


def _concerns_all_rows(change: CatalogChange, steps: Sequence[DefinitionChange]) -> bool:
    """Whether the table was created, dropped or truncated.

    A TRUNCATE gives a table another id, and so does an ALTER that copies the table. It counts as such an ALTER only if
    one of the steps is a change that copies. A new comment, name or index and a longer varchar are made in place, so
    they do not explain another id: then it was a TRUNCATE as well. A TRUNCATE and an ALTER that copies, both between
    two points, look like the ALTER alone.
    """
    if change.kind is ChangeKind.REPLACED:
        return all(_keeps_the_id(step) for step in steps)
    return change.kind in (ChangeKind.CREATED, ChangeKind.DROPPED)


def _keeps_the_id(step: DefinitionChange) -> bool:
    """Whether MatrixOne makes this change without a copy (docs/upstream.md 5.4)."""
    if isinstance(step, ColumnRetyped):
        return (
            step.in_place
            and step.before.type.name == step.after.type.name
            and step.after.type.name in ("char", "varchar")
        )
    return isinstance(step, _IN_PLACE)
