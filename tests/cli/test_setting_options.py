"""Options that come from the entries of settings."""

from pathlib import Path
from typing import Any

import pytest

from ccpr.cli.main import Commands
from ccpr.state.errors import BadSetting
from ccpr.state.setting_entry import Setting
from ccpr.state.settings import TARGET_SETTINGS
from tests.support.setting_values import allowed, as_options, refused


def given_to(command: str, one: Setting, said: Any, *words: str) -> Any:
    """What `ccpr target COMMAND` is given for the setting."""
    found = Commands.deferred["target"].load("target").commands[command]
    context = found.make_context(command, ["s", "db", *words, *as_options(one, said)])
    return context.params[one.name]


@pytest.mark.parametrize("one", TARGET_SETTINGS.values(), ids=TARGET_SETTINGS)
@pytest.mark.parametrize(("command", "words"), [("add", ("--to", "mysql://a:b@h/d")), ("alter", ())])
def test_a_setting_of_a_target_has_an_option(command: str, words: tuple[str, ...], one: Setting) -> None:
    for said, meant in allowed(one.kind, Path()):
        assert one.parse(given_to(command, one, said, *words)) == meant
    for said in refused(one.kind):
        with pytest.raises(BadSetting):
            one.parse(given_to(command, one, said, *words))
