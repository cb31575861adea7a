"""Measurements for Prometheus, read by its own parser."""

from __future__ import annotations

from pathlib import Path

import httpx
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from dhocl.service.measures import Measures
from tests.helpers.serving import NEW, examples, post, settled, started

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()
SCRAPER = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


def samples(client: httpx.Client) -> dict[tuple[str, ...], float]:
    """Name and values of the labels, in the order of their names -> value."""
    answer = client.get("/metrics", headers={"Accept": SCRAPER})
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(answer.text)
    found = [sample for family in families for sample in family.samples]
    return {(s.name, *(s.labels[label] for label in sorted(s.labels))): s.value for s in found}


def test_what_prometheus_reads(tmp_path: Path) -> None:
    with started("--model", tmp_path / "m", *NEW) as (_, client):
        for seed in range(2):
            assert post(client, examples(20, seed)).status_code == 202
        numbers = settled(client)
        assert client.post("/taxonomy", json={}).status_code == 422
        assert client.get("/entries/9999").status_code == 404
        assert client.get("/invented/by/a/client").status_code == 404
        assert client.request("INVENTED", "/taxonomy").status_code == 405
        assert client.get("/taxonomy", headers={"Host": "evil.example"}).status_code == 400
        found = samples(client)
        assert isinstance(client.get("/metrics").json()["history"], list), "JSON as before"
    assert found["dhocl_request_seconds_count", "POST", "/observations", "202"] == 2
    assert 0 < found["dhocl_request_seconds_sum", "POST", "/observations", "202"] < 60
    assert found["dhocl_request_seconds_bucket", "+Inf", "POST", "/observations", "202"] == 2
    assert found["dhocl_request_seconds_count", "POST", "/taxonomy", "422"] == 1
    assert found["dhocl_request_seconds_count", "GET", "/entries/{number}", "404"] == 1
    assert found["dhocl_request_seconds_count", "GET", "/taxonomy", "400"] == 1, "refused before it is routed"
    assert found["dhocl_request_seconds_count", "other", "other", "404"] == 1
    assert found["dhocl_request_seconds_count", "other", "other", "405"] == 1
    rejected = {key[1]: value for key, value in found.items() if key[0] == "dhocl_rejected_requests_total"}
    assert rejected == {"400": 1, "404": 2, "405": 1, "422": 1}
    assert found["dhocl_batch_seconds_count",] >= 2
    assert found["dhocl_batch_seconds_sum",] > 0
    for name in (
        "accepted_total",
        "learned_total",
        "refused_total",
        "deleted_total",
        "relabelled_total",
        "queued",
        "pool",
    ):
        assert found[f"dhocl_{name}",] == numbers[name.removesuffix("_total")]
    assert found["dhocl_waiting_seconds",] == numbers["waiting"] == 0
    for rank, count in numbers["classes"].items():
        assert found["dhocl_classes", rank] == count
        assert found["dhocl_seen_total", rank] == numbers["ranks"][rank]["seen"]


def test_all_measurements_are_documented() -> None:
    counts = dict.fromkeys(("accepted", "learned", "refused", "deleted", "relabelled", "queued", "waiting", "pool"), 1)
    rank = {"seen": 1, "correct": 1, "recent": 1.0}
    replica = dict.fromkeys(("staleness", "checked", "behind"), 1)
    measures = Measures(lambda: counts | {"classes": {"kind": 1}, "ranks": {"kind": rank}, "replica": replica})
    families = text_string_to_metric_families(measures.text().decode())
    names = [name + "_total" * (kind == "counter") for name, kind in ((f.name, f.type) for f in families)]
    names = [name for name in names if not name.endswith("_created")]  # of the client library
    assert len(names) > 15
    assert [name for name in names if f"`{name}`" not in DOCUMENTED] == []


def test_services_of_one_process_do_not_share_measurements() -> None:
    counts = ("accepted", "learned", "refused", "deleted", "relabelled", "queued", "waiting", "pool")
    zero = dict.fromkeys(counts, 0) | {"classes": {}, "ranks": {}}
    first, second = Measures(lambda: zero), Measures(lambda: zero)
    first.batches.observe(1.0)
    assert b"dhocl_batch_seconds_count 1.0" in first.text()
    assert b"dhocl_batch_seconds_count 0.0" in second.text()
    assert not any("dhocl" in family.name for family in REGISTRY.collect())
