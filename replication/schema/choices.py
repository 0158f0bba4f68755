"""What a person chooses for a target, as values (docs/requirements.md B9). What the DDL policies mean:
`replication.schema.policy`."""

from enum import StrEnum


class DuplicateKeys(StrEnum):
    """What happens to a table of which two visible rows have one primary key (the upstream's LOAD DATA does not
    check)."""

    ERROR = "error"  # the table waits for a person
    LAST = "last"  # the row with the later commit counts


class DdlPolicy(StrEnum):
    ADDITIVE = "additive"
    FULL = "full"
    MANUAL = "manual"
