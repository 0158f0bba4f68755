"""A database of a MariaDB into which a test restores."""

from contextlib import closing
from dataclasses import dataclass

from tests.support.mariadb import MariaDb


@dataclass
class Scratch:
    """Databases of the server that a test makes by restoring, dropped afterwards."""

    server: MariaDb
    name: str

    @property
    def uri(self) -> str:
        return f"mysql://{self.server.user}:env:RESTORE_PASSWORD@{self.server.host}:{self.server.port}/{self.name}"

    def tables(self) -> set[str]:
        with closing(self.server.connect(self.name)) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            return {name for (name,) in cursor.fetchall()}

    def text(self, table: str) -> str:
        with closing(self.server.connect(self.name)) as connection, connection.cursor() as cursor:
            cursor.execute(f"SHOW CREATE TABLE `{table}`")
            return cursor.fetchall()[0][1]

    def drop(self) -> None:
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS `{self.name}`")
