from ccpr.matrixone.client import errors
from ccpr.matrixone.errors import Terminal, Transient, Unknown


def test_each_class_is_transient_terminal_or_unknown():
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.UpstreamError)
    ]
    for kind in kinds:
        if kind is not errors.UpstreamError:
            assert sum(issubclass(kind, way) for way in (Transient, Terminal, Unknown)) == 1, kind
    codes = [kind.code for kind in kinds if kind is not errors.UpstreamError]
    assert len(set(codes)) == len(codes)
