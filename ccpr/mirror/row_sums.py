"""How many rows a table has, and a sum of them that does not depend on their order: readers of parts sum these up, and
the sums are added. Two tables of the same sum have the same rows; it is no signature, and finds damage, not malice.
Source: docs/format/mirror.md, "Row sums"; decision a-restore-is-tried.

Each value has a hash of 64 bits by its stored bytes and the place of its column; the hashes of a row are mixed into two
of 64 bits, and these are added over all rows, modulo 2^64. Vectorised: no loop over rows. As the sums are stored, what
is computed changes only with VERSION.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ccpr.matrixone.schema import FAKE_KEY

VERSION = 1
_WORD = 8
_ONE, _TWO, _THREE = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_S1, _S27, _S30, _S31, _S63 = (np.uint64(number) for number in (1, 27, 30, 31, 63))
_NULL, _SECOND = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F)
_MASKS = np.array([2**64 - 1, *(2 ** (8 * count) - 1 for count in range(1, _WORD))], np.uint64)  # by length modulo 8


@dataclass(frozen=True, slots=True)
class RowSum:
    """The rows of a table, to be compared with others.

    Attributes
    ----------
    rows : how many.
    total : the sum, 32 hexadecimal digits; empty if they were counted only.
    basis : which columns it is of, and how it is computed: only sums of one basis can be compared.
    """

    rows: int
    total: str = ""
    basis: str = ""

    def differs(self, other: "RowSum") -> str:
        """How it differs from what it should be, for people; empty if not, as far as the two can be compared."""
        if self.rows != other.rows:
            return f"{self.rows:,} rows instead of {other.rows:,}"
        if self.total and other.total and self.basis == other.basis and self.total != other.total:
            return "as many rows, and other values"
        return ""


def joined_sum(parts: Sequence[RowSum]) -> RowSum | None:
    """Of all rows of some parts; None if a part has none, or one of another basis."""
    basis = {part.basis for part in parts}
    if len(basis) != 1 or not all(part.total for part in parts):
        return None
    first, second = (sum(int(part.total[half], 16) for part in parts) for half in (slice(16), slice(16, 32)))
    return RowSum(sum(part.rows for part in parts), _total(first, second), basis.pop())


def _total(first: int, second: int) -> str:
    return f"{first % 2**64:016x}{second % 2**64:016x}"


class Summing:
    """Sums up the rows of batches. One thread at a time.

    Parameters
    ----------
    schema : of the columns that count, by their names; a batch may have more.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._names = schema.names
        self._rows, self._first, self._second = 0, 0, 0
        self.basis = basis_of(schema)

    @classmethod
    def of_users(cls, schema: pa.Schema) -> "Summing":
        """Of rows without a key the hidden number, which this schema may have, does not count."""
        return cls(pa.schema([field for field in schema if field.name != FAKE_KEY]))

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        for piece in [batch] if isinstance(batch, pa.RecordBatch) else batch.to_batches():
            if piece.num_rows == 0:
                continue
            row = row_hashes(piece, self._names)
            with np.errstate(over="ignore"):
                self._first += int(row.sum(dtype=np.uint64))
                self._second += int(_mixed(row ^ _SECOND).sum(dtype=np.uint64))
            self._rows += piece.num_rows

    def row_sum(self) -> RowSum:
        return RowSum(self._rows, _total(self._first, self._second), self.basis)


def row_hashes(batch: pa.RecordBatch, names: Sequence[str]) -> np.ndarray:
    """64 bits of each row, by the stored bytes of these columns."""
    row = np.zeros(batch.num_rows, np.uint64)
    with np.errstate(over="ignore"):
        for place, name in enumerate(names):
            row = _mixed(row ^ _salted(_hashes(batch.column(name)), place))
    return row


def basis_of(schema: pa.Schema) -> str:
    """Says which columns are summed up."""
    described = [VERSION, *((field.name, str(field.type)) for field in schema)]
    return hashlib.sha256(repr(described).encode()).hexdigest()[:16]


def _mixed(values: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64."""
    values = (values ^ (values >> _S30)) * _TWO
    values = (values ^ (values >> _S27)) * _THREE
    return values ^ (values >> _S31)


def _salted(hashes: np.ndarray, place: int) -> np.ndarray:
    return hashes + _ONE * np.uint64(2 * place + 1)


def _hashes(values: pa.Array) -> np.ndarray:
    """One for each value, by its bytes."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_null(values.type):
        return np.full(len(values), _NULL)
    found = _of_bytes(values) if _is_sequence(values.type) else _of_words(values)
    if values.null_count:
        missing = np.asarray(values.is_null())
        found[missing] = _NULL
    return found


def _is_sequence(kind: pa.DataType) -> bool:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return lists or texts or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _of_words(values: pa.Array) -> np.ndarray:
    """Of values of a fixed number of bytes."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    width = values.type.bit_width // 8
    stored = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * width : (values.offset + len(values)) * width]
    words = -(-width // _WORD)
    padded = np.zeros((len(values), words * _WORD), np.uint8)
    padded[:, :width] = stored.reshape(len(values), width)
    found = np.full(len(values), np.uint64(width))
    for number, column in enumerate(padded.view(np.uint64).T):
        found = _mixed(found ^ _salted(column, number))
    return found


def _of_bytes(values: pa.Array) -> np.ndarray:
    """Of texts, bytes and lists of numbers: the words of each are mixed with their places, and added."""
    starts, lengths, stored = pieces(values)
    words = -(-lengths // _WORD)
    total = int(words.sum())
    ends = np.cumsum(words)
    if total == 0:
        return _mixed(lengths.astype(np.uint64) * _ONE)
    place = np.arange(total) - np.repeat(ends - words, words)
    found = words_at(stored, np.repeat(starts, words) + place * _WORD)
    last = ends[words > 0] - 1
    found[last] &= _MASKS[lengths[words > 0] % _WORD]
    mixed = _mixed(found ^ (place.astype(np.uint64) * _ONE))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    return _mixed((sums[ends] - sums[ends - words]) + lengths.astype(np.uint64) * _ONE)


def words_at(stored: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The eight bytes from each place on, as a number; what is behind the end is 0."""
    data = np.zeros((-(-len(stored) // _WORD) + 2) * _WORD, np.uint8)
    data[: len(stored)] = stored
    aligned, number, shift = data.view("<u8"), at >> 3, ((at & 7) << 3).astype(np.uint64)
    return (aligned[number] >> shift) | ((aligned[number + 1] << (_S63 - shift)) << _S1)


def pieces(values: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the bytes of each value begin, how many there are, and all bytes; none of a null."""
    kind, count = values.type, len(values)
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        offsets = (np.arange(count + 1) + values.offset) * size
    else:
        wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_list(kind)
        buffer = values.buffers()[1]
        if buffer is None or buffer.size == 0:
            return np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(0, np.uint8)
        offsets = np.frombuffer(buffer, np.int64 if wide else np.int32)[values.offset :][: count + 1].astype(np.int64)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or not hasattr(values, "values"):
        width, content = 1, values.buffers()[2]
    else:
        inner = values.values
        width, content = inner.type.bit_width // 8, inner.buffers()[1]
        offsets = offsets + inner.offset
    stored = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    stored, offsets = stored[offsets[0] * width : offsets[-1] * width], offsets - offsets[0]  # others' may be around
    starts, lengths = offsets[:-1] * width, np.diff(offsets) * width
    if values.null_count:
        lengths = np.where(np.asarray(values.is_null()), 0, lengths)
    return starts, lengths, stored
