"""`${NAME}` in a configuration file: the value of an environment variable. What it had is never looked at again, so
that a password may contain `${`; a `${` that is meant is written `$${`."""

import re
from collections.abc import Mapping

from ccpr.config.document import Document, Path, Problem

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\$\{")
_OF_COMMANDS = re.compile(r"(?<=:)env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?=@)")  # the password of a URI


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
