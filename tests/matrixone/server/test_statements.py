import random

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.statements import parse


def test_any_text_is_parsed_or_refused() -> None:
    clauses = (
        "select * from mo_catalog.mo_tables {mo_ts = 1} where a in ( 'x' , 2 ) and b is not null order by c limit 1 ;",
        "create snapshot if not exists ` ' for database table from publication show publications like \" set role use",
    )
    pieces = " ".join(clauses).split(" ")
    chosen = random.Random(1)
    for _ in range(3000):
        text = " ".join(chosen.choice(pieces) for _ in range(chosen.randrange(1, 15)))
        try:
            parse(text)
        except StatementError as error:
            assert error.number == 1064  # noqa: PT017
