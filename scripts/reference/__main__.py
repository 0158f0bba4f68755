"""`python -m scripts.reference [FOLDER]`: write the generated pages into docs/reference/, or into another folder."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ccpr.cli.explain_command import markdown
from ccpr.config.model import schema_text
from scripts.reference import commands, configuration, configuration_file, types

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "ccpr-yaml.md": configuration_file.page,
    "ccpr.schema.json": schema_text,
    "commands.md": commands.page,
    "configuration.md": configuration.page,
    "errors.md": markdown,
    "types.md": types.page,
}


def main(folder: Path) -> None:
    for name, page in PAGES.items():
        (folder / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
