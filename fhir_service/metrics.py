"""The counters of the service in Prometheus' text format. Processes behind one address share them through a folder."""

import os
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from fhir_service.store.bodies import BodyCache

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names this folder. prometheus_client reads it when it is imported."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


class _OfBodies(Collector):
    """Collect hits, misses and bytes of the cache at the time of the request."""

    def __init__(self, bodies: BodyCache) -> None:
        self._bodies = bodies

    def collect(self) -> Iterator[Metric]:
        reads = CounterMetricFamily("fhir_cache_reads", "Look-ups in the cache", labels=["kind", "found"])
        for kind in ("resource", "search"):
            for found in (True, False):
                reads.add_metric([kind, "yes" if found else "no"], self._bodies.reads[kind, found])
        yield reads
        yield GaugeMetricFamily("fhir_cache_bytes", "Bytes in the cache", self._bodies.held)


class Metrics:
    """The counters of one service. Labels are methods, path templates and statuses, never ids or values."""

    def __init__(self, bodies: BodyCache) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_OfBodies(bodies))
        self._shared = os.environ.get(FOLDER)
        labels = ("method", "path", "status")
        self._requests = Counter("fhir_requests", "Requests answered", labels, registry=self._registry)
        self._seconds = Histogram(
            "fhir_request_seconds", "Time to answer", ("method", "path"), buckets=_SECONDS, registry=self._registry
        )
        self._groups = Histogram(
            "fhir_commit_entries", "Entries written by one commit", buckets=_SIZES, registry=self._registry
        )
        self._again = Counter(
            "fhir_commits_again", "Commits repeated because another process was first", registry=self._registry
        )

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(method, path).observe(seconds)

    def committed(self, entries: int) -> None:
        self._groups.observe(entries)

    def collided(self) -> None:
        self._again.inc()

    def text(self) -> bytes:
        """Return the counters of all processes behind this address."""
        if not self._shared:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, self._shared)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
