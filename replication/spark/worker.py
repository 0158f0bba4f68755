"""What a Python worker of Spark does needlessly for every task, done away with once. Runs inside workers; nothing here
needs Spark.

Before each task a worker forgets what its importers know. Those of archives answer by reading the archive's directory
again: pyspark.zip once for each of pyspark's packages, and Spark's jar, some 27,000 entries, 0.08 s of CPU time a task
(decoding 300,000 rows takes 0.04 s). After each task it collects garbage among everything that was ever imported.
"""

import gc
import sys
import zipimport

_settled: list[bool] = []


def configure_worker() -> None:
    """To be called within a task. The importers are a cache: one that is missing is made anew when something is
    imported."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
    if not _settled:
        _settled.append(True)
        gc.collect()
        gc.freeze()  # modules stay for good
