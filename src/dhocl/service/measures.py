"""Measurements for Prometheus: latencies, refused requests, and the counts of `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # upper ends of the buckets
FRESHNESS = {  # of a replica: key in `/metrics` -> name and description
    "staleness": ("dhocl_staleness_seconds", "Seconds since the checkpoint that predicts was written."),
    "checked": ("dhocl_checked_seconds", "Seconds since the newest checkpoint was last looked for with success."),
    "behind": ("dhocl_entries_behind", "Entries that the writer accepted since."),
}


class Measures:
    """The measurements of one service, in a registry of its own. Safe for several threads."""

    def __init__(self, metrics: Callable[[], dict[str, Any]]) -> None:
        self._registry = CollectorRegistry()
        self.requests = Histogram(
            "dhocl_request_seconds",
            "Time from the headers of a request to the start of its response.",
            ("method", "route", "status"),
            registry=self._registry,
            buckets=SECONDS,
        )
        self.batches = Histogram(
            "dhocl_batch_seconds", "Time to apply a micro-batch.", registry=self._registry, buckets=SECONDS
        )
        self.rejected = Counter(
            "dhocl_rejected_requests",
            "Requests answered with a status of 400 or more.",
            ("status",),
            registry=self._registry,
        )
        self._registry.register(Counts(metrics))

    def text(self) -> bytes:
        """The text format of Prometheus."""
        return generate_latest(self._registry)


class Counts(Collector):
    """The counts of `/metrics`, read when Prometheus asks."""

    def __init__(self, metrics: Callable[[], dict[str, Any]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        found = self._metrics()
        ranks = found["ranks"]
        yield CounterMetricFamily("dhocl_learned", "Observations learned.", found["learned"])
        yield CounterMetricFamily("dhocl_refused", "Observations that could not be learned.", found["refused"])
        yield CounterMetricFamily("dhocl_deleted", "Learned observations that were deleted.", found["deleted"])
        yield CounterMetricFamily("dhocl_relabelled", "Observations that were relabelled.", found["relabelled"])
        if "queued" in found:
            yield CounterMetricFamily("dhocl_accepted", "Observations accepted.", found["accepted"])
            yield GaugeMetricFamily("dhocl_queued", "Entries that wait to be applied.", found["queued"])
            yield GaugeMetricFamily("dhocl_pool", "Images without a label.", found["pool"])
            yield GaugeMetricFamily(
                "dhocl_waiting_seconds", "Seconds since learning waits for memory.", found["waiting"]
            )
        if "replica" in found:
            for key, (name, about) in FRESHNESS.items():
                if (value := found["replica"][key]) is not None:
                    yield GaugeMetricFamily(name, about, value)
        yield _by_rank(GaugeMetricFamily, "dhocl_classes", "Known classes.", found["classes"])
        for kind, name, about, key in (
            (CounterMetricFamily, "dhocl_seen", "Observations evaluated at a rank.", "seen"),
            (CounterMetricFamily, "dhocl_correct", "Observations predicted correctly before learning.", "correct"),
            (GaugeMetricFamily, "dhocl_recent_accuracy", "Accuracy over the last observations of a rank.", "recent"),
        ):
            yield _by_rank(kind, name, about, {rank: numbers[key] for rank, numbers in ranks.items()})


def _by_rank(
    kind: type[CounterMetricFamily | GaugeMetricFamily], name: str, about: str, values: dict[str, float | None]
) -> Metric:
    family = kind(name, about, labels=("rank",))
    for rank, value in values.items():
        if value is not None:
            family.add_metric((rank,), value)
    return family
