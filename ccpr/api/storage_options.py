"""`storage_options` of `open_mirror`: a login for an object store, and where that is. The names are those that Delta's
and Polars' readers know: `aws_access_key_id` or `access_key_id`, in capitals or not."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from ccpr.mirror.buckets import Credentials
from ccpr.mirror.errors import BadOption

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
