"""A mirror with what can become of tables, made once: each test publishes it to lakes of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from tests.support.lakes import Published, source

SCHEMA = (
    "CREATE TABLE shop.keyed (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(10,2), at DATETIME(6))",
    "CREATE TABLE shop.keyless (n INT, word VARCHAR(20))",
    "CREATE TABLE shop.moved (id INT PRIMARY KEY, a INT, b VARCHAR(10))",
    "CREATE TABLE shop.gone (id INT PRIMARY KEY)",
)
FILL = (
    "INSERT INTO shop.keyed SELECT result, concat('n', result), result / 4, '2026-01-02 03:04:05.678901'"
    " FROM generate_series(1, 300) g",
    "INSERT INTO shop.keyless SELECT result % 10, concat('w', result % 3) FROM generate_series(1, 200) g",
    "INSERT INTO shop.moved SELECT result, result * 2, 'b' FROM generate_series(1, 50) g",
    "INSERT INTO shop.gone SELECT result FROM generate_series(1, 20) g",
)
STEPS: tuple[tuple[str, ...], ...] = (
    (*FILL,),
    ("DELETE FROM shop.keyed WHERE id % 7 = 0", "UPDATE shop.keyless SET word = 'new' WHERE n = 3"),
    ("ALTER TABLE shop.moved ADD COLUMN c INT", "INSERT INTO shop.moved VALUES (100, 1, 'x', 7)"),
    ("RENAME TABLE shop.moved TO shop.elsewhere", "DROP TABLE shop.gone"),
    ("ALTER TABLE shop.elsewhere RENAME COLUMN a TO renamed", "TRUNCATE TABLE shop.keyless"),
    (
        "CREATE TABLE shop.gone (id BIGINT PRIMARY KEY, again VARCHAR(10))",
        "INSERT INTO shop.gone VALUES (1, 'yes')",
        "CREATE TABLE shop.moved (id INT PRIMARY KEY)",
        "INSERT INTO shop.moved VALUES (5)",
    ),
    ("ALTER TABLE shop.elsewhere DROP COLUMN b", "UPDATE shop.keyed SET price = 0 WHERE id < 20"),
    ("ALTER TABLE shop.elsewhere ADD COLUMN b DECIMAL(20,3)", "UPDATE shop.elsewhere SET b = id"),
    ("INSERT INTO shop.keyless VALUES (1, 'a'), (1, 'a'), (1, 'a')", "DELETE FROM shop.keyed WHERE id > 250"),
)


@pytest.fixture(scope="session")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mirror, list[Point]]]:
    """A mirror, and its points: one after each of the steps."""
    with source(tmp_path_factory.mktemp("mirrored"), *SCHEMA) as found:
        points = [found.point(*statements) for statements in STEPS]
        yield found.mirror, points


@pytest.fixture
def published(mirrored: tuple[Mirror, list[Point]], tmp_path: Path) -> Published:
    """Nothing yet."""
    return Published(mirrored[0], tmp_path / "lake")


@pytest.fixture
def points(mirrored: tuple[Mirror, list[Point]]) -> list[Point]:
    return mirrored[1]
