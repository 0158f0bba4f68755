"""Errors of the configuration file."""

from ccpr.matrixone.errors import Terminal


class ConfigInvalid(Terminal):
    """The configuration file (`ccpr.yaml`) is not valid, or names a variable that is not set. Nothing was done."""

    code = "CONFIG_INVALID"
    about = "file and line"
    default_remedy = (
        "Correct the named lines. docs/reference/ccpr-yaml.md has all keys; `ccpr config init` writes a first file."
    )


class ConfigEmpty(Terminal):
    """The document names no subscriptions, as the empty output of a program that failed, and `--prune` would drop all
    of them. Nothing was done."""

    code = "CONFIG_EMPTY"
    about = "file"
    default_remedy = "Look at what wrote the file. To drop all subscriptions, write `subscriptions: {}`."


class ConfigConflict(Terminal):
    """The configuration file asks for a change that cannot be made in place. Nothing was done."""

    code = "CONFIG_CONFLICT"
    about = "place in the file"
    default_remedy = "Undo the change, or give the subscription or target another name: then it is a new one."


class SqlSyntax(Terminal):
    """The statement is not one of docs/reference/sql.md. The error shows the place, without passwords."""

    code = "SQL_SYNTAX"
    about = "place in the statement"
    default_remedy = "See docs/reference/sql.md for the statements and an example of each."
