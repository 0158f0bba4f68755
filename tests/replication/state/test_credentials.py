"""Passwords at rest."""

from pathlib import Path

import pytest

from replication.errors import StateUnreadable
from replication.state.credentials import KEY_FILE_VARIABLE, Vault


def test_what_is_sealed_opens_with_the_same_key_only(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "a" / "key")
    sealed = vault.seal("pässword:@#")
    assert "pässword" not in sealed
    assert Vault(tmp_path / "a" / "key").open(sealed) == "pässword:@#"
    Vault(tmp_path / "b").seal("x")
    with pytest.raises(StateUnreadable, match="another key"):
        Vault(tmp_path / "b").open(sealed)


def test_the_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "key")
    sealed = vault.seal("x")
    assert vault.path.stat().st_mode & 0o777 == 0o600
    vault.path.chmod(0o644)
    with pytest.raises(StateUnreadable, match="open to others"):
        vault.open(sealed)


def test_a_key_file_that_is_missing_or_has_no_key_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StateUnreadable):
        Vault(tmp_path / "nothing").open("x")
    (tmp_path / "key").write_text("short")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(StateUnreadable, match="does not hold a key"):
        Vault(tmp_path / "key").seal("x")


def test_a_worker_without_a_key_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_FILE_VARIABLE, raising=False)
    with pytest.raises(StateUnreadable, match=KEY_FILE_VARIABLE):
        Vault.of_worker()
