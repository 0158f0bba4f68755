"""A column behind its name: the type, the default, what it references. Texts stay as they were written."""

from dataclasses import replace
from typing import Any

from ccpr.matrixone.server.tokens import Tokens
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr_emulator.engine.definitions import Attributes
from ccpr_emulator.sql.names import key_columns

_REFERENCE_ACTIONS = ("restrict", "cascade", "no action", "set null", "set default")


class ColumnText:
    """A column behind its name: the type, what it may be, its attributes."""

    def __init__(self, tokens: Tokens, name: str) -> None:
        self.tokens, self.name = tokens, name
        self.text = read_type(tokens)
        self.is_primary = self.is_unique = False
        self.attributes = Attributes()
        self.constraints: list[str] = []
        while self._attribute():
            pass

    def _attribute(self) -> bool:
        tokens = self.tokens
        if tokens.accept("not", "null"):
            self.text += "" if self.text.endswith(" not null") else " not null"
        elif tokens.accept("default"):
            self._set(default=default_text(tokens))
        elif tokens.accept("primary", "key"):
            self.is_primary = True
        elif tokens.accept("unique"):
            tokens.accept("key")
            self.is_unique = True
        elif tokens.accept("auto_increment"):
            self._set(auto_increment=True)
            self.text += "" if self.text.endswith(" not null") else " not null"
        elif tokens.accept("comment"):
            self._set(comment=_raw_text(tokens))
        elif tokens.accept("on", "update"):
            self._set(on_update=default_text(tokens))
        elif tokens.accept("generated", "always", "as") or tokens.accept("as"):
            expression = text_in_brackets(tokens)
            stored = tokens.accept("stored") or tokens.accept("persistent")
            if not stored:
                tokens.accept("virtual")
            self._set(generated=expression, is_stored=stored)
        elif tokens.accept("character", "set") or tokens.accept("charset") or tokens.accept("collate"):
            tokens.next()
        elif tokens.accept("check"):
            text_in_brackets(tokens)
        elif tokens.accept("references"):
            tokens.position -= 1
            self.constraints.append(_references(tokens, self.name))
        elif tokens.accept("constraint"):
            if not tokens.at("check"):
                tokens.name()
        else:
            return tokens.accept("null") or tokens.accept("key") or tokens.accept("visible") or tokens.accept("signed")
        return True

    def _set(self, **given: Any) -> None:
        self.attributes = replace(self.attributes, **given)


def _references(tokens: Tokens, column: str) -> str:
    begin = tokens.position
    tokens.expect("references")
    tokens.name()
    while tokens.accept("."):
        tokens.name()
    key_columns(tokens)
    rest = tokens.source(begin)
    return foreign_key(Tokens(f"({in_backquotes(column)}) {rest}"), "")


def foreign_key(tokens: Tokens, constraint: str) -> str:
    """As SHOW CREATE TABLE prints it."""
    name = constraint or ("" if tokens.at("(") else tokens.name())
    columns = key_columns(tokens)
    tokens.expect("references")
    parent = tokens.name()
    if tokens.accept("."):
        parent = tokens.name()
    theirs = key_columns(tokens)
    actions = {"delete": "restrict", "update": "restrict"}
    while tokens.accept("on"):
        event = tokens.next().lower()
        action = next((known for known in _REFERENCE_ACTIONS if tokens.accept(*known.split())), None)
        if event not in actions or action is None:
            raise tokens.unknown()
        actions[event] = action
    mine, other = (",".join(map(in_backquotes, names)) for names in (columns, theirs))
    name = name or f"{parent}_{columns[0]}_fk"
    return (
        f"CONSTRAINT {in_backquotes(name)} FOREIGN KEY ({mine}) REFERENCES {in_backquotes(parent)} ({other}) "
        f"ON DELETE {actions['delete'].upper()} ON UPDATE {actions['update'].upper()}"
    )


def text_in_brackets(tokens: Tokens) -> str:
    """What is in brackets, as written."""
    tokens.expect("(")
    begin, depth = tokens.position, 1
    while depth:
        depth += tokens.at("(") - tokens.at(")")
        tokens.next()
    return tokens.sql[tokens.tokens[begin].start : tokens.tokens[tokens.position - 1].start].strip()


def _raw_text(tokens: Tokens) -> str:
    """A text as it was written between its quotes."""
    begin = tokens.position
    tokens.text()
    return tokens.source(begin)[1:-1]


def default_text(tokens: Tokens) -> str:
    """A default as it was written; CURRENT_TIMESTAMP gets its brackets."""
    begin = tokens.position
    if tokens.accept("("):
        tokens.position = begin
        return f"({text_in_brackets(tokens)})"
    tokens.accept("-")
    word = tokens.kind == "word"
    first = tokens.next()
    if tokens.kind == "text" and first.lower() in ("x", "b", "date", "timestamp", "time"):
        tokens.next()
    elif word and tokens.at("("):
        text_in_brackets(tokens)
    elif word and first.lower() in ("current_timestamp", "localtime", "localtimestamp"):
        return f"{first}()"
    return tokens.source(begin)


def read_type(tokens: Tokens) -> str:
    """A column's type as it is written: a word, what is in brackets, `unsigned`."""
    begin = tokens.position
    first = tokens.name().lower()
    if first == "double" and tokens.accept("precision"):
        return "double"
    if tokens.accept("("):
        while not tokens.accept(")"):
            tokens.next()
    tokens.accept("unsigned")
    text = tokens.source(begin)
    tokens.accept("zerofill")
    tokens.accept("binary")
    words = {"int2": "smallint", "int4": "int", "int8": "bigint", "mediumint": "int", "dec": "decimal"}
    if first in words:
        text = words[first] + text[len(first) :]
    if text.lower().startswith(("tinyint(", "smallint(", "int(", "integer(", "bigint(", "mediumint(")):
        text = text.partition("(")[0] + text.partition(")")[2]
    return text
