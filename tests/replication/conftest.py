from tests.replication.s3_fixtures import s3_server, s3_url
from tests.replication.spark_fixtures import recorded_mirror

__all__ = ["recorded_mirror", "s3_server", "s3_url"]
