"""The URLs of buckets, `s3://bucket/prefix?…` and `gs://bucket/prefix?…`, as `pyarrow.fs` opens them.

Credentials are given as such, or come from the environment, the shared credentials file or the instance's role, never
from a URL: URLs are shown, logged and stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import pyarrow as pa
from pyarrow import fs

from ccpr.mirror.errors import BadName, BadOption
from ccpr.mirror.store import check_name

CONNECT_SECONDS, REQUEST_SECONDS = 10.0, 60.0
# What `pyarrow.fs` raises. Google's client has answers that are no OSError: too many requests, unknown.
CLIENT_ERRORS = OSError, pa.ArrowException
_OPTIONS = {"s3": ("endpoint_override", "region", "scheme"), "gs": ("endpoint_override", "scheme")}
_REMEDY = "Write s3://bucket/prefix, if needed followed by ?region=…&endpoint=http://host:port."


@dataclass(frozen=True, slots=True)
class Credentials:
    """A login at an S3 store. Its values are in no text that is made of it."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A prefix in a bucket. Opening it has not connected yet.

    Attributes
    ----------
    root : bucket and prefix, as paths of `files` begin.
    url : canonical, without secrets.
    """

    files: fs.FileSystem
    root: str
    url: str


def open_bucket(url: str, credentials: Credentials | None = None) -> Bucket:
    """`credentials` are for S3 only. Raises BadName."""
    parts = urlsplit(url)
    masked = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if any("@" in text for text in (parts.netloc, parts.query, *options.values())) or any(
        "key" in name or "token" in name for name in options
    ):
        remedy = (
            "Remove them, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, "
            "or use the instance's role."
        )
        raise BadName("credentials in a URL, which is shown and logged", subject=masked, remedy=remedy)
    if "endpoint" in options:
        options.setdefault("endpoint_override", options.pop("endpoint"))
    if unknown := set(options) - set(_OPTIONS[parts.scheme]):
        raise BadName(f"unknown options {', '.join(sorted(unknown))}", subject=masked, remedy=_REMEDY)
    prefix = unquote(parts.path).strip("/")
    if not parts.netloc or parts.fragment or ":" in parts.netloc:
        raise BadName("not the URL of a bucket", subject=masked, remedy=_REMEDY)
    root = "/".join(check_name(part) for part in (parts.netloc, prefix) if part)
    endpoint = options.get("endpoint_override")
    if endpoint and "://" in endpoint:
        options["scheme"], _, options["endpoint_override"] = endpoint.partition("://")
    if options.get("scheme", "https") not in ("http", "https"):
        raise BadName("a scheme that is neither http nor https", subject=masked, remedy=_REMEDY)
    canonical = f"{parts.scheme}://{root}" + (f"?{urlencode(sorted(options.items()), safe=':')}" if options else "")
    try:
        return Bucket(_file_system(parts.scheme, options, credentials), root, canonical)
    except (OSError, pa.ArrowInvalid) as error:
        raise BadName(f"the options cannot be used: {error}", subject=canonical, remedy=_REMEDY) from error


def open_client(url: str, service: str = "s3") -> Any:
    """Amazon's own client, for what `pyarrow.fs` does not offer; it finds credentials in the same places. `url` is
    canonical, of an S3 store. The caller has seen that `botocore` is installed."""
    from botocore.config import Config
    from botocore.session import get_session

    options = dict(parse_qsl(urlsplit(url).query))
    endpoint = options.get("endpoint_override")
    address = endpoint and f"{options.get('scheme', 'https')}://{endpoint}"
    style = {"addressing_style": "path" if endpoint else "auto"}
    config = Config(connect_timeout=CONNECT_SECONDS, read_timeout=REQUEST_SECONDS, s3=style)
    region = options.get("region")
    session = get_session()
    if region is None and endpoint and session.get_config_variable("region") is None:
        region = "us-east-1"  # a signature needs one; servers with an address of their own do not look at it
    return session.create_client(service, region_name=region, endpoint_url=address, config=config)


def _file_system(kind: str, options: dict[str, str], credentials: Credentials | None) -> fs.FileSystem:
    if kind == "gs":
        return fs.GcsFileSystem(**options, retry_time_limit=timedelta(seconds=REQUEST_SECONDS))
    login = {} if credentials is None else {name: getattr(credentials, name) for name in Credentials.__slots__}
    return fs.S3FileSystem(
        **options,
        **login,
        allow_delayed_open=True,
        background_writes=False,  # parts are sent one after another, so that no more than one is in memory
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
    )


# ---- `storage_options` of `open_mirror`
#
# A login for an object store, and where that is. The names are those that Delta's and Polars' readers know:
# `aws_access_key_id` or `access_key_id`, in capitals or not.

_KEY, _SECRET, _TOKEN = "access_key_id", "secret_access_key", "session_token"
_PLACES = {"region": "region", "endpoint_url": "endpoint_override", "endpoint": "endpoint_override"}
_KNOWN = (_KEY, _SECRET, _TOKEN, *_PLACES)
_SUBJECT = "storage_options"


def with_options(url: str, options: Mapping[str, str]) -> tuple[str, Credentials | None]:
    """The URL with the region and the endpoint that are among the options, and the login if there is one.

    Raises BadOption, which names options and no values.
    """
    if not url.startswith("s3://"):
        raise BadOption(
            "storage options are for object stores", subject=_SUBJECT, remedy="Omit them, or give s3://bucket/…"
        )
    given = _checked(options)
    login = {name: given.pop(name) for name in (_KEY, _SECRET, _TOKEN) if name in given}
    if login and not {_KEY, _SECRET} <= login.keys():
        raise BadOption(f"of {_KEY} and {_SECRET} one is missing", subject=_SUBJECT, remedy="Give both, or neither.")
    credentials = Credentials(login[_KEY], login[_SECRET], login.get(_TOKEN)) if login else None
    return _placed(url, {_PLACES[name]: value for name, value in given.items()}), credentials


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    """By their short names."""
    if not isinstance(options, Mapping):
        raise BadOption(
            "it is not a dict", subject=_SUBJECT, remedy='Write {"access_key_id": …, "secret_access_key": …}.'
        )
    checked: dict[str, Any] = {}
    for name, value in options.items():
        short = str(name).lower().removeprefix("aws_")
        if short not in _KNOWN:
            remedy = f"There are {', '.join(_KNOWN)}; each also with aws_ before it."
            raise BadOption(f"there is no option {name!r:.60}", subject=_SUBJECT, remedy=remedy)
        if not isinstance(value, str) or not value:
            raise BadOption(f"{name} is not a text", subject=_SUBJECT, remedy="Give texts; omit unknown options.")
        if checked.setdefault(short, value) != value:
            raise BadOption(f"{short} is given twice", subject=_SUBJECT, remedy="Give it once.")
    return checked


def _placed(url: str, places: Mapping[str, str]) -> str:
    address, _, query = url.partition("?")
    known = {_PLACES.get(name, name): value for name, value in parse_qsl(query, keep_blank_values=True)}
    for name, value in places.items():
        if known.setdefault(name, value) != value:
            text = f"the URL has another {name.removesuffix('_override')}"
            raise BadOption(text, subject=_SUBJECT, remedy="Give it once.")
    return f"{address}?{urlencode(known)}" if known else url
