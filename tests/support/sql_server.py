"""A server of MySQL's protocol, as a target's."""

from contextlib import closing
from typing import ClassVar

import pymysql
from pymysql.connections import Connection

from ccpr.schema.choices import Dialect


class SqlServer:
    """
    Attributes
    ----------
    first : what each session begins with.
    created : what CREATE DATABASE ends with.
    """

    dialect: ClassVar[Dialect]
    first: ClassVar[str | None] = None
    created: ClassVar[str] = ""
    host: str
    port: int
    user: str
    password: str

    def connect(self, database: str | None = None) -> Connection:
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=database,
            charset="utf8mb4",
            autocommit=True,
            local_infile=True,
            init_command=self.first,
        )

    def url(self, database: str) -> str:
        """SQLAlchemy's, of one of its databases."""
        return f"mysql+pymysql://{self.user}:{self.password}@{self.host}:{self.port}/{database}"

    def create_database(self, name: str) -> None:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{name}`{self.created}")
