"""A release puts the fragments of changes/ together as its section of the changelog, and sets its version."""

import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a release changes."""
    for name in ("pyproject.toml", "CHANGELOG.md", "deploy/Containerfile", "deploy/compose.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "changes").mkdir()
    return tmp_path


def release(checkout: Path, version: str) -> None:
    runpy.run_path(str(ROOT / "scripts/release.py"))["release"](checkout, version, "2026-12-24")


def test_fragments_become_a_section_and_the_version_is_set_everywhere(checkout: Path) -> None:
    before = (checkout / "CHANGELOG.md").read_text()
    (checkout / "changes/fixed-clock.md").write_text("- A clock that jumps.\n")
    (checkout / "changes/added-b.md").write_text("- B.\n")
    (checkout / "changes/added-a.md").write_text("- A, which\n  has two lines.\n")
    release(checkout, "9.8.7")
    after = (checkout / "CHANGELOG.md").read_text()
    head, _, section = after.partition("\n## 9.8.7 — 2026-12-24\n")
    section, _, rest = section.partition("\n## ")
    assert section == "\n### Added\n\n- A, which\n  has two lines.\n- B.\n\n### Fixed\n\n- A clock that jumps.\n"
    assert f"{head}\n## {rest}" == before
    assert 'version = "9.8.7"\n' in (checkout / "pyproject.toml").read_text()
    assert "ccpr:9.8.7" in (checkout / "deploy/compose.yaml").read_text()
    assert list((checkout / "changes").iterdir()) == []
    release(checkout, "9.8.7")
    assert (checkout / "CHANGELOG.md").read_text() == after


@pytest.mark.parametrize(("version", "fragment"), [("9.8", "added-a"), ("9.8.7", "new-a")])
def test_a_version_that_is_none_and_an_unknown_kind_change_nothing(checkout: Path, version: str, fragment: str) -> None:
    (checkout / f"changes/{fragment}.md").write_text("- A.\n")
    before = (checkout / "CHANGELOG.md").read_text()
    with pytest.raises(SystemExit, match="release: "):
        release(checkout, version)
    assert (checkout / "CHANGELOG.md").read_text() == before


def test_each_fragment_that_waits_is_a_list_of_a_known_kind() -> None:
    for path in (ROOT / "changes").glob("*.md"):
        if path.name != "README.md":
            assert path.stem.startswith(("added-", "changed-", "fixed-"))
            assert path.read_text().startswith("- ")
