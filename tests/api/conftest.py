from pathlib import Path

import pytest

import ccpr
from tests.api.shop import Shop, small_shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """See `small_shop`; the test may go on with it."""
    return small_shop(tmp_path / "mirror")


@pytest.fixture
def mirror(shop: Shop) -> ccpr.Mirror:
    return ccpr.open_mirror(shop.root)


@pytest.fixture
def orders(mirror: ccpr.Mirror) -> ccpr.Table:
    return mirror.table("shop.orders")
