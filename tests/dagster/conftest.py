from tests.support.dagster_fixtures import home, instance

__all__ = ["home", "instance"]
