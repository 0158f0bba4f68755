"""Names of snapshots: recorded before they exist, dropped only when recorded."""

from hypothesis import given
from hypothesis import strategies as st

from replication.state.context import Context

STEPS = st.lists(st.sampled_from(["open", "passing", "commit", "abandon", "drop"]), max_size=30)


@given(STEPS)
def test_no_name_is_used_twice_and_none_is_forgotten(steps: list[str]) -> None:
    context, lsn = Context(), 0
    made: list[str] = []
    dropped: set[str] = set()
    for step in steps:
        if step == "open" and context.open is None:
            context = context.opened("uid", lsn)
            assert context.open is not None
            made.append(context.open.name)
        elif step == "passing" and context.open is not None:
            context, passing = context.with_passing("uid")
            made.append(passing.name)
            assert passing.name in context.to_drop, "before it is created"
        elif step == "commit" and context.open is not None:
            context, lsn = context.committed(), lsn + 1
        elif step == "abandon":
            context = context.abandoned()
        elif step == "drop":
            dropped |= set(context.to_drop)
            context = context.dropped(set(context.to_drop))
        assert Context.from_text(context.to_text()) == context
        kept = {ref.name for ref in (context.open, context.current, context.previous) if ref}
        assert len(made) == len(set(made))
        assert kept | set(context.to_drop) | dropped == set(made)
        assert not kept & (set(context.to_drop) | dropped), "what is still needed is never dropped"
