"""A mirror outside the state folder: in another folder, and in an object store."""

from pathlib import Path

import pytest

from tests.support.replica import replaying, source_uri


@pytest.mark.parametrize("where", ["folder", "s3"])
def test_a_subscription_replicates_to_the_mirror_that_it_names(
    where: str, recordings: Path, home: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("s3_url") if where == "s3" else str(home / "elsewhere")
    with replaying(recordings / "other_account", home) as replica:
        replica.subscribe("--mirror", url)
        for snapshot in (1, 2):
            assert replica.run()["point"]
            replica.assert_equal_to_source(snapshot)
        replica.assert_equal_to_source(1, at=0)
        assert replica.command("verify", "replica", "--deep")["sound"]
        assert not (home / "home" / "mirrors").exists()
        source = source_uri(replica.emulator.port)
        words = (
            "--from",
            source,
            "--publisher",
            "acc1",
            "--publication",
            "p",
            "--database",
            replica.about.database,
            "--mirror",
            url,
        )
        assert replica.command("subscribe", "second", *words, code=1)["error"]["code"] == "MIRROR_IN_USE"
