"""The servers that a table can be synced to, as far as their SQL differs."""

from enum import StrEnum


class Dialect(StrEnum):
    MYSQL8 = "mysql8"  # 8.0.23 and later: invisible columns
    MARIADB = "mariadb"  # 10.6 and later; tested with 10.11
    MATRIXONE = "matrixone"

    @property
    def server(self) -> str:
        """Whose it is, in a word that others know."""
        return "mysql" if self is Dialect.MYSQL8 else self.value

    @property
    def speaks_mysql(self) -> bool:
        """MySQL itself and MariaDB."""
        return self in (Dialect.MYSQL8, Dialect.MARIADB)
