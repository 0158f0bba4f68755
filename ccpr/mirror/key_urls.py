"""URLs of mirrors that say where the key of their files is: `s3://bucket/prefix?encrypt=env:NAME`."""

from urllib.parse import parse_qsl, urlencode

IN_CLEAR = "none"  # of a second copy, in the place of where its key is: it is not encrypted, whatever the mirror is
_ENCRYPT = "encrypt"


def without_key(url: str) -> tuple[str, str]:
    """The URL without the option that says where the key is, and that."""
    place, question, query = url.partition("?")
    if "://" not in place and not query.startswith(f"{_ENCRYPT}="):
        return url, ""  # a plain path, which may have any characters
    options = parse_qsl(query, keep_blank_values=True)
    others = [(name, value) for name, value in options if name != _ENCRYPT]
    if not question or len(others) == len(options):
        return url, ""
    rest = f"?{urlencode(others, safe=':/')}" if others else ""
    return f"{place}{rest}", dict(options)[_ENCRYPT]


def with_key(place: str, encrypt: str) -> str:
    """The inverse of `without_key`."""
    if not encrypt:
        return place
    return f"{place}{'&' if '?' in place else '?'}{urlencode({_ENCRYPT: encrypt}, safe=':/')}"
