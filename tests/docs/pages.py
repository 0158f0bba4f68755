"""The Markdown files of the repository, and what can be pointed at in them."""

import re
from functools import cache
from pathlib import Path

from markdown.extensions.toc import slugify

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)


def pages() -> list[Path]:
    """All prose: the site, and what is next to it in the repository."""
    return [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def blocks(file: Path, language: str) -> list[str]:
    """The code blocks in a language, in order."""
    return [text for name, text in FENCED.findall(file.read_text("utf-8")) if name == language]


@cache
def headings(file: Path) -> tuple[str, ...]:
    """The texts of the headings, without marks of code."""
    text = FENCED.sub("", file.read_text("utf-8"))
    return tuple(heading.strip().replace("`", "") for heading in re.findall(r"^#+ (.*)$", text, re.M))


@cache
def anchors(file: Path) -> frozenset[str]:
    """What a link into the page can name."""
    found: list[str] = []
    for heading in headings(file):
        slug = slugify(heading, "-")
        found.append(f"{slug}_{found.count(slug)}" if slug in found else slug)
    return frozenset(found)


@cache
def sections(file: Path) -> frozenset[str]:
    """The numbers of numbered headings, e.g. 9 and 9.2."""
    return frozenset(found[1] for heading in headings(file) if (found := re.match(r"(\d+(?:\.\d+)?)\.? ", heading)))
