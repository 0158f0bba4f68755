"""The pages that come from the code are what the code says, and pages about files and tables leave nothing out."""

import importlib
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ccpr.cli.explain_command import PACKAGE, catalogue
from ccpr.cli.main import Commands
from ccpr.config.sql.subscription_statements import LAKE_SETTINGS
from ccpr.mirror.layout import LEDGER_SCHEMA, MANIFEST_SCHEMA
from ccpr.service.status import SubscriptionStatus
from ccpr.state.settings import SETTINGS, TARGET_SETTINGS, Settings
from ccpr.state.tables import METADATA, checkpoints
from ccpr.targets.registry import TARGET_METADATA
from scripts.reference.__main__ import FOLDER, PAGES, main
from scripts.reference.configuration import fixed_limits, variables
from tests.docs.pages import DOCS, FENCED, ROOT, name_of, pages

pytestmark = pytest.mark.integration

_FORMAT = (DOCS / "format" / "mirror.md").read_text("utf-8")
_CODE = re.compile(r"`([^`\n]+)`")
_MIRRORS = ROOT / "tests" / "fixtures" / "state_0_2_0" / "home" / "mirrors"
_OTHER_WORDS = {  # of other programs, and of make and the tests
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "CCPR_RECORDINGS",
    "CLOCK_BOOTTIME",
    "DATA_SOURCE_NOT_FOUND",
    "GET_LOCK",
    "MO_ICEBERG_TOKEN_CCPR",
    "RLIMIT_FSIZE",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == PAGES[name](), "run `make reference`"


@pytest.mark.parametrize("name", PAGES)
def test_what_people_read_has_no_numbers_of_requirements(name: str) -> None:
    assert not re.findall(r"\([A-Z]\d+\)|docs/requirements", PAGES[name]())


def test_the_pages_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    main(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(PAGES)


def test_every_environment_variable_of_the_program_is_described() -> None:
    text = "".join(file.read_text("utf-8") for name in (PACKAGE, "packages") for file in (ROOT / name).rglob("*.py"))
    named = re.findall(r'^[A-Z_]*VARIABLE(?:: \w+)? = "([A-Z_]+)"', text, re.M)
    named += re.findall(r'environ(?:\.get\(|\[)"([A-Z_]+)"', text)
    set_for_spark = {"PYSPARK_PYTHON", "SPARK_LOCAL_IP"}
    assert len(named) > 4
    assert set(named) - set_for_spark <= set(variables())


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its words; former spellings are none."""

    def below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "commands"):
            yield words, command
        else:
            for name, part in command.commands.items():
                yield from below(f"{words} {name}", part)

    for name, deferred in Commands.deferred.items():
        yield from below(name, deferred.load(name))


def test_every_command_and_option_has_its_place() -> None:
    page = (FOLDER / "commands.md").read_text("utf-8")
    sections = dict(re.findall(r"^### ccpr ([^\n]+)\n(.*?)(?=^#|\Z)", page, re.M | re.S))
    for words, command in commands():
        options = {one.opts[0] for one in command.params if one.param_type_name == "option" and not one.hidden}
        assert {name for name in options - {"--json", "--help"} if f"`{name}" not in sections[words]} == set(), words


def test_an_option_that_is_called_like_a_setting_and_is_none_is_described() -> None:
    page = (FOLDER / "commands.md").read_text("utf-8")
    section = page.partition("\n### ccpr login alter\n")[2].partition("\n### ")[0]
    assert "`--tables=PATTERN …`" in section  # of a login's tables, not of the subscription's
    assert "[Settings]" not in section


def test_every_setting_error_and_limit_has_its_place() -> None:
    page = {name: (FOLDER / name).read_text("utf-8") for name in PAGES}
    names = {*SETTINGS, *TARGET_SETTINGS}
    assert {name for name in names if f"\n* `{name}`: " not in page["configuration.md"]} == set()
    assert {name for name in LAKE_SETTINGS if f"\n* `{name.lower()}`: " not in page["ccpr-yaml.md"]} == set()
    assert {code for code in catalogue() if f"\n### {code}\n" not in page["errors.md"]} == set()
    limits = page["configuration.md"].partition("\n## Limits\n")[2].partition("\n## ")[0]
    assert {f"| {what} | {most} |" for what, most in fixed_limits().items()} <= set(limits.split("\n"))
    assert "](reference/configuration.md#limits)" in (DOCS / "index.md").read_text("utf-8")


def test_every_file_of_a_mirror_is_described_with_its_fields() -> None:
    described = set(_CODE.findall(_FORMAT))
    assert {*MANIFEST_SCHEMA.names, *LEDGER_SCHEMA.names} <= described
    written = [json.loads(file.read_text("utf-8")) for file in _MIRRORS.glob("*/points/*.json")]
    assert written
    for value in (*written, *(json.loads(file.read_text("utf-8")) for file in _MIRRORS.glob("*/head.json"))):
        assert set(value) <= described
    tables = [table for point in written for table in point["tables"].values() if table is not None]
    assert {key for table in tables for key in table} <= described


def test_every_table_is_described_and_in_a_target_every_column() -> None:
    described = set(_CODE.findall(_FORMAT))
    assert set(METADATA.tables) | set(TARGET_METADATA.tables) <= described
    for table in (checkpoints, *TARGET_METADATA.tables.values()):
        assert {column.name for column in table.columns} <= described, table.name


def test_what_monitoring_is_told_to_read_is_in_the_document_of_status() -> None:
    page = (DOCS / "how-to" / "monitor.md").read_text("utf-8")
    named = re.findall(r"^\* `(?!ccpr_)(\w+)`: ", page, re.M)  # not the metrics
    assert len(named) > 4
    assert set(named) <= {field.name for field in fields(SubscriptionStatus)} | {"ok"}


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    text = (DOCS / "dependencies.md").read_text("utf-8").lower()
    page = re.split(r"[^\w-]+", text)
    names = {re.split(r"[\[<>=]", name)[0].lower() for name in wanted} - {project["name"]}
    assert names - set(page) == set()
    extras = project["optional-dependencies"].keys() - {"dev", "docs"}
    assert [extra for extra in extras if f"`[{extra}]`" not in text] == [], "each extra says what it is for"


def test_every_error_code_that_a_page_names_exists() -> None:
    settings = {name.upper() for name in (*(field.name for field in fields(Settings)), *LAKE_SETTINGS)}
    known = {*catalogue(), *variables(), *settings, *_OTHER_WORDS}
    named = {
        (name_of(page), name)
        for page in pages()
        for name in _CODE.findall(FENCED.sub("", page.read_text("utf-8")))
        if re.fullmatch(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+", name)
    }
    assert len(named) > 20
    assert {(page, name) for page, name in named if name not in known} == set()


def test_modules_classes_and_files_that_are_named_exist() -> None:
    named = {
        (name_of(page), name)
        for page in pages()
        if page.name != "CHANGELOG.md"
        for name in _CODE.findall(FENCED.sub("", page.read_text("utf-8")))
    }
    dotted = {(page, name) for page, name in named if re.fullmatch(rf"{PACKAGE}(?:_emulator)?(?:\.\w+)+", name)}
    dotted = {(page, name) for page, name in dotted if not name.endswith((".yaml", ".json"))}
    files = {(page, name) for page, name in named if re.fullmatch(r"(?:\w+/)+\w+\.(?:py|md|yaml|txt)", name)}
    assert len(dotted) > 50
    assert len(files) > 50
    assert {(page, name) for page, name in dotted if not _exists(name)} == set()
    assert {(page, name) for page, name in files if not (ROOT / name).exists()} == set()


def _exists(name: str) -> bool:
    """Whether a dotted name is a module, something in a module, or a member of a class."""
    module, _, member = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        members = []
        while module:
            members.insert(0, member)
            try:
                found: Any = importlib.import_module(module)
            except ModuleNotFoundError:
                module, _, member = module.rpartition(".")
                continue
            for part in members:
                if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                    return False
                found = getattr(found, part, None)
            return True
        return False
    return True
