"""How lists are said in a sentence, and which of many names somebody may have meant."""

from collections.abc import Iterable

_LIKE = 0.75  # of difflib: 1 = the same


def first_names(names: Iterable[str], most: int = 5) -> str:
    """The first of them, for example `a, b and 7 more`."""
    found = list(names)
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def meant(typed: str, known: Iterable[str], kind: str) -> str:
    """A sentence for who typed a name that is not known: those like it, else the first that are. Letter case does not
    count, and of `database.table` the database may be missing. `kind` is the plural of what has the names."""
    from difflib import get_close_matches  # which only mistakes need

    names = sorted(known)
    by_text: dict[str, list[str]] = {}
    for name in names:
        for text in {name.casefold(), name.rpartition(".")[2].casefold()}:
            by_text.setdefault(text, []).append(name)
    wanted = typed.casefold()
    like = [wanted] if wanted in by_text else get_close_matches(wanted, by_text, cutoff=_LIKE)
    if like:
        return f"Did you mean {' or '.join(dict.fromkeys(name for text in like for name in by_text[text][:3]))}?"
    return f"Its {kind} are {first_names(names, 10)}." if names else f"It has no {kind}."
