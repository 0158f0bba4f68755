"""A bucket on the loopback address that can be read, and refuses to be where a test says so. It counts its requests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class Bucket:
    """
    Attributes
    ----------
    files : content by key.
    may_read : the right GetObject.
    may_list : the right ListBucket: a missing key is 404, else 403.
    exists : whether there is a bucket at all.
    ranges : of the requests for content: key, first byte, last byte.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    may_read: bool = True
    may_list: bool = True
    exists: bool = True
    ranges: list[tuple[str, int, int]] = field(default_factory=list)
    port: int = 0
    name: str = "storage"

    def url(self, prefix: str = "server/data") -> str:
        return f"s3://{self.name}/{prefix}?endpoint=http://127.0.0.1:{self.port}&region=us-east-1"

    def status_of(self, key: str) -> int:
        if not key:
            return 404 if not self.exists else 200 if self.may_list else 403
        if not self.exists or key not in self.files:
            return 404 if self.may_list or not self.exists else 403
        return 200 if self.may_read else 403


@contextmanager
def served(bucket: Bucket) -> Iterator[Bucket]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(with_content=False)

        def do_GET(self) -> None:
            self.answer(with_content=True)

        def answer(self, *, with_content: bool) -> None:
            key = unquote(urlsplit(self.path).path).removeprefix(f"/{bucket.name}").removeprefix("/")
            status = bucket.status_of(key)
            content = bucket.files.get(key, b"") if status == 200 else b""
            if with_content and status == 200 and (asked := self.headers.get("Range")):
                first, last = (int(number) for number in asked.removeprefix("bytes=").split("-"))
                bucket.ranges.append((key, first, last))
                status, content = 206 if first < len(content) else 416, content[first : last + 1]
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_content:
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    bucket.port = server.server_port
    try:
        yield bucket
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
