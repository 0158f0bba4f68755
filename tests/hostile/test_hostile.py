"""Hostile bytes give rows or a typed error. Fixed seeds and old failures; `make fuzz N=…` is the long run, with new
seeds."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.corpus import FOLDER, sentences
from tests.hostile.engine import chance_of, outcome
from tests.hostile.mutate import mutated, mutated_json, packed, unpacked
from tests.hostile.objects_apart import apart
from tests.hostile.seeds import objects, objects_apart
from tests.hostile.targets import SHARES, make_target

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured through /proc"),
]
_ROOT = Path(__file__).parents[2]
_CASES, _SECONDS_A_TARGET = 4000, 1.5


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=_ROOT, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.fixture(scope="module")
def replayed() -> dict[str, str]:
    done = _run("tests.hostile.corpus")
    outcomes = dict(line.split("\t") for line in done.stdout.splitlines())
    return (
        outcomes if done.returncode == 0 else outcomes | {"": f"exit status {done.returncode}: {done.stderr[-2000:]}"}
    )


@pytest.mark.parametrize(("entry", "sentence"), sentences().items(), ids=list(sentences()))
def test_an_input_that_once_failed_gives_rows_or_a_typed_error(
    entry: str, sentence: str, replayed: dict[str, str]
) -> None:
    assert entry in replayed, f"{sentence} {replayed.get('')}"
    assert replayed[entry] == "rows" or replayed[entry].isupper()


def test_the_corpus_is_small_and_every_file_has_a_sentence() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert {path.relative_to(FOLDER).as_posix() for path in files} == {*sentences(), "sentences.json"}
    assert sum(path.stat().st_size for path in files) <= 300_000


@pytest.mark.parametrize("seed", [1, 2])
def test_hostile_input_gives_rows_or_typed_errors_in_bounded_time_and_memory(seed: int) -> None:
    done = _run("tests.hostile.fuzz", "--cases", str(_CASES), "--seed", str(seed), "--seconds", str(_SECONDS_A_TARGET))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_most_seeds_are_read_and_the_others_fail_only_for_the_rows_cut_away() -> None:
    target = make_target("objects")
    outcomes = [outcome(target, data) for data in objects()]
    assert outcomes.count("rows") > len(outcomes) / 2


def test_an_object_taken_apart_and_put_together_again_is_the_same() -> None:
    for data, parts in zip(objects(), objects_apart(), strict=True):
        again = apart(parts.together())
        assert (again.blocks, again.entries) == (parts.blocks, parts.entries), len(data)


@pytest.mark.parametrize("name", SHARES)
def test_the_same_seed_gives_the_same_case(name: str) -> None:
    target = make_target(name)
    assert [target.make(chance_of(name, 7, case)) for case in range(20)] == [
        target.make(chance_of(name, 7, case)) for case in range(20)
    ]
    target.close()


def test_damage_does_not_change_the_original() -> None:
    chance = random.Random(1)
    data, value = bytes(range(200)), {"a": [1, {"b": None}], "c": "d"}
    for _ in range(200):
        mutated(data, chance, [data])
        mutated_json(value, chance)
    assert value == {"a": [1, {"b": None}], "c": "d"}
    assert unpacked(packed([b"", data, b"x"])) == [b"", data, b"x"]
