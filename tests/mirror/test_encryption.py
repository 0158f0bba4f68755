"""Encrypted files: any part reads as it was written; without the key nothing does, and what was changed is an error."""

import base64
import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.errors import CcprError
from ccpr.mirror import encryption_keys as where
from ccpr.mirror.encrypted_store import EncryptedStore
from ccpr.mirror.encryption import (
    HEADER_BYTES,
    SEGMENT_BYTES,
    TAG_BYTES,
    Binding,
    FileCipher,
    OpenedContent,
    plain_size,
    sealed_size,
)
from ccpr.mirror.encryption_keys import COMMAND_VARIABLE, KEY_BYTES, Key, Keyring, keyring, new_key, parse_keys
from ccpr.mirror.errors import KeyUnusable, KeyWrong, MirrorDamaged, MirrorEncrypted, MirrorNotEncrypted, StoreConflict
from ccpr.mirror.layout import HEAD, IDENTITY, Head, Identity
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store

KEY, OTHER = Key.of(bytes(range(32))), Key.of(bytes(32))
KEYS = Keyring((KEY,), "env:KEY")
NAME = "objects/x"
BINDING = Binding(mirror="one")
FIXTURE = Path(__file__).parents[1] / "fixtures" / "encrypted_1"
SIZES = st.one_of(
    st.integers(0, 300),
    st.builds(lambda count, more: max(0, count * SEGMENT_BYTES + more), st.integers(0, 4), st.integers(-3, 3)),
)

MANY_SEGMENTS = st.builds(lambda count, more: count * SEGMENT_BYTES + more, st.integers(15, 34), st.integers(-1, 1))


def content(size: int) -> bytes:
    return hashlib.shake_128(size.to_bytes(8)).digest(size)


def sealed(data: bytes, name: str = NAME, key: Key = KEY, cut: int = 50_000) -> bytes:
    chunks = [data[at : at + cut] for at in range(0, len(data), cut)]
    return b"".join(FileCipher.new(key, BINDING, name).seal(chunks))


def opened(data: bytes, keys: Keyring = KEYS, name: str = NAME) -> OpenedContent:
    return OpenedContent(pa.py_buffer(data), lambda header: FileCipher.read(keys, BINDING, name, header, name), name)


@given(size=st.one_of(SIZES, MANY_SEGMENTS), cut=st.integers(1, 3_000_000), data=st.data())
def test_any_part_of_a_file_reads_as_it_was_written(size: int, cut: int, data: st.DataObject) -> None:
    expected = content(size)
    found = opened(sealed(expected, cut=max(cut, size // 50 + 1)))
    assert found.size == size
    offset = data.draw(st.integers(0, size))
    length = data.draw(st.integers(0, size - offset))
    assert found.slice(offset, length).to_pybytes() == expected[offset : offset + length]
    assert found.slice().to_pybytes() == expected


@given(size=SIZES)
def test_sizes_are_told_without_a_key(size: int) -> None:
    assert plain_size(sealed_size(size)) == size
    assert len(sealed(content(size))) == sealed_size(size)


@given(size=st.integers(0, 400_000))
def test_a_size_that_no_file_has_is_told(size: int) -> None:
    plain = plain_size(size)
    assert plain is None or sealed_size(plain) == size


@given(size=SIZES, place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_an_error(size: int, place: int, bit: int) -> None:
    damaged = bytearray(sealed(content(size)))
    damaged[place % len(damaged)] ^= 1 << bit
    with pytest.raises((MirrorDamaged, KeyWrong)):
        opened(bytes(damaged)).slice()


@given(size=SIZES, kept=st.integers(0, 10**6))
def test_a_file_that_was_cut_off_is_an_error(size: int, kept: int) -> None:
    whole = sealed(content(size))
    with pytest.raises(MirrorDamaged):
        opened(whole[: kept % len(whole)]).slice()


@pytest.mark.parametrize("moved", [(1, 0, 2), (0, 2), (0, 1), (0, 1, 1, 2), (0, 1, 2, 2)])
def test_segments_that_are_moved_left_out_or_repeated_are_an_error(moved: tuple[int, ...]) -> None:
    whole, step = sealed(content(3 * SEGMENT_BYTES)), SEGMENT_BYTES + TAG_BYTES
    parts = [whole[HEADER_BYTES + step * number :][:step] for number in range(3)]
    with pytest.raises(MirrorDamaged):
        opened(whole[:HEADER_BYTES] + b"".join(parts[number] for number in moved)).slice()


def test_a_file_under_another_name_or_with_another_ones_header_is_an_error() -> None:
    one, two = sealed(b"one"), sealed(b"two")
    for damaged in (sealed(b"one", "objects/y"), two[:HEADER_BYTES] + one[HEADER_BYTES:]):
        with pytest.raises(MirrorDamaged):
            opened(damaged).slice()


def test_two_files_of_one_content_have_nothing_in_common_but_the_number_of_the_key() -> None:
    one, two = sealed(bytes(1000)), sealed(bytes(1000))
    assert one[:16] == two[:16] == b"ccprenc2" + KEY.id
    assert one[16:48] != two[16:48]
    assert not set(zip(one[48::16], one[49::16], strict=False)) <= set(zip(two[48::16], two[49::16], strict=False))


def test_a_file_says_which_key_it_is_encrypted_with() -> None:
    with pytest.raises(KeyWrong, match=f"key {OTHER.id.hex()}, and env:KEY has {KEY.id.hex()}"):
        opened(sealed(b"x", key=OTHER)).slice()
    assert opened(sealed(b"x", key=OTHER), Keyring((KEY, OTHER), "k")).slice().to_pybytes() == b"x"


# ---- keys


@pytest.mark.integration
def test_keys_come_from_a_file_a_variable_or_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = new_key(), new_key()
    text = f"# of 2026\n{one}  # new files\n\n{two}\n"
    (tmp_path / "key").write_text(text)
    monkeypatch.setenv("SHOP_KEY", text)
    monkeypatch.setenv(COMMAND_VARIABLE, f"cat {tmp_path / 'key'}")
    found = {reference: keyring(reference) for reference in (f"file:{tmp_path / 'key'}", "env:SHOP_KEY", "command")}
    assert {one.keys for one in found.values()} == {parse_keys(text, "").keys}
    assert [len(key.secret) for key in found["command"].keys] == [KEY_BYTES, KEY_BYTES]
    assert parse_keys(bytes(range(32)).hex(), "").keys == (KEY,)


@pytest.mark.integration
def test_a_key_that_cannot_be_had_is_an_error_that_does_not_tell_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789AbCdEfG"
    (tmp_path / "long").write_text(secret + "1\n")
    (tmp_path / "binary").write_bytes(b"\xff" * 32)
    (tmp_path / "huge").write_text("#" * 70_000)
    monkeypatch.setenv("SHORT", secret[:-1])
    commands = ("", "false", f"cat {tmp_path / 'long'}", "/no/such/program", "'")
    monkeypatch.setattr(where, "_COMMAND_SECONDS", 0.2)
    files = [f"file:{tmp_path / name}" for name in ("long", "binary", "huge")]
    for reference in ("file:/no/such/file", *files, "env:SHORT", "env:UNSET_KEY"):
        with pytest.raises(KeyUnusable) as raised:
            keyring(reference)
        assert secret[:10] not in f"{raised.value} {raised.value.__cause__}"
    for command in (*commands, "sleep 9"):
        monkeypatch.setenv(COMMAND_VARIABLE, command)
        with pytest.raises(KeyUnusable) as raised:
            keyring("command")
        assert secret[:10] not in str(raised.value)
    for reference in ("", "key", "env:a b", "command:rm", "http://x"):
        with pytest.raises(CcprError, match="BAD_NAME"):
            keyring(reference)


def test_a_key_is_not_shown_by_what_holds_it() -> None:
    assert str(KEY.secret) not in repr(KEYS)
    assert KEY.secret.hex() not in repr(KEYS)


# ---- a mirror


@pytest.fixture
def plain(recorded_mirror: Callable[[str], Mirror]) -> Mirror:
    return recorded_mirror("dml")


def encrypted(plain: Mirror, folder: Path, keys: Keyring = KEYS) -> Mirror:
    store = EncryptedStore(LocalStore(folder), keys)
    for name in plain.store.names("objects"):
        store.put(name, [plain.store.read(name)])
    for kind in ("manifests", "ledger", "definitions", "points", "kept"):
        for name in plain.store.names(kind):
            store.put(name, [plain.store.read(name)])
    store.replace(HEAD, plain.store.read(HEAD).to_pybytes())
    return Mirror(store)


def rows_of(mirror: Mirror) -> dict[tuple[int, str], str]:
    found = {}
    for point in mirror.points():
        for ref in point.tables.values():
            schema, batches = mirror.read(point, ref.qualified_name)
            found[point.lsn, ref.qualified_name] = repr(pa.Table.from_batches(batches, schema).to_pylist())
    return found


def test_an_encrypted_mirror_has_the_same_rows_and_none_of_its_bytes(plain: Mirror, tmp_path: Path) -> None:
    mirror = encrypted(plain, tmp_path)
    assert rows_of(mirror) == rows_of(plain) != {}
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for point in plain.points():
        for ref in point.tables.values():
            assert ref.qualified_name.encode() not in stored
            assert ref.manifest.encode() not in stored
    assert b"ARROW1" not in stored


def test_without_its_key_and_with_another_one_a_mirror_says_so(
    plain: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encrypted(plain, tmp_path)
    monkeypatch.setenv("WRONG", new_key())
    with pytest.raises(MirrorEncrypted, match=KEY.id.hex()):
        Mirror(open_store(str(tmp_path))).point()
    with pytest.raises(KeyWrong, match=KEY.id.hex()):
        Mirror(open_store(f"{tmp_path}?encrypt=env:WRONG")).point()
    with pytest.raises(MirrorNotEncrypted):
        Mirror(open_store(plain.store.url, encrypt="env:WRONG")).point()
    assert json.loads((tmp_path / HEAD).read_text())["format"] == 5, "which no release before knows"


def owned(folder: Path, owner: str) -> Mirror:
    """A mirror of its own with the same key."""
    mirror = Mirror(EncryptedStore(LocalStore(folder), KEYS))
    mirror.write_identity(Identity(owner, owner, "00c0ffee"), new=True)
    mirror.publish_head(Head(None, None, 7, 99))
    mirror.store.put(NAME, [owner.encode()])
    mirror.store.put_together([("manifests/x", owner.encode())])
    mirror.store.replace("work/x", owner.encode())
    return mirror


def test_files_of_another_mirror_with_the_same_key_are_refused(tmp_path: Path) -> None:
    owned(tmp_path / "a", "one"), owned(tmp_path / "b", "two")
    for name in (HEAD, NAME, "manifests/x", "work/x"):
        shutil.copy(tmp_path / "b" / name, tmp_path / "a" / name)
        with pytest.raises(MirrorDamaged):
            EncryptedStore(LocalStore(tmp_path / "a"), KEYS).read(name)
    identity = json.loads((tmp_path / "b" / IDENTITY).read_text())
    (tmp_path / "a" / IDENTITY).write_text(json.dumps(identity | {"mirror": "one"}))
    with pytest.raises(MirrorDamaged):
        Mirror(EncryptedStore(LocalStore(tmp_path / "a"), KEYS)).identity()
    shutil.copy(tmp_path / "b" / IDENTITY, tmp_path / "a" / IDENTITY)
    found = Mirror(EncryptedStore(LocalStore(tmp_path / "a"), KEYS)).identity()
    assert found is not None
    assert found.task_id == "two", "a whole mirror is another one, and says so"


def test_a_mirror_of_before_is_read_and_goes_on_as_it_began(tmp_path: Path) -> None:
    shutil.copytree(FIXTURE, tmp_path, dirs_exist_ok=True)

    def opened_again() -> Mirror:
        return Mirror(EncryptedStore(LocalStore(tmp_path), KEYS))

    mirror = opened_again()
    assert mirror.store.read(NAME).to_pybytes() == b"written before"
    assert mirror.published_head() == Head(None, None, 7, 99)
    identity = mirror.identity()
    assert identity is not None
    mirror.store.put("objects/y", [b"new"])
    mirror.publish_head(Head(None, None, 8, 99))
    mirror.write_identity(identity)
    for lost in ((), (IDENTITY,), (IDENTITY, HEAD)):
        for name in lost:
            (tmp_path / name).unlink()
        (tmp_path / "points").mkdir(exist_ok=True)
        shutil.copy(tmp_path / "objects" / "y", tmp_path / "points" / "y")
        again = opened_again()
        again.write_identity(identity)
        again.publish_head(Head(None, None, 8, 99))
        assert opened_again().store.read("objects/y").to_pybytes() == b"new"
        assert opened_again().published_head() == Head(None, None, 8, 99)
    owned(tmp_path / "newer", identity.task_id)
    shutil.copy(tmp_path / "newer" / NAME, tmp_path / NAME)
    with pytest.raises(MirrorDamaged):
        opened_again().store.read(NAME)


def test_keys_are_changed_one_file_after_the_other(plain: Mirror, tmp_path: Path) -> None:
    encrypted(plain, tmp_path)
    both = EncryptedStore(LocalStore(tmp_path), Keyring((OTHER, KEY), "new and old"))
    both.put("objects/new", [b"new"])
    assert rows_of(Mirror(both)) == rows_of(plain)
    newer = EncryptedStore(LocalStore(tmp_path), Keyring((OTHER,), "new"))
    assert newer.read("objects/new").to_pybytes() == b"new"
    with pytest.raises(KeyWrong):
        Mirror(newer).point()


@pytest.mark.long
def test_each_flipped_bit_of_a_mirror_is_found_when_its_file_is_read(plain: Mirror, tmp_path: Path) -> None:
    mirror = encrypted(plain, tmp_path / "m")
    expected = rows_of(mirror)
    for file in sorted(path for path in (tmp_path / "m").rglob("*") if path.is_file()):
        whole = file.read_bytes()
        damaged = bytearray(whole)
        damaged[len(damaged) // 2] ^= 4
        file.write_bytes(damaged)
        with suppress(MirrorDamaged, KeyWrong):
            read = rows_of(Mirror(EncryptedStore(LocalStore(tmp_path / "m"), KEYS)))
            assert read == expected, "a file that no reader needs"
        file.write_bytes(whole)


def test_what_is_there_with_another_content_is_not_written_over(tmp_path: Path) -> None:
    store = EncryptedStore(LocalStore(tmp_path), KEYS)
    first = store.put(NAME, [b"a", b"b"])
    before = (tmp_path / NAME).read_bytes()
    assert store.put(NAME, [b"ab"]) == first
    assert store.put_together([("objects/y", b"1"), (NAME, b"ab")])[1] == first
    with pytest.raises(StoreConflict):
        store.put(NAME, [b"ba"])
    with pytest.raises(StoreConflict):
        store.put_together([(NAME, b"ba")])
    assert (tmp_path / NAME).read_bytes() == before
    assert store.put(NAME, [b"ba"], overwrite=True).size == 2
    assert store.open(NAME).slice().to_pybytes() == b"ba"


def test_a_repaired_file_is_read_anew(tmp_path: Path) -> None:
    store = EncryptedStore(LocalStore(tmp_path), KEYS)
    store.put(NAME, [b"good"])
    good = (tmp_path / NAME).read_bytes()
    assert store.open(NAME).slice(0, 4).to_pybytes() == b"good"
    (tmp_path / NAME).write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(MirrorDamaged):
        store.stored(NAME)
    store.put(NAME, [b"good"], overwrite=True)
    assert store.stored(NAME).sha256 == hashlib.sha256(b"good").digest()


def test_keys_are_as_long_as_they_say() -> None:
    text = new_key()
    assert len(base64.urlsafe_b64decode(text + "=")) == KEY_BYTES
    assert new_key() != text
