"""What the docs tell readers to type does what they say."""

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, blocks, name_of, pages
from tests.support.ports import free_port

pytestmark = pytest.mark.integration

_PORT = "6001"
_WAIT = "for _ in $(seq 1200); do (echo > /dev/tcp/127.0.0.1/6001) 2> /dev/null && break; sleep 0.1; done\n"


def test_the_tutorial_can_be_typed(tmp_path: Path) -> None:
    install, *steps = blocks(DOCS / "tutorial.md", "bash")
    assert "make install" in install
    port = str(free_port())
    script = "set -e\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"
    for step in steps:
        script += step + (_WAIT if step.rstrip().endswith("&") else "")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment.pop("CCPR_HOME", None)
    command = ["bash", "-c", script.replace(_PORT, port)]
    typed = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert typed.returncode == 0, typed.stdout + typed.stderr
    said = [line for block in blocks(DOCS / "tutorial.md", "text") for line in block.strip().split("\n")]
    assert len(said) > 3
    for line in said:
        assert line.removesuffix("…").strip().replace(_PORT, port) in typed.stdout, line
    assert re.search(r"^17 checks, 0 failed", typed.stdout, re.M)
    assert re.search(r"^50000\n\d+$", typed.stdout, re.M)
    assert not (tmp_path / "tutorial-run").exists()


@pytest.mark.parametrize("page", [page for page in pages() if blocks(page, "python")], ids=name_of)
def test_python_in_the_docs_can_be_read_and_imports_what_exists(page: Path) -> None:
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
            elif isinstance(node, ast.Import):
                assert [alias.name for alias in node.names if importlib.util.find_spec(alias.name) is None] == []
