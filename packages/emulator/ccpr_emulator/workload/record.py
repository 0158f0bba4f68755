"""The record of a load: what decides its changes, and how many steps the database has acknowledged."""

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from ccpr_emulator.errors import RecordUnusable
from ccpr_emulator.workload.steps import Load

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Record:
    """
    Attributes
    ----------
    acknowledged : steps that the database has said to be committed.
    reserved : the most that may have been sent: it is written before they are.
    """

    database: str
    load: Load
    acknowledged: int = 0
    reserved: int = 0

    @classmethod
    def read(cls, path: Path) -> "Record":
        """Raises RecordUnusable."""
        try:
            value = json.loads(path.read_text("utf-8"))
            load = [value["load"][name] for name in ("seed", "rows", "batch")]
            numbers = [*load, value["acknowledged"], value["reserved"]]
            if value["format"] != FORMAT or not all(type(one) is int for one in numbers):
                raise ValueError("not of this format")
            record = cls(str(value["database"]), Load(*load), *numbers[3:])
        except OSError as error:
            raise RecordUnusable(f"it cannot be read: {error.strerror}", subject=str(path)) from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RecordUnusable("it is not the record of a load", subject=str(path)) from error
        if record.load.rows < 1 or record.load.batch < 1 or not 0 <= record.acknowledged <= record.reserved:
            raise RecordUnusable("it is not the record of a load", subject=str(path))
        return record

    def keep(self, path: Path) -> None:
        """Whole or not at all. Raises RecordUnusable."""
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        try:
            temporary.write_text(json.dumps({"format": FORMAT, **asdict(self)}) + "\n", "utf-8")
            os.replace(temporary, path)  # noqa: PTH105
        except OSError as error:
            raise RecordUnusable(f"it cannot be written: {error.strerror}", subject=str(path)) from error
