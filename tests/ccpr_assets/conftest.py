from tests.support.dagster_fixtures import home, instance, sync

__all__ = ["home", "instance", "sync"]
