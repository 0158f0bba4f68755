"""That the last point shows just the catalog that an upstream had: kept with the point, so that the catalog is not read
again while it is the same (decision catalog-by-checksum).

It is a digest of all that a catalog follows from, the rows of the point among them. Where one of these is another one,
by a restore of the state, another release, an ALTER of the subscription, so is the digest, and it proves nothing.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ccpr.matrixone.schema import integer_of, text_of
from ccpr.mirror.points import TableRef


@dataclass(frozen=True, slots=True)
class Settled:
    """
    Attributes
    ----------
    digest : `settled_digest` of the point.
    zero_dates : of its tables, see `ccpr.matrixone.schema.zero_dates_of`.
    """

    digest: str
    zero_dates: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Settled":
        """Raises KeyError, TypeError, ValueError or AttributeError for what was not written from one."""
        zero_dates = {
            text_of(table): {text_of(column): integer_of(count) for column, count in columns.items()}
            for table, columns in value["zero_dates"].items()
        }
        return cls(text_of(value["digest"]), zero_dates)


def settled_digest(inputs: str, refs: Mapping[int, TableRef]) -> str:
    """Of what the catalog follows from besides the last point, and of the point's tables: each of their states has a
    manifest of its own."""
    digest = hashlib.sha256(inputs.encode())
    digest.update("".join(f"\n{number} {refs[number].manifest}" for number in sorted(refs)).encode())
    return digest.hexdigest()
