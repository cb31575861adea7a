"""The page changes the tree, by keyboard and by pointer, and undoes it. Its headline follows what is taught."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.browsing import drop, needs_chromium, opened_at, teach, watched
from tests.helpers.serving import Client, examples, link, names, post, running, settled, until

pytestmark = needs_chromium

TREE = {"bird": None, "fish": None, "robin": "bird", "crow": "bird", "carp": "fish", "cod": "fish"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running(tmp_path_factory.mktemp("page") / "m") as client:
        post(client, examples(40))
        yield client


@pytest.fixture
def client(service: Client) -> Client:
    """With TREE, whatever a test before has done."""
    for child, parent in TREE.items():
        if parent:
            link(service, child, parent)
    until(lambda: tree(service) == TREE)
    return service


def tree(client: Client) -> dict[str, str | None]:
    """Class -> parent, of the classes of TREE."""
    return {name: parent for name, parent in names(client).items() if name in TREE}


@pytest.fixture
def page(browser: Any, client: Client) -> Iterator[Any]:
    opened = opened_at(browser, client)
    opened.get_by_role("treeitem", name="crow").wait_for()
    yield opened
    assert opened.complaints == []
    opened.close()


def go_to(page: Any, name: str) -> None:
    """By keys alone."""
    page.locator("#tree").focus()
    page.keyboard.press("Home")
    for _ in range(20):
        active = page.locator("#tree").get_attribute("aria-activedescendant")
        if active and page.locator(f"#{active} .name").text_content() == name:
            return
        page.keyboard.press("ArrowDown")
    raise AssertionError(f"{name} is not in the tree")


def said(page: Any, text: str) -> None:
    page.locator("#edited", has_text=text).wait_for()


def undo(page: Any) -> None:
    page.locator("#tree").focus()
    page.keyboard.press("Control+z")


def test_renamed_and_back_by_keyboard(page: Any, client: Client) -> None:
    go_to(page, "crow")
    page.keyboard.press("F2")
    page.keyboard.type("  carrion   crow")
    page.keyboard.press("Enter")
    said(page, "crow is called carrion crow now.")
    assert names(client)["carrion crow"] == "bird"
    page.wait_for_function("document.activeElement.id === 'tree'")
    undo(page)
    said(page, "Undone: crow renamed carrion crow.")
    assert tree(client) == TREE
    assert page.locator("#edit-undo").is_disabled()


def test_moved_unlinked_and_back_by_keyboard(page: Any, client: Client) -> None:
    go_to(page, "crow")
    page.keyboard.press("m")
    assert page.locator("#change .names button").all_text_contents() == ["fish kind"], "its parent is not offered"
    page.keyboard.type("fi")
    page.keyboard.press("Enter")
    said(page, "crow is below fish now.")
    assert tree(client) == {**TREE, "crow": "fish"}
    go_to(page, "crow")
    page.keyboard.press("Delete")
    said(page, "crow has no parent now.")
    assert tree(client) == {**TREE, "crow": None}
    undo(page)
    said(page, "Undone: crow without a parent.")
    assert tree(client) == {**TREE, "crow": "fish"}
    undo(page)
    said(page, "Undone: crow below fish.")
    assert tree(client) == TREE


def test_a_form_is_left_by_escape(page: Any, client: Client) -> None:
    go_to(page, "crow")
    page.keyboard.press("m")
    page.keyboard.press("Escape")
    assert not page.locator("#change input").count()
    assert page.evaluate("document.activeElement.id") == "tree"
    assert tree(client) == TREE


def test_dragged_below_another_parent(page: Any, client: Client) -> None:
    page.get_by_role("treeitem", name="crow").drag_to(page.get_by_role("treeitem", name="fish"))
    said(page, "crow is below fish now.")
    assert names(client)["crow"] == "fish"
    page.locator("#edit-undo").click()
    said(page, "Undone: crow below fish.")
    assert tree(client) == TREE
    assert not page.locator("#problem").is_visible(), "a class is not an image"


def test_a_merge_is_confirmed_because_it_has_no_inverse(page: Any, client: Client) -> None:
    for name in ("merle", "ouzel"):
        added = {"name": name, "rank": "species"}
        client.post("/taxonomy", json={"kind": "add", "class": added, "parent": {"name": "bird", "rank": "kind"}})
    merle, ouzel = (page.get_by_role("treeitem", name=name) for name in ("merle", "ouzel"))
    ouzel.wait_for()
    go_to(page, "merle")
    page.keyboard.press("Delete")
    said(page, "merle has no parent now.")
    for answer in ("Cancel", "Merge"):
        merle.drag_to(ouzel)
        page.locator("#merge").get_by_text("This can not be undone").wait_for()
        assert {"merle", "ouzel"} <= names(client).keys()
        page.locator("#merge").get_by_role("button", name=answer).click()
    said(page, "merle and ouzel are one class now.")
    assert "merle" not in names(client)
    assert page.locator("#edit-undo").is_disabled(), "changes before a merge may concern the class that is gone"


def test_classes_below_move_with_a_merge(page: Any, client: Client) -> None:
    go_to(page, "bird")
    page.keyboard.press("g")
    page.keyboard.press("Enter")
    page.locator("#merge", has_text="classes below it move to fish. This can not be undone").wait_for()
    page.keyboard.press("Escape")
    page.wait_for_function("document.activeElement.id === 'tree'")
    assert tree(client) == TREE


def test_what_was_changed_elsewhere_is_not_undone(page: Any, client: Client) -> None:
    go_to(page, "crow")
    page.keyboard.press("Delete")
    said(page, "crow has no parent now.")
    link(client, "crow", "fish")
    settled(client)
    page.locator("#line", has_text="fish (kind)").wait_for()
    undo(page)
    said(page, "was changed again since")
    assert names(client)["crow"] == "fish"


def test_a_refusal_is_shown_with_its_reason(page: Any, client: Client) -> None:
    go_to(page, "crow")
    page.keyboard.press("F2")
    page.keyboard.type("robin")
    page.keyboard.press("Enter")
    said(page, "merge the two")
    assert page.locator("#edit-undo").is_disabled()
    assert tree(client) == TREE


def heading(page: Any) -> tuple[str, str]:
    return page.locator("#answer-name").text_content(), page.locator("#answer-about").text_content().replace(
        "\xa0", " "
    )


def path(*nodes: tuple[str, str, float], sure: int | None) -> dict[str, Any]:
    """A prediction as the service tells it."""
    found = [{"rank": rank, "name": name, "probability": p} for rank, name, p in nodes]
    told = {"path": found, "answer": None if sure is None else found[sure], "new": None, "only": []}
    return {"predictions": [told | {"familiar": {}, "alternatives": {rank: [] for rank, _, _ in nodes}}]}


def test_what_to_know_about_a_rank_is_told(page: Any) -> None:
    told = path(("kind", "bird", 0.93), ("species", "crow", 0.4), sure=0)
    told["predictions"][0] |= {"new": "species", "only": ["kind"]}
    told["predictions"][0]["alternatives"]["species"] = [{"name": "carp", "probability": 0.2}]
    page.route("**/predict?top=2&confidence=0.8", lambda route: route.fulfill(json=told))
    drop(page, examples(1)[0][0])
    page.locator("#answer").wait_for()
    rows = [row.replace("\xa0", " ") for row in page.locator("#path > li").all_text_contents()]
    assert "only one kind known" in rows[0]
    assert "perhaps a new species" in rows[1]


@pytest.mark.parametrize(
    ("told", "name", "about"),
    [
        (path(("kind", "bird", 0.95), ("species", "crow", 0.9), sure=1), "crow", "species, 90 %"),
        (
            path(("kind", "bird", 0.91), ("species", "crow", 0.4), sure=0),
            "bird",
            "kind, 91 %. species unsure: perhaps crow, 40 %",
        ),
        (path(("kind", "bird", 0.6), ("species", "crow", 0.4), sure=None), "Not sure", "perhaps bird (kind), 60 %"),
    ],
    ids=["sure", "coarser", "unsure"],
)
def test_the_headline_is_the_deepest_class_that_is_sure(page: Any, told: Any, name: str, about: str) -> None:
    page.route("**/predict?top=2&confidence=0.8", lambda route: route.fulfill(json=told))
    drop(page, examples(1)[0][0])
    page.locator("#answer").wait_for()
    assert heading(page) == (name, about)


def test_the_headline_follows_what_is_taught(page: Any) -> None:
    """Also while the model is sure of something else."""
    told = path(("kind", "bird", 0.93), ("species", "crow", 0.9), sure=1)
    page.route("**/predict?top=2&confidence=0.8", lambda route: route.fulfill(json=told))
    drop(page, examples(1)[0][0])
    page.locator("#answer").wait_for()
    assert heading(page)[0] == "crow"
    still = "as you taught. The model still predicts bird, 93 %."
    for rank, name, shown in [
        ("kind", "fish", ("fish", f"kind, {still}")),
        ("species", "cod", ("cod", f"species, {still}")),
        ("kind", "fish", ("cod", f"species, {still}")),  # coarser, and true of cod
        ("kind", "bird", ("crow", "species, 90 %")),  # not true of cod; the model is sure of a class below
    ]:
        teach(page, rank, name)
        assert heading(page) == shown
    kind = page.locator("#path > li", has_text="kind")
    assert "as taught" in kind.text_content()


def test_ranks_below_what_is_taught_are_marked(page: Any) -> None:
    told = path(("kind", "bird", 0.93), ("species", "crow", 0.9), sure=1)
    page.route("**/predict?top=2&confidence=0.8", lambda route: route.fulfill(json=told))
    drop(page, examples(1)[0][0])
    teach(page, "kind", "fish")
    rows = [row.replace("\xa0", " ") for row in page.locator("#path > li").all_text_contents()]
    assert "fish" in rows[0]
    assert "as taught; predicted: bird, 93 %" in rows[0]
    assert "not below fish" in rows[1]


def test_a_real_class_that_is_taught_is_the_headline(page: Any) -> None:
    drop(page, examples(1, seed=9)[0][0])
    page.locator("#answer").wait_for()
    teach(page, "kind", "Corvidae")
    assert heading(page)[0] == "Corvidae"
    teach(page, "species", "raven")
    assert heading(page)[0] == "raven"


def test_confusions_of_each_rank(browser: Any, client: Client) -> None:
    told = {
        "kind": [{"true": "bird", "predicted": "fish", "count": 3}],
        "species": [
            {"true": "crow", "predicted": "cod", "count": 7},
            {"true": "cod", "predicted": "crow", "count": 1},
        ],
    }
    page = watched(browser, 390)
    page.route("**/confusions?n=8", lambda route: route.fulfill(json=told))
    page.goto(str(client.base_url))
    page.locator("#confused tr").first.wait_for()
    assert page.locator("#confused tr").all_text_contents() == ["crowcod7", "codcrow1"], "the finest rank first"
    page.locator("#confused-ranks").get_by_text("kind").click()
    assert page.locator("#confused tr").all_text_contents() == ["birdfish3"]
    page.locator("#confused").get_by_text("fish").click()
    page.locator("#line", has_text="fish (kind)").wait_for()
    assert page.complaints == []
    page.close()


def test_the_service_tells_its_confusions(page: Any, client: Client) -> None:
    wrong = [(image, {"cod": "carp", "carp": "cod"}.get(name, name), rank) for image, name, rank in examples(40, 1)]
    post(client, wrong)
    settled(client)
    told = client.get("/confusions").json()["species"]
    assert {"cod", "carp"} & {pair["true"] for pair in told}
    assert len(client.get("/confusions?n=1").json()["species"]) == 1
    rows = [f"{pair['true']}{pair['predicted']}{pair['count']}" for pair in told]
    until(lambda: page.locator("#confused tr").all_text_contents() == rows[:8])


@pytest.mark.parametrize(("points", "dots", "lines"), [(1, 2, 0), (12, 24, 0), (13, 0, 2)])
def test_few_points_are_dots(browser: Any, client: Client, points: int, dots: int, lines: int) -> None:
    metrics = client.get("/metrics").json()
    shares = {"kind": 0.8, "species": 0.5}
    metrics |= {
        "learned": 10 * points,
        "history": [{"learned": 10 * n + 10, "accuracy": shares} for n in range(points)],
    }
    page = watched(browser, 1280)
    page.route("**/metrics", lambda route: route.fulfill(json=metrics))
    page.goto(str(client.base_url))
    page.locator("#ranks tr").first.wait_for()
    page.wait_for_function("document.querySelectorAll('#curve .dot, #curve .line').length")
    assert (page.locator("#curve .dot").count(), page.locator("#curve .line").count()) == (dots, lines)
    page.close()
