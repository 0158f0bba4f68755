"""A subscription as a value: what is replicated, from where, and how. Source: docs/requirements.md O2, O3."""

import re
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from ccpr.matrixone.client.capabilities import Capabilities
from ccpr.matrixone.client.endpoint import EVERYTHING, LOGICAL, PHYSICAL, Endpoint, Publication, format_uri, parse_uri
from ccpr.matrixone.client.errors import BadUri
from ccpr.matrixone.schema import SYSTEM_DATABASES, Kind, Table
from ccpr.mirror.errors import BadName
from ccpr.mirror.points import TableRef
from ccpr.state.context import Context
from ccpr.state.errors import BAD_ROW_REMEDY, StateUnreadable
from ccpr.state.log_rows import LogRow
from ccpr.state.patterns import NamePatterns
from ccpr.state.settings import Settings
from ccpr.state.states import IterationState, State

if TYPE_CHECKING:
    from ccpr.state.credentials import Vault

_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is replicated, from where, and how. `database`: the database; EVERYTHING for several of the account, as far
    as `settings.databases` has them. `table`: the one table of a table-level subscription, None for the whole database.
    `sealed_password`: opened by the vault only at the moment of connecting."""

    task_id: str
    name: str
    endpoint: Endpoint
    sealed_password: str = field(repr=False)
    publication: Publication
    database: str
    table: str | None
    settings: Settings

    @property
    def uid(self) -> str:
        """12 random characters in the names of our snapshots, so that two installations never use the same name."""
        return self.task_id.replace("-", "")[:12]

    @property
    def of_account(self) -> bool:
        """Whether it is to several databases, those of an account."""
        return self.database == EVERYTHING

    @property
    def is_logical(self) -> bool:
        """Whether rows are read, and not object files (decision logical-mode)."""
        return self.publication.is_own

    @property
    def mode(self) -> str:
        return LOGICAL if self.is_logical else PHYSICAL

    @property
    def way(self) -> str:
        """The mode, why, and what it costs, for people."""
        account, name = self.publication.publisher, self.publication.name
        if not self.is_logical:
            return f"{PHYSICAL}: object files are copied, through publication {account}.{name}"
        return (
            f"{LOGICAL}: rows are read, as the login is of {account}, which has the database; all of a table that is "
            "new or defined anew, else those that changed"
        )

    @property
    def level(self) -> str:
        return level_of(self.database, self.table)

    @property
    def scope(self) -> str:
        if self.table is not None:
            return f"{self.database}.{self.table}"
        place = f"{self.databases} of account {self.publication.publisher}" if self.of_account else self.database
        return f"{place} ({self.patterns})" if self.patterns else place

    @property
    def databases(self) -> str:
        """Which of the account's, for people: one, patterns, or `*`."""
        return (self.settings.databases or EVERYTHING) if self.of_account else self.database

    @property
    def tables(self) -> str:
        """Which of the database's, for people: one, patterns, or `*`."""
        return self.table or str(self.patterns) or "*"

    @property
    def patterns(self) -> NamePatterns:
        return self.settings.patterns

    @property
    def chosen(self) -> tuple[str, str, str]:
        """The patterns of databases and tables, as they were given."""
        return self.settings.databases, self.settings.tables, self.settings.exclude_tables

    def chooses(self, database: str) -> bool:
        """Whether tables of the account's database are replicated."""
        return database not in SYSTEM_DATABASES and self.settings.database_patterns.match(database)

    def replicates(self, table: Table) -> bool:
        """Whether the table is an ordinary one of the scope, as far as its name is not left to `patterns`."""
        return table.kind is Kind.TABLE and self.table in (None, table.name)

    def copies(self, table: Table | TableRef) -> bool:
        """Whether the objects of a recorded table are copied."""
        return table.kind is Kind.TABLE or self.settings.with_indexes

    @classmethod
    def new(
        cls,
        name: str,
        endpoint: Endpoint,
        password: str,
        vault: "Vault",
        publication: Publication,
        database: str,
        table: str | None,
        settings: Settings,
    ) -> "Subscription":
        """Raises BadName."""
        check_subscription_name(name)
        sealed = vault.seal(password, endpoint)
        return cls(str(uuid.uuid4()), name, endpoint, sealed, publication, database, table, settings)

    @classmethod
    def from_row(cls, row: LogRow) -> "Subscription":
        """Raises StateUnreadable."""
        try:
            settings = Settings.from_text(row.sync_config)
            endpoint, sealed = parse_uri(row.upstream_conn)
        except (TypeError, ValueError, RecursionError, BadUri) as error:
            text = error.message if isinstance(error, BadUri) else error
            name = row.subscription_name
            remedy = BAD_ROW_REMEDY.replace("NAME", name)
            raise StateUnreadable(
                f"its row cannot be read: {text}", subject=f"subscription {name}", remedy=remedy
            ) from error
        publication = Publication(row.publication_name, row.subscription_account_name, row.account_id)
        return cls(
            row.task_id,
            row.subscription_name,
            endpoint,
            sealed or "",
            publication,
            row.db_name,
            row.table_name or None,
            settings,
        )

    def to_row(self, now: datetime, capabilities: Capabilities | None = None) -> LogRow:
        """The row of a new subscription: no iteration yet, no owner."""
        return LogRow(
            task_id=self.task_id,
            subscription_name=self.name,
            subscription_account_name=self.publication.publisher,
            sync_level=self.level,
            account_id=self.publication.publisher_id,
            db_name=self.database,
            table_name=self.table or "",
            upstream_conn=format_uri(self.endpoint, self.sealed_password),
            sync_config=self.settings.to_text(),
            state=State.RUNNING,
            iteration_state=IterationState.COMPLETE,
            iteration_lsn=0,
            watermark=0,
            context=Context(capabilities=capabilities).to_text(),
            cn_uuid=None,
            error_message=None,
            created_at=now,
            drop_at=None,
            updated_at=now,
            publication_name=self.publication.name,
            fence=0,
            lease_expires_at=0,
        )


def level_of(database: str, table: str | None) -> str:
    """What one is to: an account's databases, one database, or one table."""
    return "account" if database == EVERYTHING else "database" if table is None else "table"


def check_subscription_name(name: str) -> None:
    """The name becomes a folder and a partition key. Raises BadName."""
    if not _NAME.fullmatch(name):
        raise BadName("not a name for a subscription, a target or a follower", subject=f"name {name[:80]!r}")
