"""A publication as a value, which every internal statement names; it is found by
`ccpr.matrixone.client.publication_offers`. Or none, where the login's own account has the database (decision
logical-mode).
"""

from dataclasses import dataclass

AUTO, PHYSICAL, LOGICAL = "auto", "physical", "logical"  # modes (decision logical-mode)
_SYS_ID = 0
EVERYTHING = "*"  # in the place of a database or of tables: all of them


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication, which every internal statement has to name.

    Attributes
    ----------
    name : of the publication; empty if there is none, since the login is of the account that has the database.
    publisher : the account that owns it, or the database.
    publisher_id : that account's number, from `account_id`.
    """

    name: str
    publisher: str
    publisher_id: int

    @property
    def is_own(self) -> bool:
        """Whether nothing goes through a publication."""
        return not self.name

    @property
    def is_readable(self) -> bool:
        """Whether the login sees rows of the account's tables: a login of account sys that goes through another
        account's publication does not."""
        return self.is_own or self.publisher_id == _SYS_ID
