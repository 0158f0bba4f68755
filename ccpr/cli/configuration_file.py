"""Writing a configuration file."""

from pathlib import Path

from ccpr.base.file_modes import opener
from ccpr.config.errors import ConfigInvalid


def write(file: Path, text: str, *, force: bool) -> None:
    """For its user alone. Raises ConfigInvalid, if it is there or cannot be written."""
    try:
        with open(file, "w" if force else "x", encoding="utf-8", opener=opener()) as opened:
            opened.write(text)
    except FileExistsError as error:
        raise ConfigInvalid("it is there already", subject=str(file), remedy="Name another, or use --force.") from error
    except OSError as error:
        raise ConfigInvalid(
            f"it cannot be written: {error.strerror}", subject=str(file), remedy="Check its folder and permissions."
        ) from error
