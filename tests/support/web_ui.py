"""Dagster's web UI in a process of its own: where it answers, and its GraphQL interface."""

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any


class WebServer:
    """A running `dagster-webserver` over our workspace file."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, text: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": text, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            value = json.load(answer)
        assert "errors" not in value, value
        return value["data"]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/server_info", timeout=5):
            return True
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:.0f} s"
        time.sleep(0.2)
