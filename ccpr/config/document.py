"""A YAML text as values with their lines, as YAML 1.2 has them (its core schema): 010 is ten, and 1:30, yes and
2026-11-27 are texts. It is read as hostile: a file has a greatest size and depth, and neither
aliases nor tags, so that nothing in it can grow or be more than text, numbers, lists and mappings.

`${NAME}` in it is the value of an environment variable. What it had is never looked at again, so that a password may
contain `${`; a `${` that is meant is written `$${`."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import yaml

from ccpr.config.errors import ConfigInvalid
from ccpr.matrixone.errors import Terminal

MOST_BYTES = 1_000_000
_DEEPEST = 12
_TAG = "tag:yaml.org,2002:"
_CORE: dict[str, str] = {  # the first that fits a text without quotes says what it is
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}
_PLAIN_TAGS = tuple(f"{_TAG}{kind}" for kind in ("str", *_CORE))
_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\$\{")
_OF_COMMANDS = re.compile(r"(?<=:)env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?=@)")  # the password of a URI
Path: TypeAlias = tuple[str | int, ...]  # of keys and places in lists


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # pyright: ignore[reportGeneralTypeIssues]
    """Its library resolves texts by YAML 1.1; this one by `_CORE`."""

    yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {
        None: [(f"{_TAG}{kind}", re.compile(rf"(?:{form})\Z")) for kind, form in _CORE.items()]
    }


class _Dumper(yaml.SafeDumper):
    """Texts that either version takes for something else are written with quotes."""

    yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {  # pyright: ignore[reportIncompatibleVariableOverride]
        **yaml.SafeDumper.yaml_implicit_resolvers,
        None: _Loader.yaml_implicit_resolvers[None],
    }


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong at a place. `text` never repeats a value."""

    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """`source`: the file's name, for messages. `value`: the top-level mapping. `lines`: from 1, of each key and list
    item."""

    source: str
    value: dict[str, Any]
    lines: dict[Path, int]

    def line_of(self, path: Path) -> int:
        """Of the place, or of the nearest above it that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def text_at(self, path: Path) -> str | None:
        """The text at a place; None if something else is there, or nothing."""
        value: Any = self.value
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        return value if isinstance(value, str) else None

    def error(self, problems: list[Problem], kind: type[Terminal] = ConfigInvalid, most: int = 10) -> Terminal:
        """One error about all of them, with their lines."""
        found = sorted(problems, key=lambda one: self.line_of(one.path))
        texts = [f"line {self.line_of(one.path)}: {'.'.join(map(str, one.path))}: {one.text}" for one in found]
        more = [f"and {len(texts) - most} more"] if len(texts) > most else []
        first = self.line_of(found[0].path)
        return kind("; ".join([*texts[:most], *more]), subject=f"{self.source}, line {first}")

    def map_text(self, change: Callable[[Path, str], Any]) -> "Document":
        """With every text value, not the keys, as `change` makes it of its place and text."""

        def changed(value: Any, path: Path) -> Any:
            if isinstance(value, dict):
                return {key: changed(below, (*path, key)) for key, below in value.items()}
            if isinstance(value, list):
                return [changed(below, (*path, number)) for number, below in enumerate(value)]
            return change(path, value) if isinstance(value, str) else value

        return Document(self.source, changed(self.value, ()), self.lines)


def read_document(content: bytes, source: str) -> Document:
    """Raises ConfigInvalid."""
    if len(content) > MOST_BYTES:
        raise ConfigInvalid(f"it has {len(content):,} bytes; {MOST_BYTES:,} are the most", subject=source)
    try:
        text = content.decode("utf-8-sig")
        _check_events(text, source)
        node = yaml.compose(text, Loader=_Loader)
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"it is not UTF-8 at byte {error.start}", subject=source) from None
    except yaml.MarkedYAMLError as error:  # its text can quote the line, and so a password
        raise _invalid(error.problem or "it is not YAML", error.problem_mark or error.context_mark, source) from None
    except yaml.YAMLError:
        raise ConfigInvalid("it has characters that YAML does not allow", subject=source) from None
    if node is None:
        return Document(source, {}, {})
    if not isinstance(node, yaml.MappingNode):
        raise _invalid("keys are expected, `subscriptions:` and others", node.start_mark, source)
    lines: dict[Path, int] = {}
    return Document(source, _YamlReader(source, lines).value(node, ()), lines)


def written(value: Mapping[str, Any]) -> str:
    """The text of a document, which `read_document` reads as it was."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def _check_events(text: str, source: str) -> None:
    """Before anything is made of them."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise _invalid("aliases (*name) are not taken; name a policy instead", event.start_mark, source)
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) not in (None, "!", *_PLAIN_TAGS):
            raise _invalid("tags (!name) are not taken", event.start_mark, source)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _invalid("a file has one document", event.start_mark, source)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise _invalid("it is nested too deeply", event.start_mark, source)


def _invalid(text: str, mark: Any, source: str) -> ConfigInvalid:
    line = 1 if mark is None else mark.line + 1
    return ConfigInvalid(f"line {line}: {text}", subject=f"{source}, line {line}")


class _YamlReader:
    def __init__(self, source: str, lines: dict[Path, int]) -> None:
        self._source, self._lines = source, lines

    def value(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(node, path))
        if isinstance(node, yaml.SequenceNode):
            return [self._at(below, (*path, number), below) for number, below in enumerate(node.value)]
        try:
            return _scalar(node.tag.removeprefix(_TAG), node.value)
        except ValueError:
            raise _invalid("the value is not one that YAML can have", node.start_mark, self._source) from None

    def _pairs(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, Any]]:
        known: set[str] = set()
        for name, below in node.value:
            key = self.value(name, path) if isinstance(name, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise _invalid("a key must be text: put it in quotes", name.start_mark, self._source)
            if key in known:
                raise _invalid(f"the key {key[:80]!r} is there twice", name.start_mark, self._source)
            known.add(key)
            yield key, self._at(name, (*path, key), below)

    def _at(self, place: yaml.Node, path: Path, node: yaml.Node) -> Any:
        self._lines[path] = place.start_mark.line + 1
        return self.value(node, path)


def _scalar(kind: str, text: str) -> Any:
    """Raises ValueError."""
    if kind == "str":
        return text
    if kind not in _CORE or not re.fullmatch(_CORE[kind], text):
        raise ValueError("it is not of the kind that its tag says")
    if kind == "int":
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if kind == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return None if kind == "null" else text.lower() == "true"


def is_reference(text: str | None) -> bool:
    """Whether a text names a variable."""
    return text is not None and any(found["name"] for found in _REFERENCE.finditer(as_reference(text)))


def as_reference(text: str) -> str:
    """With `env:NAME` as commands take it for a password, as `${NAME}`."""
    return _OF_COMMANDS.sub(r"${\g<name>}", text) if text.startswith("mysql://") else text


def with_variables(document: Document, environment: Mapping[str, str]) -> Document:
    """Raises ConfigInvalid, which names every variable that is not set."""
    problems: list[Problem] = []

    def expanded(path: Path, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            name = found["name"]
            if name is None and found[0] == "$${":
                return "${"
            if name is None:
                problems.append(Problem(path, "`${` is not followed by a name and `}`; write `$${` if it is meant"))
            elif name not in environment:
                problems.append(Problem(path, f"the environment variable {name} is not set (export {name}=…)"))
            else:
                return environment[name]
            return ""

        return _REFERENCE.sub(value, as_reference(text))

    found = document.map_text(expanded)
    if problems:
        raise document.error(problems)
    return found
