"""What a Dagster project is made of to replicate: resources, sensors, checks, and what is shown of subscriptions.

It needs the extra `dagster`, which is without pyspark. A run that copies by a Spark session of its own needs
`dagster-spark`.
"""

from ccpr.base.extras import require

require("dagster", "dagster", "pandera", "polars")
