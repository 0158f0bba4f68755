"""The sensor as Dagster's daemon drives it, on a clock that can be moved forward; and the runs that it requests, one
after another in this process.

Unlike the daemon, it has no queue and no process for each run. With `copying_here` this process copies instead of
Spark.
"""

import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
from dagster._core.definitions.sensor_definition import SensorExecutionData

from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.dagster.replication import Replication
from ccpr.dagster.spark_resource import SparkResource
from ccpr.service.workspace import Workspace
from ccpr_assets.definitions import defs
from ccpr_assets.jobs import STEPS
from sensors.ccpr_log import ccpr_log_sensor

SETTINGS = Path(__file__).resolve().parents[2] / "dagster.yaml"


class Clock:
    """The real time plus the time that was skipped."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def __call__(self) -> float:
        return time.time() + self._skipped

    def go_on_to(self, seconds: float) -> None:
        """Skip the time until `seconds`. Does nothing if it is later already."""
        self._skipped += max(0.0, seconds - self())


class ProcessCopying(SparkResource):
    """Copies in this process, without a JVM."""

    engine: str = "process"


def instance_in(folder: Path) -> dg.DagsterInstance:
    """An instance with the settings of the repository and its storage in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dagster.yaml").write_text(SETTINGS.read_text() + "\npython_logs: {python_log_level: WARNING}\n")
    return dg.DagsterInstance.from_config(str(folder))


class Daemon:
    """Evaluates ticks and does what they request."""

    def __init__(
        self,
        instance: dg.DagsterInstance,
        clock: Callable[[], float] = time.time,
        *,
        copying_here: bool = True,
        location: dg.Definitions = defs,
    ) -> None:
        class OnClock(Replication):
            assert isinstance(Replication.workspace, property), "the property below overrides nothing"

            @property
            def workspace(self) -> Workspace:
                if self._workspace is None:
                    self._workspace = Workspace(clock=clock)
                return self._workspace

        resources = {**(location.resources or {}), "replication": OnClock()}
        resources["spark"] = ProcessCopying() if copying_here else SparkResource(engine="spark")
        self.instance = instance
        self.definitions = dg.Definitions(
            assets=location.assets,
            asset_checks=location.asset_checks,
            jobs=location.jobs,
            sensors=location.sensors,
            resources=resources,
            executor=location.executor,
        )
        self._keys: set[str | None] = set()

    def tick(self, sensor: dg.SensorDefinition = ccpr_log_sensor) -> SensorExecutionData:
        """Evaluate the sensor, and do what it requests besides runs."""
        with dg.build_sensor_context(
            instance=self.instance,
            instance_ref=self.instance.get_ref(),
            definitions=self.definitions,
            sensor_name=sensor.name,
            resources=self.definitions.resources,
        ) as context:
            data = sensor.evaluate_tick(context)
        for event in data.asset_events:
            self.instance.report_runless_asset_event(event)
        assert SUBSCRIPTIONS.name is not None
        for request in data.dynamic_partitions_requests or []:
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                self.instance.add_dynamic_partitions(SUBSCRIPTIONS.name, request.partition_keys)
            else:
                for key in request.partition_keys:
                    self.instance.delete_dynamic_partition(SUBSCRIPTIONS.name, key)
        return data

    def failing_tick(self) -> str:
        """What the tick says of the iterations that failed in it. It fails if none did."""
        _, failed, text = (self.tick().skip_message or "").partition("no run to start: 1 failed: ")
        assert failed
        return text

    def run(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        """Execute a request. Fails for a known run key, which the daemon would skip."""
        assert request.run_key not in self._keys
        self._keys.add(request.run_key)
        return self.definitions.resolve_job_def("ccpr_sync_job").execute_in_process(
            instance=self.instance, partition_key=request.partition_key, tags=dict(request.tags), raise_on_error=False
        )

    def run_by_hand(self, subscription: str) -> dg.ExecuteInProcessResult:
        """What "Materialize all" of a partition does: a run of Dagster's own job, without tags of ours."""
        return self.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance,
            partition_key=subscription,
            asset_selection=[asset.key for asset in STEPS],
            raise_on_error=False,
        )

    def tick_and_run(self) -> tuple[SensorExecutionData, list[dg.ExecuteInProcessResult]]:
        data = self.tick()
        return data, [self.run(request) for request in data.run_requests or []]
