"""The examples of the pages about Python run, one after the other, and print what the pages say."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.api.shop import small_shop

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["reference/python.md", "how-to/spark.md"]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"^ *print\(.*\)  # (.*)$|^# (.*)$", re.MULTILINE)  # behind the statement, or in lines below it
_HOME = "file:///home/me/"
_OF_WORKERS = '("mirror", ".ccpr/'  # they look from where Java was started, maybe by another test


def examples(page: str) -> list[str]:
    return _BLOCK.findall((DOCS / page).read_text())


@pytest.mark.spark
@pytest.mark.usefixtures("s3_credentials")
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run_and_print_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    small_shop(tmp_path / ".ccpr" / "mirrors" / "shop")
    monkeypatch.chdir(tmp_path)
    blocks = examples(page)
    assert len(blocks) >= 5
    if any("spark_session" in block for block in blocks):
        session = request.getfixturevalue("spark")  # of the whole test run: an example must not end it
        monkeypatch.setattr(type(session), "stop", lambda _: None)
    names: dict[str, object] = {}
    for block in blocks:
        printed = io.StringIO()
        with redirect_stdout(printed):
            there = block.replace(_OF_WORKERS, f'("mirror", "{tmp_path}/.ccpr/')
            exec(compile(there, page, "exec"), names)
        shown = [behind or below for behind, below in _SHOWN.findall(block)]
        lines = [line.replace(f"{tmp_path.as_uri()}/", _HOME) for line in printed.getvalue().splitlines()]
        if shown:
            assert lines == shown, block


def test_pages_use_nothing_of_the_house_but_ccpr() -> None:
    for page in PAGES:
        for block in examples(page):
            imported = re.findall(r"^\s*(?:import|from) +([a-z_]+)", block, re.MULTILINE)
            assert set(imported) <= {"ccpr", "datetime", "duckdb", "polars", "pyarrow", "pathlib"}, block


def test_lines_of_the_pages_are_short() -> None:
    for page in PAGES:
        for line in (DOCS / page).read_text().splitlines():
            assert len(line) <= 100 or line.startswith("|"), line
