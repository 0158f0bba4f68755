"""What was reported last of each subscription, target and follower, in Dagster's own key-value table: so that only news
is reported."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

import dagster as dg


class Judged(Protocol):
    """What has a verdict: a text that is another one when there is news."""

    @property
    def verdict(self) -> str: ...


_Judged = TypeVar("_Judged", bound=Judged)


def verdict_key(kind: str, name: str) -> str:
    """Of the verdict on what has this name. The first 64 characters of a key have to differ in MySQL."""
    return f"ccpr/{kind}/{hashlib.sha256(name.encode()).hexdigest()[:40]}"


def known_verdicts(instance: dg.DagsterInstance, keys: Iterable[str]) -> Mapping[str, str]:
    """By key. What has never been reported is not among them."""
    return instance.daemon_cursor_storage.get_cursor_values(set(keys))


def news_of(known: Mapping[str, str], found: Mapping[str, _Judged]) -> dict[str, _Judged]:
    """Those whose verdict is another than the known one."""
    return {key: health for key, health in found.items() if known.get(key) != health.verdict}


def remember(instance: dg.DagsterInstance, news: Mapping[str, Judged]) -> None:
    """They have been reported."""
    store_values(instance, {key: health.verdict for key, health in news.items()})


def store_values(instance: dg.DagsterInstance, values: Mapping[str, str]) -> None:
    """Dagster's own call takes new keys or known ones: of both, it loses the new ones."""
    storage = instance.daemon_cursor_storage
    known = storage.get_cursor_values(set(values)) if values else {}
    for part in ({key: values[key] for key in known}, {key: values[key] for key in values if key not in known}):
        if part:
            storage.set_cursor_values(part)
