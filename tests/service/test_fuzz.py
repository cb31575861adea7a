"""Requests that nobody would think of, made from the service's own description of itself."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from tests.helpers.serving import examples, post, running, settled

ROUTES = [
    ("POST", "/observations"), ("POST", "/predict"), ("POST", "/taxonomy"), ("GET", "/taxonomy"),
    ("GET", "/taxonomy/events"), ("GET", "/metrics"), ("GET", "/observations/recent"),
    ("GET", "/observations/{number}/thumbnail"), ("GET", "/entries/{number}"), ("GET", "/health"),
    ("PATCH", "/observations/{number}"), ("DELETE", "/observations/{number}"), ("DELETE", "/observations"),
    ("POST", "/images"), ("GET", "/suggestions"), ("POST", "/images/{number}/label"), ("DELETE", "/images/{number}"),
    ("GET", "/confusions"), ("POST", "/observations/{number}/unlabel"), ("POST", "/examples"),
]  # fmt: skip

load_all_checks()
# What fits the description may still be no image, or a name that is none.
SKIPPED = CHECKS.get_by_names(["positive_data_acceptance"])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running(tmp_path_factory.mktemp("fuzz") / "m") as client:
        post(client, examples(30))
        yield client
        assert client.get("/health").json()["status"] == "ok"
        numbers = settled(client)
        assert numbers["learned"] == numbers["accepted"], "nothing lost, nothing refused"


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_whatever_is_sent_the_answer_is_as_described(
    service: httpx.Client, method: str, path: str, mode: GenerationMode
) -> None:
    operation = schemathesis.openapi.from_url(f"{service.base_url}/openapi.json")[path][method]
    if mode is GenerationMode.NEGATIVE and path in ("/taxonomy", "/health") and method == "GET":
        pytest.skip("it takes nothing that could be wrong")

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: Case) -> None:
        case.call_and_validate(excluded_checks=SKIPPED)

    ask()
