"""The processes that serve: what they were built from, what they use, whether the front end
keeps up."""

import asyncio
import platform
from importlib.metadata import version

from prometheus_client import ProcessCollector

from service.metrics.connections import Connections
from service.metrics.families import SHORT_S, Families

LOOK_S = 0.25
BUILT_WITH = ("torch", "grpcio")


class ProcessMetrics:
    """The collectors read `/proc` when somebody looks; without one they show nothing."""

    def __init__(self, families: Families) -> None:
        self._engine_pid: int | None = None
        build = families.info("build", "Versions of walkway and of what it runs on.")
        build.info(
            {"version": version("walkway"), "python": platform.python_version()}
            | {package: version(package) for package in BUILT_WITH}
        )
        ProcessCollector(registry=families.registry)
        ProcessCollector("walkway_engine", self._engine, registry=families.registry)
        self.connections = Connections()
        families.registry.register(self.connections)
        self._lag = families.histogram(
            "event_loop_lag",
            f"How late the front end's event loop was, asked every {LOOK_S:g} s.",
            SHORT_S,
        )

    def engine_up(self, pid: int) -> None:
        """The engine's process; the front end's own where it runs in a thread."""
        self._engine_pid = pid

    def engine_down(self) -> None:
        """It is gone."""
        self._engine_pid = None

    def _engine(self) -> int | str:
        return self._engine_pid or "none"  # of which /proc knows nothing

    async def watch_lag(self) -> None:
        """For as long as the event loop that is to be watched runs."""
        clock = asyncio.get_running_loop().time
        while True:
            due_s = clock() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self._lag.observe(max(0.0, clock() - due_s))
