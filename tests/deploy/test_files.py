"""The container file and the compose file, by their form: what they name exists. No container engine is asked."""

import importlib
import importlib.util
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccpr.cli.main import Commands
from scripts.reference.configuration import variables
from tests.docs.pages import ROOT

FOLDER = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
INSTRUCTIONS = {
    "FROM",
    "ARG",
    "COPY",
    "RUN",
    "USER",
    "WORKDIR",
    "ENV",
    "VOLUME",
    "EXPOSE",
    "STOPSIGNAL",
    "HEALTHCHECK",
    "CMD",
}
SERVICE_KEYS = {
    "image",
    "build",
    "restart",
    "environment",
    "env_file",
    "volumes",
    "depends_on",
    "healthcheck",
    "command",
    "stop_grace_period",
    "ports",
}
PROGRAMS = {  # the commands of Dagster that are used, as its own objects
    "dagster-webserver": ("dagster_webserver.cli", "dagster_webserver"),
    "dagster-daemon run": ("dagster._daemon.cli", "run_command"),
}
_IMAGE = re.compile(r"[a-z0-9_-]+(?:/[a-z0-9_-]+)?:[0-9][\w.-]*")  # a host would have a dot or a port
_OF_MARIADB = {"MARIADB_DATABASE", "MARIADB_USER", "MARIADB_PASSWORD", "MARIADB_ROOT_PASSWORD"}


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (FOLDER / "Containerfile").read_text("utf-8"))
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def copied() -> list[str]:
    words = [shlex.split(rest) for name, rest in instructions() if name == "COPY"]
    return [word for line in words for word in line[:-1] if not word.startswith("--")]


def test_the_container_file_has_known_instructions_and_existing_files() -> None:
    found = instructions()
    assert {name for name, _ in found} <= INSTRUCTIONS
    assert found[0][0] == "FROM"
    assert [name for name, _ in found].count("CMD") == 1
    assert copied()
    assert [name for name in copied() if not (ROOT / name).exists()] == []
    ignored = [line for line in (ROOT / ".dockerignore").read_text().split("\n") if line]
    assert set(ignored) & set(copied()) == set()


def test_the_image_has_all_that_is_built_and_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    needed = {*wheel, project["project"]["readme"], *project["project"]["license-files"], "constraints.txt"}
    assert needed <= {*copied(), "pyproject.toml"}
    (extras,) = (rest.removeprefix("EXTRAS=") for name, rest in instructions() if name == "ARG")
    assert {"dagster", *extras.split(",")} <= project["project"]["optional-dependencies"].keys()
    assert any(name == "RUN" and '"/src[$EXTRAS]"' in rest for name, rest in instructions())
    python = next(rest for name, rest in instructions() if name == "FROM").partition(":")[2].partition("-")[0]
    assert python in ("3.11", "3.12", "3.13")


def test_images_have_a_name_and_a_version_and_no_host() -> None:
    named = [rest for name, rest in instructions() if name == "FROM"] + [one["image"] for one in SERVICES.values()]
    assert len(named) == 5
    assert [image for image in named if not _IMAGE.fullmatch(image)] == []
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert {one["image"] for one in SERVICES.values() if "build" in one} == {f"ccpr:{version}"}


def commands() -> list[list[str]]:
    of_services = [one["command"] for one in SERVICES.values() if "command" in one]
    return [*of_services, *(json.loads(rest) for name, rest in instructions() if name == "CMD")]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_exists_with_its_options(words: list[str]) -> None:
    if words[0] == "ccpr":
        name, command = words[1], Commands.deferred[words[1]].load(words[1])
        rest = words[2:]
    else:
        name = next(one for one in PROGRAMS if " ".join(words).startswith(one))
        module, attribute = PROGRAMS[name]
        command = getattr(importlib.import_module(module), attribute)
        rest = [word.replace("/dagster/", f"{FOLDER}/") for word in words[len(name.split()) :]]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = [word for word in rest if word.startswith("-")]
    assert [option for option in given if option not in options] == []
    command.make_context(name, list(rest), resilient_parsing=False).close()


def test_services_name_only_what_there_is() -> None:
    assert set(COMPOSE) == {"name", "x-ccpr", "services", "volumes"}
    assert set(SERVICES) == {"db", "ccpr", "ui", "daemon"}
    for name, service in SERVICES.items():
        assert set(service) <= SERVICE_KEYS, name
        assert set(service.get("depends_on", {})) <= set(SERVICES)
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert (FOLDER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], volume
        if "build" in service:
            assert (FOLDER / service["build"]["context"]).resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name


def test_ports_and_folders_are_those_of_the_image() -> None:
    exposed = {rest for name, rest in instructions() if name == "EXPOSE"}
    assert {port.rpartition(":")[2] for port in SERVICES["ccpr"]["ports"]} == exposed
    made = " ".join(rest for name, rest in instructions() if name in ("RUN", "VOLUME"))
    for service in ("ccpr", "ui", "daemon"):
        assert all(volume.partition(":")[2] in made for volume in SERVICES[service]["volumes"])
    home = SERVICES["ccpr"]["environment"]["DAGSTER_HOME"]
    assert any(rest.endswith(f"deploy/workspace.yaml {home}/") for name, rest in instructions() if name == "COPY")
    assert f"{home}/workspace.yaml" in SERVICES["ui"]["command"]


def test_variables_are_those_that_the_programs_read() -> None:
    of_storage = set(re.findall(r"env: (\w+)", (FOLDER / "dagster.yaml").read_text()))
    assert len(of_storage) == 5
    for name in ("ccpr", "ui", "daemon"):
        assert of_storage <= set(SERVICES[name]["environment"]) <= of_storage | set(variables())
    assert set(SERVICES["db"]["environment"]) == _OF_MARIADB
    asked = set(re.findall(r"\$\{(\w+)", (FOLDER / "compose.yaml").read_text()))
    assert asked == set(re.findall(r"^(\w+)=$", (FOLDER / "example.env").read_text(), re.M))
    assert ":?" in SERVICES["ccpr"]["environment"]["CCPR_CATALOG"]


def test_dagster_is_configured_as_elsewhere_but_for_its_storage() -> None:
    usual, here = (yaml.safe_load(path.read_text()) for path in (ROOT / "dagster.yaml", FOLDER / "dagster.yaml"))
    storage = here.pop("storage")
    assert here == usual
    database = storage["mysql"]["mysql_db"]
    environment = SERVICES["daemon"]["environment"]
    assert environment[database["hostname"]["env"]] in SERVICES
    name = environment[database["db_name"]["env"]]
    assert f"CREATE DATABASE {name} " in (FOLDER / "mariadb" / "dagster.sql").read_text()
    location = yaml.safe_load((FOLDER / "workspace.yaml").read_text())["load_from"][0]["python_module"]
    assert importlib.util.find_spec(location["module_name"]) is not None
    assert location["location_name"] == "ccpr"


def test_no_secret_is_in_a_file() -> None:
    for file in FOLDER.rglob("*"):
        if file.is_file():
            assert not re.search(r"password\w*[=:][ \"']*\w", _without_references(file), re.I), file
    assert {".env", "secrets.env"} <= set((ROOT / ".gitignore").read_text().split())


def _without_references(file: Path) -> str:
    return re.sub(r"\$\{[^}]*\}|\{env: \w+\}", "", file.read_text("utf-8"))
