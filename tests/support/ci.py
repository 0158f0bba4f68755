"""Whether the tests run in continuous integration, where none may be skipped (see tests/conftest.py)."""

import os

UNDER_CI = os.environ.get("CI", "").lower() == "true"
