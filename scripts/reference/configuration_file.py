"""docs/reference/ccpr-yaml.md: every key of a configuration file, from its model."""

from typing import Any

from ccpr.config.model import PARTS, ConfigPart, PolicyEntry, SubscriptionEntry, schema
from ccpr.state.setting_entry import FilePart
from scripts.reference.tables import code, default_of, described, listed

_HEAD = """# ccpr.yaml

Generated from the code by `make reference`; do not edit. `ccpr config apply` reads such a file
([how to](../how-to/describe-it-in-a-file.md)). For editors there is a
[JSON schema](ccpr.schema.json); `ccpr config export --schema` prints the same.

A text may have `${NAME}`, which is the value of an environment variable, and `$${` for `${` itself. A
variable that is not set is an error. A time is a number of seconds, or one with its unit: `90s`, `15m`,
`24h`, `7d`. An unknown key, a key that is there twice, an alias and a tag are errors with their line.
"""
_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true, false",
    "object": "",  # what it says of itself has it: "by name"
    "array": "list of text",
}
_TITLES = {
    (): "The file",
    ("spark",): "spark",
}


def page() -> str:
    """The text of docs/reference/ccpr-yaml.md."""
    found = schema()
    known = {"ConfigFile": found, **found["$defs"]}
    lines = [*_HEAD.rstrip().split("\n")]
    for place, part in PARTS.items():
        title = _TITLES.get(place) or "".join(f".{word}.NAME" for word in place).removeprefix(".")
        description = " ".join((part.__doc__ or "").split())
        own = _names(part)
        settings = [
            one.key
            for one in part.settings
            if one.key in own and not (one.required or one.in_file or one.part is FilePart.LAKE)
        ]
        rows = [_row(name, known[part.__name__], part) for name in own if name not in settings]
        lines += ["", f"## {title}", "", description]
        lines += ["", *described(rows)] if rows else []
        lines += ["", f"[Settings](configuration.md): {listed(settings)}."] if settings else []
        lines += ["", "And all keys of a policy."] if part is SubscriptionEntry else []
    return "\n".join(lines) + "\n"


def _names(part: type[ConfigPart]) -> list[str]:
    """Its own keys: a subscription's settings stand with the policy's."""
    return [name for name in part.model_fields if part is not SubscriptionEntry or name not in PolicyEntry.model_fields]


def _row(name: str, described: dict[str, Any], part: type[ConfigPart]) -> tuple[str, str]:
    said = described["properties"][name]
    for one in part.settings:
        if one.key == name:
            return code(name), _cell(one.kind.words, one.required, default_of(one), said["description"])
    required = name in described.get("required", ())
    default = part.model_fields[name].default if not required else None
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    has_default = default not in (None, ()) and part.model_fields[name].default_factory is None
    return code(name), _cell(_kind(said), required, shown if has_default else "", said["description"])


def _cell(kind: str, required: bool, default: str, sentence: str) -> str:
    """What a key may be, and what it is for. That a key holds text is not said."""
    words = [] if kind == _KINDS["string"] else [kind]
    words += ["required"] if required else []
    values = ", ".join(filter(None, words)) + (f" ({code(default)})" if default and not required else "")
    return f"{values}: {sentence}" if values else sentence


def _kind(said: dict[str, Any]) -> str:
    """Its type in words."""
    kinds = [one for one in said.get("anyOf", [said]) if one.get("type") != "null"]
    kind = kinds[0]
    if "enum" in kind:
        return ", ".join(map(code, kind["enum"]))
    return _KINDS.get(kind.get("type", ""), "part")
