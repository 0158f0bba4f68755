"""What the key file has to open: every login that is stored, and how each is given again if it cannot be opened."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ccpr.service.workspace import Workspace
from ccpr.state.errors import FollowerLoginLost, StateUnreadable
from ccpr.state.followers import open_login, open_password
from ccpr.state.relay_users import RelayUsers
from ccpr.state.subscription import Subscription
from ccpr.targets.address import address_of


@dataclass(frozen=True, slots=True)
class SealedLogin:
    """`what` it is of, for people; `repair` is what to type."""

    what: str
    repair: str


def unopened(workspace: Workspace) -> list[SealedLogin]:
    """The logins that the key file does not open. Rows that cannot be read are skipped: others report them."""
    return [one for one, opens in _all(workspace) if not _works(opens)] if workspace.has_catalog else []


def _all(workspace: Workspace) -> Iterator[tuple[SealedLogin, Callable[[], object]]]:
    vault, engine = workspace.vault, workspace.log.engine
    for row in workspace.log.rows():
        name = row.subscription_name
        try:
            known = Subscription.from_row(row)
            targets, followers = workspace.of(row).targets.databases(), workspace.of(row).followers.all()
        except StateUnreadable:
            continue
        yield (
            SealedLogin(f"subscription {name}", f"`ccpr alter {name} --from URI`"),
            lambda known=known: vault.open(known.sealed_password, known.endpoint),
        )
        for target in targets:
            yield (
                SealedLogin(f"target {target.name} of {name}", f"`ccpr target alter {name} {target.name} --to URI`"),
                lambda target=target: vault.open(target.sealed_password, address_of(target).endpoint),
            )
        for follower in followers:
            again = f"ccpr follower add {name} {follower.name} --into URI"
            yield (
                SealedLogin(f"follower {follower.name} of {name} (its login at the relay)", f"`{again} --new-login`"),
                lambda follower=follower: open_login(vault, follower),
            )
            yield (
                SealedLogin(f"follower {follower.name} of {name} (its cluster)", f"`{again}`"),
                lambda follower=follower: open_password(vault, follower),
            )
    users = RelayUsers(engine, vault)
    for user in users.all():
        again = f"`ccpr relay user drop {user.name}`, then `ccpr relay user add {user.name}`"
        yield (
            SealedLogin(f"user {user.name} of the relay", again),
            lambda name=user.name: users.digest(name),
        )


def _works(opens: Callable[[], object]) -> bool:
    try:
        opens()
    except (StateUnreadable, FollowerLoginLost):
        return False
    return True
