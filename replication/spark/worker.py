"""Avoids needless work of Spark's Python workers in every task. Runs inside workers, and does not import Spark.

Before each task a worker invalidates the caches of its importers. Importers of archives then read the archive's
directory again: pyspark.zip once for each package of pyspark, and Spark's jar with some 27,000 entries. That takes
0.08 s of CPU time per task (decoding 300,000 rows takes 0.04 s). After each task a worker collects garbage among
everything that was ever imported. Source: decision workers-forget-importers.
"""

import gc
import sys
import zipimport

_configured: list[bool] = []


def configure_worker() -> None:
    """To be called within a task. `sys.path_importer_cache` is only a cache: an importer that is missing is created
    again when something is imported."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
    if not _configured:
        _configured.append(True)
        gc.collect()
        gc.freeze()  # modules are never garbage
