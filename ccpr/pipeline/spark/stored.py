"""Where Spark runs, as `ccpr config apply` keeps it in the state folder. The environment (CCPR_SPARK_*) wins."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ccpr.base.file_modes import make_folder, replace_file
from ccpr.state.errors import StateUnreadable

_PLACE = Path("spark", "settings.json")  # in the state folder


@dataclass(frozen=True, slots=True)
class StoredSpark:
    """Empty for what is not set. `remote` and `config` may have secrets."""

    master: str = ""
    remote: str = field(default="", repr=False)
    config: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, home: Path) -> "StoredSpark":
        """Raises StateUnreadable."""
        path = home / _PLACE
        try:
            read = json.loads(path.read_text("utf-8"))
            found = cls(**read)
            texts = [found.master, found.remote, *found.config, *found.config.values()]
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise _unreadable(path) from error
        if not all(isinstance(text, str) for text in texts):
            raise _unreadable(path)
        return found

    def keep(self, home: Path) -> None:
        """Raises StateUnreadable."""
        path = home / _PLACE
        try:
            make_folder(path.parent)
            replace_file(path, json.dumps(asdict(self)))
        except OSError as error:
            raise StateUnreadable(f"it cannot be written: {error.strerror}", subject=str(path)) from error


def _unreadable(path: Path) -> StateUnreadable:
    return StateUnreadable(
        "the settings of Spark cannot be read",
        subject=str(path),
        remedy="Delete the file, and `ccpr config apply` again.",
    )
