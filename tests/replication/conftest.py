from tests.support.s3_fixtures import s3_server, s3_url
from tests.support.spark_fixtures import recorded_mirror

__all__ = ["recorded_mirror", "s3_server", "s3_url"]
