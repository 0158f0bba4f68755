"""The one place in which a setting is declared: a field of a dataclass with an entry.

From the entries come the options of commands, the keys of `ccpr.yaml` with their schema, the settings of SQL
statements, what may be changed later, the checks, what is exported, and the reference pages (decision
one-entry-a-setting).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, TypeVar

from ccpr.state.errors import BadSetting
from ccpr.state.setting_kinds import SettingKind

_ENTRY = "setting"
T = TypeVar("T")


class FilePart(StrEnum):
    """The part of `ccpr.yaml` in which a setting stands."""

    POLICY = "policies"  # and, as its own, in a subscription
    OBJECTIVE = "objectives"
    MIRROR = "mirrors"
    SUBSCRIPTION = "subscriptions"
    TARGET = "targets"
    LAKE = "lakes"

    @property
    def reference(self) -> str:
        """The key by which a subscription names one."""
        return {"policies": "policy"}.get(self.value, self.value.removesuffix("s"))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Needs:
    """What a subscription has to be to (`Subscription.level`), for a setting to say anything."""

    levels: tuple[str, ...]
    otherwise: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)  # with less to make at every start
class Setting:
    """
    Attributes
    ----------
    name : as it is stored, and in SQL.
    help : a sentence about it.
    label : what options and files call it, if not by its name.
    key : its key in `part` of a file, if that is another still.
    required : a part of a file has to have it.
    negative : the option of `alter` by which a flag ends.
    at_creation : the option of `subscribe` by which it is chosen, if that is another.
    clause : CREATE SUBSCRIPTION has a clause of that name.
    changeable : it can be changed after creation.
    later, in_file : what is said to those who alter it, and who write a file, if it is not `help`.
    empty : what the empty text is for.
    """

    kind: SettingKind[Any]
    help: str
    name: str = ""
    default: Any = None
    label: str = ""
    part: FilePart = FilePart.POLICY
    key: str = ""
    required: bool = False
    negative: str = ""
    at_creation: str = ""
    clause: bool = False
    changeable: bool = True
    needs: Needs | None = None
    later: str = ""
    in_file: str = ""
    empty: str = ""

    @property
    def option(self) -> str:
        return "--" + self.label.replace("_", "-")

    @property
    def sentence(self) -> str:
        """What there is to say to those who choose it."""
        return self.help if self.changeable else f"{self.help} It cannot be changed later."

    @property
    def sentence_later(self) -> str:
        """The same for those who change it."""
        return (self.later or self.help) + self.about_empty

    @property
    def about_empty(self) -> str:
        return f" '' is for {self.empty}." if self.empty else ""

    @property
    def sentence_in_file(self) -> str:
        return self.in_file or self.sentence

    def read(self, value: object) -> Any:
        """What a literal means. Raises BadSetting."""
        return self._within_limits(self.kind.read, value)

    def parse(self, given: object) -> Any:
        """What an option's text means. Raises BadSetting."""
        return self._within_limits(self.kind.parse, given)

    def check(self, value: object, level: str) -> None:
        """Whether a subscription of that level may have it. Raises BadSetting."""
        if self.read(value) != self.default and self.needs is not None and level not in self.needs.levels:
            raise BadSetting(self.needs.otherwise, subject=self.name, remedy=self.needs.remedy)

    def _within_limits(self, meaning: Callable[[Any], Any], said: object) -> Any:
        try:
            value = meaning(said)
            self.kind.check(value)
        except ValueError as error:
            shown = "what was given" if self.kind.may_be_secret else f"{said!r:.80}"
            raise BadSetting(f"{self.name} is {shown}, {error}", subject=self.name) from error
        return value

    def of(self, settings: object) -> Any:
        """Its value among all."""
        return getattr(settings, self.name)

    def plain(self, settings: object) -> Any:
        """The same as YAML and JSON have it."""
        return self.kind.plain(self.of(settings))


def setting(default: T, kind: SettingKind[T], help: str, **more: Any) -> T:
    """A field of a dataclass, with its entry. `more`: attributes of `Setting`."""
    return field(default=default, metadata={_ENTRY: Setting(default=default, kind=kind, help=help, **more)})


def entries(declaring: type[Any]) -> Mapping[str, Setting]:
    """The entries of a dataclass, by name."""
    found: dict[str, Setting] = {}
    for one in fields(declaring):
        entry: Setting = one.metadata[_ENTRY]
        label = entry.label or one.name
        found[one.name] = replace(entry, name=one.name, label=label, key=entry.key or label)
    return found
