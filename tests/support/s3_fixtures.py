"""An S3 server on the loopback address, in this process, and credentials, which it does not check."""

import logging
import os
from collections.abc import Iterator

import pytest

_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "a secret of the test",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


@pytest.fixture(scope="session")
def s3_credentials() -> Iterator[None]:
    """Credentials in the environment. Request this before a JVM starts, so that Spark's workers inherit them."""
    before = {name: os.environ.get(name) for name in (*_ENVIRONMENT, "AWS_SESSION_TOKEN")}
    os.environ.pop("AWS_SESSION_TOKEN", None)
    os.environ.update(_ENVIRONMENT)
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def s3_server(s3_credentials: None) -> Iterator[str]:
    """`host:port` of a server with the bucket `mirrors`."""
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"{host}:{port}"
    fs.S3FileSystem(
        endpoint_override=endpoint, scheme="http", region="us-east-1", allow_bucket_creation=True
    ).create_dir("mirrors")
    yield endpoint
    server.stop()


@pytest.fixture
def s3_url(s3_server: str, request: pytest.FixtureRequest) -> str:
    """The URL of an empty prefix for this test."""
    prefix = "".join(letter if letter.isalnum() else "-" for letter in request.node.nodeid)[-80:].strip("-")
    return f"s3://mirrors/{prefix}?endpoint_override=http://{s3_server}&region=us-east-1"
