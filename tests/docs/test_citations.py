"""What code says about its sources leads somewhere: pages, their sections and headings, requirements, decisions."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.pages import DOCS, ROOT, headings, name_of, sections

_APART = {".venv", "build", "dist", "demo-run"}
_PAGE = r"docs/[\w/-]+\.md"
_SOME = r"(?:{one})(?:(?:, | and | to |; ?)(?:{one}))*"
_NUMBERS = _SOME.format(one=r"\d+(?:\.\d+)?")
_REQUIREMENTS = _SOME.format(one=r"[NOCDPB]\d{1,2}")
_SLUGS = _SOME.format(one=r"[a-z0-9]+(?:-[a-z0-9]+)+")
_OUTSIDE = re.compile(  # documents that are not in the repository, and numbers that moved
    r"spec/[\w.-]+|(?<!/)\b(?:object-format|upstream-interface|native-behaviour|decisions)\.md"
    r"|\brequirements? [NOCDPB]\d{1,2}"
    r"|\barchitecture,? \d+|\barchitecture(?:\.md)?, decisions?\b|\bdecisions? \d"
    r"|docs/(?:sql|states|emulator|errors|decisions)\.md"
)


def files() -> list[Path]:
    """The code, and what configures it."""
    found = [file for file in ROOT.rglob("*.py") if not _APART & set(file.relative_to(ROOT).parts)]
    own = Path(__file__).parent
    return sorted([*(file for file in found if own not in file.parents), ROOT / "pyproject.toml", ROOT / "Makefile"])


def text_of(file: Path) -> str:
    """The file as one line, so that a citation may be broken across two lines of a comment or docstring."""
    return re.sub(r"\s*\n\s*(?:# ?)?", " ", file.read_text("utf-8"))


@cache
def requirements() -> frozenset[str]:
    return frozenset(re.findall(r"\*\*([NOCDPB]\d{1,2})\*\*", (DOCS / "requirements.md").read_text("utf-8")))


@cache
def decisions() -> dict[str, Path]:
    """The file of each decision."""
    found: dict[str, Path] = {}
    for file in sorted((DOCS / "decisions").glob("*.md")):
        for slug in re.findall(r"^## (.*)$", file.read_text("utf-8"), re.M):
            assert slug not in found, f"two decisions are called {slug}"
            found[slug] = file
    return found


def dangling(text: str) -> Iterator[str]:
    """Citations in a text that lead nowhere."""
    for found in re.finditer(rf"({_PAGE})(?: ({_NUMBERS}))?(?:,? \"([^\"]+)\")?(?: ({_REQUIREMENTS}))?", text):
        page, numbers, heading, wanted = ROOT / found[1], *found.groups()[1:]
        if not page.is_file():
            yield found[1]
            continue
        yield from (f"{found[1]} {n}" for n in re.findall(r"\d+(?:\.\d+)?", numbers or "") if n not in sections(page))
        if heading is not None and heading not in headings(page) and f"**{heading}**" not in page.read_text("utf-8"):
            yield f'{found[1]} "{heading}"'
        if wanted is not None:
            yield from (f"{found[1]} {one}" for one in re.findall(r"\w\d+", wanted) if one not in requirements())
    for found in re.finditer(rf"\bdecisions? ({_SLUGS})", text):
        yield from (f"decision {slug}" for slug in re.split(r", | and | to |; ?", found[1]) if slug not in decisions())
    yield from (
        f"({found[1]})" for found in re.finditer(r"\(([NOCDPB]\d{1,2})\)", text) if found[1] not in requirements()
    )
    yield from (f"outside of the repository: {found[0]}" for found in _OUTSIDE.finditer(text))


def test_the_check_itself_finds_what_is_wrong() -> None:
    fine = (
        'docs/format/object-file.md 9.2, 10.1 and 11; docs/upstream.md 5.7; docs/architecture.md, "One commit"; '
        "docs/requirements.md N2, O4 and C10; decisions flush-on-demand, identity-by-id; (B4)"
    )
    assert list(dangling(fine)) == []
    wrong = [
        "docs/format/object-file.md 9.9",
        "docs/nothing.md",
        'docs/architecture.md, "Two commits"',
        "docs/requirements.md N99",
        "decision made-up-slug",
        "(B99)",
        "spec/object-format.md 3",
        "architecture 7",
        "requirement N2",
        "docs/sql.md",
    ]
    assert [text for text in wrong if not list(dangling(text))] == []


def test_every_citation_leads_somewhere() -> None:
    found = [f"{name_of(file)}: {what}" for file in files() for what in dangling(text_of(file))]
    assert found == []


def test_every_decision_has_its_parts() -> None:
    for slug, file in decisions().items():
        record = re.split(r"^## ", file.read_text("utf-8").partition(f"## {slug}\n")[2], flags=re.M)[0]
        what, *why = record.strip().split("\n\n**Why:** ")
        assert what, slug
        assert len(why) == 1, slug
