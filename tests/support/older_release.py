"""`python -m tests.support.older_release OID,… ARGUMENTS…`: ccpr of a release that does not know some column types."""

import sys
from collections.abc import Iterable

from ccpr.cli.main import app
from ccpr.matrixone.objects import types


def forget(oids: Iterable[int]) -> None:
    """From here on this process does not know these types."""
    for oid in oids:
        types.SLOT_SIZES.pop(oid, None)


if __name__ == "__main__":
    forget(map(int, sys.argv[1].split(",")))
    app(sys.argv[2:])
