"""Names of snapshots: recorded before they exist, dropped only when recorded."""

from hypothesis import given
from hypothesis import strategies as st

from ccpr.state.context import LATE_SECONDS, Context

STEPS = st.lists(st.sampled_from(["open", "temporary", "commit", "abandon", "drop"]), max_size=30)


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
        elif step == "temporary" and context.open is not None:
            context, temporary = context.with_temporary("uid", 0.0)
            made.append(temporary.name)
            assert temporary.name in context.to_drop, "before it is created"
        elif step == "commit" and context.open is not None:
            context, lsn = context.committed(), lsn + 1
        elif step == "abandon":
            context = context.abandoned(0.0)
        elif step == "drop":
            dropped |= set(context.to_drop)
            context = context.dropped(set(context.to_drop), 0.0, set())
        assert Context.from_text(context.to_text()) == context
        kept = {ref.name for ref in (context.open, context.current, context.previous) if ref}
        assert len(made) == len(set(made))
        assert kept | set(context.to_drop) | dropped == set(made)
        assert not kept & (set(context.to_drop) | dropped), "what is still needed is never dropped"


def test_what_the_upstream_did_not_answer_for_is_dropped_for_as_long_as_it_may_be_made() -> None:
    context, temporary = Context().opened("uid", 0).with_temporary("uid", 1000.0)
    given_up = context.abandoned(1000.0)
    assert context.open is not None
    names = {temporary.name, context.open.name}
    waiting = given_up.dropped(names, 1010.0, set())
    assert waiting.to_drop == ()
    assert {name for name, _ in waiting.late} == names == set(waiting.recorded())
    assert Context.from_text(waiting.to_text()) == waiting
    assert waiting.dropped(names, 1010.0, {temporary.name}).late == ((context.open.name, 1000),)
    assert waiting.dropped(names, 1000.0 + LATE_SECONDS + 1, set()).late == ()
    assert waiting.dropped(names, 10.0, set()).late == (), "our clock was set back"
    assert waiting.dropped(set(), 1e9, set()).late == waiting.late, "it could not be dropped"
