"""A REST catalog that is not ours: Apache Iceberg's own servlet over its JdbcCatalog, in a JVM of its own. Maven brings
the jars once."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.support.lake_engines import maven_folder

_WANTED = (
    "org.apache.iceberg:iceberg-core:1.11.0",
    "org.apache.iceberg:iceberg-core:1.11.0:tests",  # has the servlet
    "org.eclipse.jetty:jetty-servlet:11.0.26",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)


@contextmanager
def foreign_catalog(java: Path, folder: Path) -> Iterator[str]:
    """Its URL. What it knows is in a file of the folder."""
    spark = Path(pyspark.__file__).parent / "jars"
    jars = [*maven_folder("foreign-catalog", *_WANTED).glob("*.jar"), *spark.glob("hadoop-client-*.jar")]
    jars += [one for name in ("commons-logging", "log4j") for one in spark.glob(f"{name}*.jar")]
    (py4j_jar,) = spark.glob("py4j-*.jar")
    launched: Any = launch_gateway(
        jarpath=str(py4j_jar),
        classpath=os.pathsep.join(map(str, jars)),
        java_path=str(java),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    port, token, process = launched
    gateway: Any = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    jvm = gateway.jvm
    try:
        backend = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
        backend.setConf(jvm.org.apache.hadoop.conf.Configuration())
        about = {"uri": f"jdbc:sqlite:{folder / 'catalog.db'}", "warehouse": folder.as_uri()}
        backend.initialize("foreign", {**about, "jdbc.schema-version": "V1"})
        iceberg, jetty = jvm.org.apache.iceberg.rest, jvm.org.eclipse.jetty
        handler = jetty.servlet.ServletContextHandler()
        servlet = iceberg.RESTCatalogServlet(iceberg.RESTCatalogAdapter(backend))
        handler.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
        server = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(handler)
        server.start()
        yield f"http://127.0.0.1:{server.getURI().getPort()}"
    finally:
        gateway.shutdown()
        process.kill()
        process.wait()
