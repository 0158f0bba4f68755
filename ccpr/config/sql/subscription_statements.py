"""The statements about subscriptions and lakes as values (grammar in docs/reference/sql.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ccpr.lake.lake_options import LAKE_SETTINGS, LakeOptions
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.service.subscriptions import SettingsChange, Wanted
from ccpr.state.setting_entry import Setting
from ccpr.state.settings import SETTINGS, Settings

Value: TypeAlias = bool | int | float | str
# What `WITH` may say of a lake, and the types by which a statement says it.
LAKE_FORMS: Mapping[str, tuple[type, ...]] = {
    "database": (str,),
    **{name: one.kind.forms for name, one in LAKE_SETTINGS.items()},
}


@dataclass(frozen=True, slots=True)
class Assignment:
    """`name` is a key of `SETTINGS`, and `value` a literal."""

    name: str
    value: Value


def _values(settings: Sequence[Assignment], known: Mapping[str, Setting] = SETTINGS) -> dict[str, Any]:
    """Of those that are known. Raises BadSetting."""
    return {one.name: known[one.name].read(one.value) for one in settings if one.name in known}


@dataclass(frozen=True, slots=True)
class CreateSubscription:
    """
    Attributes
    ----------
    database : EVERYTHING for several of an account, those of the setting `databases`.
    table : None for the whole database.
    uri : as written; holds the password, or `env:NAME` in its place.
    publication, publisher : None where they are to be looked up.
    if_not_exists : one of that name is no error.
    """

    name: str
    database: str
    table: str | None
    uri: str = field(repr=False)
    publication: str | None = None
    publisher: str | None = None
    settings: tuple[Assignment, ...] = ()
    if_not_exists: bool = False

    def wanted(self, endpoint: Endpoint, password: str) -> Wanted:
        """With the login that `uri` says. Raises BadSetting."""
        settings = Settings(**_values(self.settings))
        names = self.database, self.table, self.publication, self.publisher
        return Wanted(self.name, endpoint, password, *names, settings)


@dataclass(frozen=True, slots=True)
class AlterSubscription:
    """At least one of `uri`, `publication` and `settings` is said."""

    name: str
    uri: str | None = field(default=None, repr=False)
    publication: str | None = None
    settings: tuple[Assignment, ...] = ()

    def change(self, endpoint: Endpoint | None, password: str) -> SettingsChange:
        """With the login that `uri` says. Raises BadSetting."""
        return SettingsChange(endpoint, password, self.publication, _values(self.settings))


@dataclass(frozen=True, slots=True)
class PauseSubscription:
    name: str


@dataclass(frozen=True, slots=True)
class ResumeSubscription:
    name: str


@dataclass(frozen=True, slots=True)
class DropSubscription:
    """`purge`: the mirror and its points go, too. `force`: without the upstream, if it does not answer."""

    name: str
    if_exists: bool = False
    purge: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class ShowSubscriptions:
    pass


@dataclass(frozen=True, slots=True)
class ShowStatus:
    name: str


@dataclass(frozen=True, slots=True)
class ShowPublications:
    """Of the upstream that `uri` names."""

    uri: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SelectSubscriptions:
    """`columns` empty: all. `where`: columns and the values that they must have."""

    source: str
    columns: tuple[str, ...] = ()
    where: tuple[tuple[str, str | int], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateLake:
    """`settings` are of LAKE_FORMS."""

    name: str
    subscription: str
    uri: str
    settings: tuple[Assignment, ...] = ()

    @property
    def database(self) -> str:
        return next((str(one.value) for one in self.settings if one.name == "database"), "")

    def options(self) -> LakeOptions:
        """Raises BadSetting."""
        return LakeOptions(**_values(self.settings, LAKE_SETTINGS))


@dataclass(frozen=True, slots=True)
class DropLake:
    """`purge`: its tables go, too."""

    name: str
    subscription: str
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True, slots=True)
class ShowLakes:
    subscription: str


SubscriptionStatement: TypeAlias = (
    CreateSubscription
    | AlterSubscription
    | PauseSubscription
    | ResumeSubscription
    | DropSubscription
    | ShowSubscriptions
    | ShowStatus
    | ShowPublications
    | SelectSubscriptions
)
LakeStatement: TypeAlias = CreateLake | DropLake | ShowLakes
Statement: TypeAlias = SubscriptionStatement | LakeStatement
