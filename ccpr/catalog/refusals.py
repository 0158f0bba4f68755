"""What the catalog does not do: a status and a type, as the specification of Iceberg's REST catalog has them."""

import json
from http import HTTPStatus
from typing import Any

from ccpr.base.http_server import Page


class Refusal(Exception):
    """Answered as the specification's ErrorModel. `kind` is the name of Iceberg's own exception."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message

    def page(self) -> Page:
        headers = {"WWW-Authenticate": "Bearer"} if self.status == HTTPStatus.UNAUTHORIZED else {}
        error = {"message": self.message, "type": self.kind, "code": self.status}
        return Page(json_bytes({"error": error}), status=self.status, headers=headers)


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequestException", message)


def forbidden(message: str) -> Refusal:
    return Refusal(403, "ForbiddenException", message)


def no_table(name: str, why: str = "does not exist") -> Refusal:
    return Refusal(404, "NoSuchTableException", f"table {name:.200} {why}")


def no_namespace(name: str) -> Refusal:
    return Refusal(404, "NoSuchNamespaceException", f"namespace {name:.200} does not exist")
