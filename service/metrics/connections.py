"""Open connections, counted in the kernel's tables: gRPC does not report idle ones."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
ESTABLISHED = "01"
NAME = "walkway_connections"
WHAT = "TCP connections that are established, by listener; Linux only."


class Connections(Collector):
    """Shows nothing before `watch`, nor on a system without these tables. A table is of a
    network namespace, so reading one takes as long as all its connections are many."""

    def __init__(self) -> None:
        self._ports: Mapping[str, int] = {}

    def watch(self, ports: Mapping[str, int]) -> None:
        """Count those of these listeners; 0 is one that is not open."""
        self._ports = ports

    def collect(self) -> Iterable[Metric]:
        tables = [table.read_bytes() for table in TABLES if table.exists()]
        if not tables:
            return
        family = GaugeMetricFamily(NAME, WHAT, labels=["listener"])
        for listener, port in self._ports.items():
            family.add_metric([listener], sum(count(table, port) for table in tables))
        yield family


def count(table: bytes, port: int) -> int:
    """Lines of a table whose local end is the port of an established connection."""
    line = rf"^ *\d+: [0-9A-F]+:{port:04X} [0-9A-F]+:[0-9A-F]{{4}} {ESTABLISHED} "
    return len(re.findall(line.encode(), table, re.MULTILINE))
