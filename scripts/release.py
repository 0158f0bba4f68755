#!/usr/bin/env python3
"""Begin a release: set its version everywhere, and put changes/ together as its section of CHANGELOG.md.

    scripts/release.py 0.3.0

The other steps are in CONTRIBUTING.md, "A release". Run again, it changes nothing.
"""

import datetime
import re
import sys
from pathlib import Path

KINDS = ("added", "changed", "fixed")


def section(version: str, day: str, fragments: dict[str, str]) -> str:
    """The section of a release: its fragments, name to text, under a heading for each kind."""
    parts = [f"## {version} — {day}\n"]
    for kind in KINDS:
        texts = [text.strip() for name, text in sorted(fragments.items()) if name.startswith(f"{kind}-")]
        if texts:
            parts.append(f"### {kind.capitalize()}\n\n" + "\n".join(texts) + "\n")
    return "\n".join(parts)


def release(root: Path, version: str, day: str) -> None:
    """Raises SystemExit for a version that is none, and for a fragment of no known kind."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"release: {version} is no version such as 0.3.0")
    files = {path.stem: path for path in (root / "changes").glob("*.md") if path.name != "README.md"}
    unknown = [name for name in files if not name.startswith(tuple(f"{kind}-" for kind in KINDS))]
    if unknown:
        sys.exit(f"release: changes/{unknown[0]}.md begins with none of {', '.join(KINDS)}")
    for path in (root / "pyproject.toml", *root.glob("packages/*/pyproject.toml")):
        text = re.sub(r'^version = ".*"$', f'version = "{version}"', path.read_text(), count=1, flags=re.MULTILINE)
        path.write_text(re.sub(r"(matrixone-ccpr(?:-emulator)?)==[\d.]+", rf"\g<1>=={version}", text))
    for path in (root / "deploy/Containerfile", root / "deploy/compose.yaml"):
        path.write_text(re.sub(r"ccpr:\d+\.\d+\.\d+", f"ccpr:{version}", path.read_text()))
    changelog = root / "CHANGELOG.md"
    if files:
        new = section(version, day, {name: path.read_text() for name, path in files.items()})
        before, heading, after = changelog.read_text().partition("\n## ")
        changelog.write_text(f"{before}\n{new}{heading}{after}")
    for path in files.values():
        path.unlink()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    release(Path(__file__).resolve().parent.parent, sys.argv[1], datetime.date.today().isoformat())
