"""Who may log in at the relay: the users of the state folder, and each follower with a login of its own, which is there
as long as the follower is. What they may use is known to `ccpr.relay.offers`."""

from collections.abc import Iterable

from ccpr.matrixone.client.publication import EVERYTHING
from ccpr.matrixone.server.passwords import password_digest
from ccpr.service.workspace import Workspace
from ccpr.state.errors import SubscriptionMissing
from ccpr.state.followers import SERVED, all_followers, open_login
from ccpr.state.relay_users import RelayUsers


class Logins:
    """Thread-safe."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.users = RelayUsers(workspace.log.engine, workspace.vault)

    def digest(self, name: str) -> bytes | None:
        """As `ccpr.relay.relay_server.Relay` asks for it. Raises StateUnreadable."""
        found = self.users.digest(name)
        if found is not None:
            return found
        for follower in all_followers(self._workspace.log.engine)[0]:
            if follower.publication == name and follower.stage in SERVED:
                password = open_login(self._workspace.vault, follower)
                return password_digest(password) if password else None
        return None


def publications_named(workspace: Workspace, names: Iterable[str]) -> list[str]:
    """The publications of these subscriptions, as the relay calls them. Raises SubscriptionMissing for one that it does
    not serve."""
    served = {row.subscription_name.lower() for row in workspace.log.rows() if row.db_name != EVERYTHING}
    wanted = sorted({name.lower() for name in names})
    for name in wanted:
        if name not in served:
            raise SubscriptionMissing("the relay has no publication of this name", subject=f"publication {name}")
    return wanted
