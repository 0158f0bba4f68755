"""A publication as a value, which every internal statement names; it is found by
`ccpr.matrixone.client.publication_offers`.
"""

from dataclasses import dataclass

EVERYTHING = "*"  # in the place of a database or of tables: all of them


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication, which every internal statement has to name.

    Attributes
    ----------
    name : of the publication.
    publisher : the account that owns it.
    publisher_id : that account's number, from `account_id`.
    """

    name: str
    publisher: str
    publisher_id: int
