"""A mirror in a bucket is opened with a login that is an argument, and no text shows it."""

import logging
import traceback
from pathlib import Path

import pytest

import ccpr
from ccpr.mirror.open_store import open_store
from tests.api.shop import Shop

pytestmark = pytest.mark.integration

KEY, SECRET, TOKEN = "AKIDTHATISGIVEN", "the-secret-that-is-given", "the-token-that-is-given"
LOGIN = {"access_key_id": KEY, "secret_access_key": SECRET, "session_token": TOKEN}


@pytest.fixture
def stored(shop: Shop, s3_url: str) -> str:
    """The URL of the mirror in a bucket, without a region and an endpoint."""
    store = open_store(s3_url)
    for path in sorted(shop.root.rglob("*")):
        if path.is_file():
            store.put(path.relative_to(shop.root).as_posix(), [path.read_bytes()])
    return s3_url.partition("?")[0]


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str | None]]:
    """What the client library is given to log in with."""
    from pyarrow import fs

    found: list[tuple[str, str, str | None]] = []

    class Recording(fs.S3FileSystem):
        def __init__(self, **options: object) -> None:
            names = ("access_key", "secret_key", "session_token")
            found.append(tuple(options.get(name) for name in names))  # pyright: ignore[reportArgumentType]
            super().__init__(**options)

    monkeypatch.setattr(fs, "S3FileSystem", Recording)
    return found


def test_rows_and_changes_are_read_with_a_login_of_ones_own(
    stored: str,
    s3_server: str,
    shop: Shop,
    logins: list[tuple[str, str, str | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    options = {**LOGIN, "region": "us-east-1", "endpoint_url": f"http://{s3_server}"}
    mirror = ccpr.open_mirror(stored, storage_options=options)
    assert logins == [(KEY, SECRET, TOKEN)]
    assert mirror.url == f"{stored}?endpoint_override={s3_server}&region=us-east-1&scheme=http"
    orders = mirror.table("shop.orders")
    assert orders.to_arrow().sort_by("id").equals(shop.rows(shop.published[-1]))
    assert orders.changes(1).to_arrow().num_rows == 515
    assert mirror.tables()[1].name == "shop.orders"
    assert len(logins) == 1, "nothing is opened by its URL, without the login"


def test_names_are_those_of_other_readers_too(
    stored: str, s3_server: str, logins: list[tuple[str, str, str | None]]
) -> None:
    endpoint = f"http://{s3_server}"
    for options in (
        {
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_region": "us-east-1",
            "aws_endpoint_url": endpoint,
        },
        {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "REGION": "us-east-1", "ENDPOINT": endpoint},
    ):
        assert ccpr.open_mirror(stored, storage_options=options).point().lsn == 3
        assert logins.pop() == (KEY, SECRET, None)
    url = f"{stored}?region=us-east-1&endpoint={endpoint}"
    assert ccpr.open_mirror(url, storage_options={"endpoint_url": endpoint}).point().lsn == 3


def test_no_text_shows_the_login(stored: str, s3_server: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    options = {**LOGIN, "region": "us-east-1", "endpoint_url": f"http://{s3_server}"}
    mirror = ccpr.open_mirror(stored, storage_options=options)
    orders = mirror.table("shop.orders")
    shown = [repr(one) for one in (mirror, orders, orders.scan(), orders.changes(1), mirror._credentials, vars(mirror))]
    shown += [mirror.url, str(mirror._mirror.store), repr(vars(mirror._mirror.store))]
    away = {**LOGIN, "region": "us-east-1", "endpoint_url": "http://127.0.0.1:9"}
    for wrong in (
        {**options, "endpoint_url": "http://elsewhere:1"},
        {**options, "colour": "red"},
        {**options, "session_token": ""},
        {**options, "AWS_SECRET_ACCESS_KEY": "another"},
        {**options, "endpoint_url": f"http://{KEY}:{SECRET}@{s3_server}"},
        {name: value for name, value in options.items() if name != "access_key_id"},
    ):
        url = (
            f"{stored}?region=us-east-1&endpoint=http://{s3_server}" if "elsewhere" in wrong["endpoint_url"] else stored
        )
        with pytest.raises(ccpr.CcprError) as refused:
            ccpr.open_mirror(url, storage_options=wrong)
        assert refused.value.code in ("BAD_OPTION", "BAD_NAME")
        shown.append("".join(traceback.format_exception(refused.value)))
    with pytest.raises(ccpr.errors.StoreFailed) as failed:
        ccpr.open_mirror(stored, storage_options=away)
    shown += ["".join(traceback.format_exception(failed.value)), caplog.text]
    for text in shown:
        assert not [secret for secret in (KEY, SECRET, TOKEN) if secret in text], text


def test_options_that_no_store_takes_are_named(tmp_path: Path, shop: Shop, stored: str) -> None:
    with pytest.raises(ccpr.errors.BadOption, match="storage options are for object stores"):
        ccpr.open_mirror(shop.root, storage_options=LOGIN)
    assert ccpr.open_mirror(shop.root, storage_options={}).point().lsn == 3
    with pytest.raises(ccpr.errors.BadOption, match=r"no option 'colour'.*access_key_id, secret_access_key"):
        ccpr.open_mirror(stored, storage_options={"colour": "red"})
    with pytest.raises(ccpr.errors.BadOption, match="one is missing"):
        ccpr.open_mirror(stored, storage_options={"access_key_id": KEY})
    with pytest.raises(ccpr.errors.BadOption, match="not a dict"):
        ccpr.open_mirror(stored, storage_options=["access_key_id", KEY])  # pyright: ignore[reportArgumentType]


def test_a_login_of_this_process_does_not_go_to_sparks_workers(stored: str, s3_server: str) -> None:
    options = {**LOGIN, "region": "us-east-1", "endpoint_url": f"http://{s3_server}"}
    mirror = ccpr.open_mirror(stored, storage_options=options)
    for read in (
        lambda: ccpr.read_table(object(), mirror, "shop.orders"),  # pyright: ignore[reportArgumentType]
        lambda: ccpr.read_changes(object(), mirror, "shop.orders", 1),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(ccpr.errors.BadOption, match=r"workers do not get its credentials.*AWS_ACCESS_KEY_ID"):
            read()
