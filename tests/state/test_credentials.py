"""Passwords at rest."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from ccpr.matrixone.client.endpoint import Endpoint, Tls
from ccpr.state.credentials import KEY_FILE_VARIABLE, Vault
from ccpr.state.errors import StateUnreadable

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


def test_a_new_key_is_on_disk_before_what_it_sealed_is_given_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, real = [], os.fsync

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size))
        real(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    vault = Vault(tmp_path / "home" / "key")
    vault.seal("x", HERE)
    key = vault.path.stat()
    assert (key.st_ino, key.st_size) in synced, "with its content"
    named = [ino for ino, _ in synced].index(vault.path.parent.stat().st_ino)
    assert named > synced.index((key.st_ino, key.st_size)), "and its name, after that"
    synced.clear()
    Vault(vault.path).seal("x", HERE)  # another process, which may come before the first has done so
    assert {key.st_ino, vault.path.parent.stat().st_ino} <= {ino for ino, _ in synced}


def test_what_a_killed_process_left_is_not_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("os.link", killed)
        with pytest.raises(KeyboardInterrupt):
            Vault(tmp_path / "key").seal("x", HERE)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / f"key.{os.getpid()}").touch()  # an earlier release named it so, and a container's process is always 1
    vault = Vault(tmp_path / "key")
    assert vault.open(vault.seal("x", HERE), HERE) == "x"
