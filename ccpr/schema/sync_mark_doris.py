"""What `ccpr.schema.sync_mark` does to a Doris statement: text only, the rest is kept to the letter
(docs/requirements.md D1 to D3).

Properties are in several places of a Doris statement, the partitions' among them, where they are easily forgotten. So
a property is looked for wherever there is a pair ``"key" = "value"``.

Each edit is ``{"at": place in the new text, "was": text, "now": text, "name": property}``; places count characters.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from ccpr.matrixone.schema import integer_of, text_of
from ccpr.matrixone.sql.errors import DdlUnreadable, SqlUnclosed
from ccpr.matrixone.sql.lexer import Token, complete_tokens

MARK = "is_being_synced"
AUTO_BUCKET = "_auto_bucket"
DYNAMIC_PARTITION = "dynamic_partition.enable"
STRIPPED = frozenset({"storage_policy", "colocate_with"})
_SUBJECT = "CREATE TABLE text of Doris"
_Edit = tuple[int, int, str, str]  # from, to, new text, name


def has_automatic_buckets(text: str) -> bool:
    return _auto(_read(text)) is not None


def property_of(text: str, name: str) -> str | None:
    """A property of the table's own; None if it does not have it. Raises DdlUnreadable."""
    read = _read(text)
    return next((read[value].value for key, value in _table_pairs(read) if read[key].value == name), None)


def rewrite(text: str, buckets: int | None) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The new text, what was stripped, what was disabled. `buckets` is needed if they are automatic. Raises
    DdlUnreadable."""
    read = _read(text)
    pairs = _table_pairs(read)
    own = {read[key].value: read[value] for key, value in pairs}
    stripped = list(_stripped(read))
    disabled: list[_Edit] = []
    flags = [MARK]
    auto = _auto(read)
    if auto is not None:
        disabled.append((auto.start, auto.end, str(buckets), "buckets"))
        flags.insert(0, AUTO_BUCKET)
    dynamic = own.get(DYNAMIC_PARTITION)
    if dynamic is not None and dynamic.value.lower() == "true":
        disabled.append((dynamic.start, dynamic.end, '"false"', DYNAMIC_PARTITION))
    disabled += [
        (own[name].start, own[name].end, '"true"', name) for name in flags if name in own and own[name].value != "true"
    ]
    new = [f'"{name}" = "true"' for name in flags if name not in own]
    if new:
        disabled.append(_addition(read, text, new, all(read[key].value in STRIPPED for key, _ in pairs)))
    pieces, kept, length = [], 0, 0
    stored: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for (start, end, now, name), kind in sorted([(edit, 0) for edit in stripped] + [(edit, 1) for edit in disabled]):
        pieces += [text[kept:start], now]
        length += start - kept
        stored[kind].append({"at": length, "was": text[start:end], "now": now, "name": name})
        length += len(now)
        kept = end
    return "".join([*pieces, text[kept:]]), _object(stored[0]), _object(stored[1])


def restore(text: str, stripped: Mapping[str, Any], disabled: Mapping[str, Any]) -> str | None:
    """The text that was rewritten; None if `text` is not its result."""
    try:
        edits = [
            (integer_of(e["at"]), text_of(e["was"]), text_of(e["now"]))
            for e in (*stripped.get("edits", ()), *disabled.get("edits", ()))
        ]
    except (KeyError, TypeError, ValueError):
        return None
    # From the end; of two at one place the one that left nothing came first.
    for at, was, now in sorted(edits, key=lambda edit: (edit[0], len(edit[2])), reverse=True):
        if at < 0 or text[at : at + len(now)] != now:
            return None
        text = text[:at] + was + text[at + len(now) :]
    return text


def release_statements(original: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What brings a table back to its `original` statement, the mark last; and what no ALTER TABLE does. Raises
    DdlUnreadable.

    Not tried on a server: there is no Doris here.
    """
    read = _read(original)
    name = _table_name(read, original)
    own = _table_pairs(read)
    back = [
        f"ALTER TABLE {name} SET ({original[read[key].start : read[value].end]})"
        for key, value in own
        if read[key].value in STRIPPED or (read[key].value == DYNAMIC_PARTITION and read[value].value.lower() == "true")
    ]
    auto = _auto(read)
    if auto is not None:
        distributed = [token.start for token in read if token.is_word("DISTRIBUTED") and token.start < auto.start]
        if not distributed:
            raise DdlUnreadable("BUCKETS AUTO without DISTRIBUTED BY", subject=_SUBJECT)
        back.append(f"ALTER TABLE {name} MODIFY DISTRIBUTION {original[distributed[-1] : auto.end]}")
    elsewhere = [pair for pair in _pairs(read) if read[pair[0]].value in STRIPPED and pair not in own]
    left_out = tuple(original[read[key].start : read[value].end] for key, value in elsewhere)
    return (*back, f'ALTER TABLE {name} SET ("{MARK}" = "false")'), left_out


def _object(edits: list[dict[str, Any]]) -> dict[str, Any]:
    return {"edits": edits} if edits else {}


def _read(text: str) -> list[Token]:
    try:
        read = complete_tokens(text)
    except SqlUnclosed as error:
        raise DdlUnreadable(str(error), subject=_SUBJECT) from error
    if len(read) < 4 or not (read[0].is_word("CREATE") and any(token.is_word("TABLE") for token in read[1:4])):
        raise DdlUnreadable("not a CREATE TABLE", subject=_SUBJECT)
    return read


def _pairs(read: list[Token]) -> list[tuple[int, int]]:
    """Every ``"key" = "value"``, wherever it is: the numbers of its two tokens."""
    return [
        (number, number + 2)
        for number, (key, sign, value) in enumerate(zip(read, read[1:], read[2:], strict=False))
        if key.kind == "text" and sign.is_sign("=") and value.kind == "text"
    ]


def _properties(read: list[Token]) -> tuple[int, int] | None:
    """The tokens of the table's own PROPERTIES: numbers of its opening and its closing bracket. The last clause
    outside brackets counts."""
    depth, found, opening = 0, None, None
    for number, token in enumerate(read):
        if depth == 0 and token.is_sign("(") and read[number - 1].is_word("PROPERTIES"):
            opening = number
        depth += token.is_sign("(") - token.is_sign(")")
        if depth == 0 and token.is_sign(")") and opening is not None:
            found, opening = (opening, number), None
    return found


def _table_pairs(read: list[Token]) -> list[tuple[int, int]]:
    span = _properties(read)
    return [] if span is None else [pair for pair in _pairs(read) if span[0] < pair[0] < span[1]]


def _auto(read: list[Token]) -> Token | None:
    """The word AUTO of BUCKETS AUTO."""
    return next((auto for word, auto in pairwise(read) if word.is_word("BUCKETS") and auto.is_word("AUTO")), None)


def _stripped(read: list[Token]) -> Iterator[_Edit]:
    """The pairs that are removed, neighbours together, with the comma after them, else the one before them."""
    runs: list[list[tuple[int, int]]] = []
    for key, value in _pairs(read):
        if read[key].value in STRIPPED:
            if runs and runs[-1][-1][1] == key - 2 and read[key - 1].is_sign(","):
                runs[-1].append((key, value))
            else:
                runs.append([(key, value)])
    for run in runs:
        first, last = run[0][0], run[-1][1]
        name = ", ".join(read[key].value for key, _ in run)
        if last + 2 < len(read) and read[last + 1].is_sign(","):
            yield read[first].start, read[last + 2].start, "", name
        else:
            yield (read[first - 1] if read[first - 1].is_sign(",") else read[first]).start, read[last].end, "", name


def _addition(read: list[Token], text: str, new: list[str], empty: bool) -> _Edit:
    """Where new properties go: to the end of the table's PROPERTIES, else to the end of the statement."""
    span = _properties(read)
    if span is None:
        end = next((token.start for token in reversed(read) if token.is_sign(";")), len(text.rstrip()))
        return end, end, "\nPROPERTIES (\n" + ",\n".join(new) + "\n)", MARK
    last = read[span[1] - 1]
    return last.end, last.end, ("\n" if empty else ",\n") + ",\n".join(new), MARK


def _table_name(read: list[Token], text: str) -> str:
    start = next(number for number, token in enumerate(read) if token.is_word("TABLE")) + 1
    if read[start].is_word("IF"):
        start += 3
    end = start
    while end + 2 < len(read) and read[end + 1].is_sign("."):
        end += 2
    if end >= len(read):
        raise DdlUnreadable("the table has no name", subject=_SUBJECT)
    return text[read[start].start : read[end].end]
