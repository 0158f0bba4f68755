"""Passwords at rest."""

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from matrixone.upstream.endpoint import Endpoint, Tls
from replication.errors import StateUnreadable
from replication.state.credentials import KEY_FILE_VARIABLE, Vault

HERE = Endpoint("db.example.com", 6001, "acc", "dump")


def test_what_is_sealed_opens_with_the_same_key_only(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "a" / "key")
    sealed = vault.seal("pässword:@#", HERE)
    assert "pässword" not in sealed
    assert Vault(tmp_path / "a" / "key").open(sealed, HERE) == "pässword:@#"
    Vault(tmp_path / "b").seal("x", HERE)
    with pytest.raises(StateUnreadable, match="another key"):
        Vault(tmp_path / "b").open(sealed, HERE)


def test_the_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "key")
    sealed = vault.seal("x", HERE)
    assert vault.path.stat().st_mode & 0o777 == 0o600
    vault.path.chmod(0o644)
    with pytest.raises(StateUnreadable, match="open to others"):
        vault.open(sealed, HERE)


def test_a_key_file_that_is_missing_or_has_no_key_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StateUnreadable):
        Vault(tmp_path / "nothing").open("x", HERE)
    (tmp_path / "key").write_text("short")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(StateUnreadable, match="does not hold a key"):
        Vault(tmp_path / "key").seal("x", HERE)


def test_a_worker_without_a_key_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_FILE_VARIABLE, raising=False)
    with pytest.raises(StateUnreadable, match=KEY_FILE_VARIABLE):
        Vault.of_worker()


@pytest.mark.parametrize(
    "elsewhere",
    [
        replace(HERE, host="elsewhere.example.com"),
        replace(HERE, port=6002),
        replace(HERE, user="other"),
        replace(HERE, account="sys"),
        replace(HERE, role="r"),
        replace(HERE, tls=Tls("disabled")),
        None,
    ],
)
def test_a_password_is_for_the_address_and_login_that_it_was_sealed_for(
    tmp_path: Path, elsewhere: Endpoint | None
) -> None:
    vault = Vault(tmp_path / "key")
    with pytest.raises(StateUnreadable, match="another address or login"):
        vault.open(vault.seal("secret-word", HERE), elsewhere)
    assert vault.open(vault.seal("secret-word", HERE), replace(HERE, host="DB.example.com")) == "secret-word"


def test_what_0_1_0_sealed_is_still_opened(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "key")
    vault.seal("", None)
    assert vault.open(Fernet(vault.path.read_bytes()).encrypt("pässword".encode()).decode(), HERE) == "pässword"
