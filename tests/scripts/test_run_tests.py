import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_folders_of_the_first_process_exist() -> None:
    """The second one takes all others, so a folder that is renamed is not left out, but could be run by both."""
    text = (ROOT / "scripts" / "run-tests").read_text()
    (folders,) = re.findall(r"^first=\((.*)\)$", text, re.M)
    assert [folder for folder in folders.split() if not (ROOT / folder).is_dir()] == []
