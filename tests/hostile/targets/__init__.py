"""The targets, and the share of a run's cases that each gets: objects most, since their format is the largest."""

from tests.hostile.engine import Target
from tests.hostile.targets.client import HostileServers
from tests.hostile.targets.lists import ObjectLists, Stats
from tests.hostile.targets.mirror_files import ArrowFiles, Points
from tests.hostile.targets.objects import Objects
from tests.hostile.targets.registry import RegistryRows
from tests.hostile.targets.server import HostileClients
from tests.hostile.targets.target_server import HostileTargets
from tests.hostile.targets.values import Catalogs, Values

_KINDS = {
    kind.name: kind
    for kind in (
        Objects,
        Stats,
        ObjectLists,
        ArrowFiles,
        Points,
        Values,
        Catalogs,
        HostileClients,
        HostileServers,
        HostileTargets,
        RegistryRows,
    )
}
SHARES = {
    "objects": 48,
    "stats": 8,
    "lists": 2,
    "arrow_files": 12,
    "points": 6,
    "values": 14,
    "catalogs": 5,
    "clients": 2,
    "servers": 1,
    "target_servers": 1,
    "registry": 2,
}
assert SHARES.keys() == _KINDS.keys()


def make_target(name: str) -> Target:
    return _KINDS[name]()
