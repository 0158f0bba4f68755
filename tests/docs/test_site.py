"""The documentation is whole: it builds without a broken link, and needs nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.pages import DOCS, FENCED, ROOT, anchors, name_of, pages

pytestmark = pytest.mark.integration

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)", re.I)
_IMPORTED = re.compile(r"(?:@import\s+|url\()[\"']?((?:https?:)?//[^\"')\s]+)", re.I)
LONGEST_LINE = 100


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_builds_without_a_broken_link_or_anchor(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file()


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    fetched = [
        f"{page.relative_to(site)}: {address}"
        for page in site.rglob("*.html")
        for address in _FETCHED.findall(page.read_text("utf-8"))
    ]
    imported = [address for sheet in site.rglob("*.css") for address in _IMPORTED.findall(sheet.read_text("utf-8"))]
    assert fetched + imported == []
    drawn = [page for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text("utf-8")]
    assert drawn == []  # the theme would fetch the program that draws


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=name_of)
def test_links_of_pages_beside_the_site_lead_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_prose_is_at_most_100_columns_wide(page: Path) -> None:
    text = page.read_text("utf-8")
    if "do not edit" in text[:400]:
        return  # generated: its sentences come from the code
    prose = FENCED.sub("", text)
    # a table has one line a row; a link or a name has no place to break
    lines = [line for line in prose.split("\n") if not line.startswith("|") and re.search(r"\S\s+\S", line.strip())]
    assert [line for line in lines if len(line) > LONGEST_LINE and not re.search(r"\S{60}", line)] == []
