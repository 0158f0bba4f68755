"""Ctrl-C while a target is synced, at each third packet of its server: no failure is recorded, the next run goes on."""

from typing import Any

import pymysql
import pytest
import typer.testing

from ccpr.cli.interrupts import INTERRUPTED
from ccpr.cli.main import app
from ccpr.service.workspace import Workspace
from ccpr.targets.loading_connection import LoadingConnection
from tests.support.shop import NAME, TARGET, Shop, shop

__all__ = ["shop"]

pytestmark = [pytest.mark.integration, pytest.mark.kills]


@pytest.mark.in_turn
def test_an_interrupt_is_no_failure_of_the_target(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.command("run", NAME)
    shop.add()
    shop.run()
    read, left, ends = pymysql.connections.Connection._read_packet, 0, 0

    def interrupted(connection: Any, *arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            connection._force_close()  # as it does whatever interrupts it
            raise KeyboardInterrupt
        return read(connection, *arguments)

    monkeypatch.setattr(LoadingConnection, "_read_packet", interrupted)
    packet = -1
    while True:
        packet += 3
        shop.insert("a", 1000 + packet)
        shop.insert("b", 1000 + packet)
        left = packet
        code = typer.testing.CliRunner().invoke(app, ["run", NAME]).exit_code
        with Workspace() as workspace:
            record = workspace.of(NAME).targets.get(TARGET)
        assert (packet, record.failing) == (packet, None)
        if left > 0:  # it had ended before
            break
        ends += 1
        assert (packet, code) == (packet, INTERRUPTED)
    assert ends > 20
    left = 0
    shop.run(code=0)
    shop.run(code=0)
    shop.assert_equal()
