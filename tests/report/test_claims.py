"""Verdicts of claims, from hand-made runs in which every claim is true, and changes that make one false."""

from __future__ import annotations

from fnmatch import fnmatch
from itertools import permutations
from typing import Any

import pytest

from dhocl.experiment.recipes import RECIPES, Scale
from dhocl.report.claim_text import key_number, paragraph
from dhocl.report.claims import CLAIMS
from dhocl.report.evidence import Results, Verdict
from dhocl.report.traces import RUN_COLUMNS
from dhocl.report.verdicts import ClaimResult, Decision, PartResult, decisive, judge

World = dict[str, dict[str, dict[str, dict[tuple[int, str], dict[str, Any]]]]]
PAPER = (
    *("er", "cbrs", "mir", "clib", "rm", "plfms", "icarl_sdc", "lwf"),
    *("ewc", "icicle", "acil", "gacil", "onpro", "nsce", "ccl_dc", "onlora"),
)
KINDS = ("EfficientNet-Lite0", "resnet50-supervised", "resnet50-ssl")
METRICS = ("AAUC", "FAUC", "MS", "FFAcc", "FAAcc")
UP = {"AAUC": 1, "FAUC": 1, "MS": -0.02, "FFAcc": 1, "FAAcc": 1}  # of a row that is better by 1
NOISE = (0.0, 0.1, -0.1)  # of the seeds, the same for no two rows


def summary(quality: float, seed: int, place: int, coarsest: float = 60.0, **more: float) -> dict[str, Any]:
    noise = seed + NOISE[(seed + place) % 3]
    found = {"AAUC": 50.0, "FAUC": 40.0, "MS": 2.0, "FFAcc": 30.0, "FAAcc": 45.0}
    found = {name: found[name] + UP[name] * (quality + noise + more.get(name, 0)) for name in METRICS}
    levels = {"level_accuracy": {"0": coarsest + noise, "1": 1.0}}
    return found | levels | {"structure": {"prototypes.1": 0.0}, "steps": 100 + seed}


def rows(stream: str = "", seeds: int = 3, **quality: dict[str, Any] | float) -> dict[str, Any]:
    found = {}
    for place, (row, given) in enumerate(quality.items()):
        chosen = given if isinstance(given, dict) else {"quality": given}
        found[row] = {(seed, f"{stream}{seed}"): summary(seed=seed, place=place, **chosen) for seed in range(seeds)}
    return found


def true_world(seeds: int = 3) -> World:
    """Every claim is true, by a distinct difference."""

    def of(**quality: Any) -> dict[str, Any]:
        return {"cifar100": rows(seeds=seeds, **quality), "cub200": rows(seeds=seeds, **quality)}

    main = dict.fromkeys(PAPER, 0.0) | {
        "halo": 5.0,
        "amber": 8.0,
        "acil": {"quality": 3.0, "coarsest": 50.0},
        "finetune": -9.0,
        "amber, doubled side": 40.0,
        "joint": 30.0,
    }
    best_at = dict(zip(("multi_ce", "hxe", "soft_ce", "haf", "hcon"), METRICS, strict=True))
    policies = dict(zip(("er", "cbrs", "clib", "gss"), METRICS[:4], strict=True))
    kept = {"er": 0.0, "acil": 3.0, "halo": 5.0, "amber": 8.0}
    losses = {"er": 2.0, "acil": 8.0, "halo": 4.0, "amber": 3.0}
    world: World = {
        "main": of(**main),
        "ablation": of(linear=0.0, analytic=0.0, icicle=0.0, predla=3.0, halo=5.0),
        "losses": of(**{loss: {"quality": 0.0, name: 4.0} for loss, name in best_at.items()}),
        "memory_policies": of(**{row: {"quality": 0.0, name: 4.0} for row, name in policies.items()}),
        "groups": of(
            **{"er, 5 groups": 5.0, "er, 50 groups": -5.0, "acil, 5 groups": 3.0, "acil, 50 groups": 2.0},
        ),
        "hierarchy_noise": of(**{"vacant 40 %": 3.0, "noise 40 %": 0.0}),
        "delay": of(**{"delay 1": 5.0, "delay 50": {"quality": 4.0, "MS": -40.0}}),
        "buffer": of(**{"buffer 100": 0.0, "buffer 5000": 4.0}),
        "prototype_structure": of(**{"with HPR": 0.0, "without HPR": 0.0}),
        "backbones": of(
            **{f"{row} {kind}": quality for row, quality in kept.items() for kind in KINDS[:2]},
            **{f"{row} {KINDS[2]}": kept[row] - lost for row, lost in losses.items()},
        ),
    }
    for panel in world["prototype_structure"].values():
        for row, low in (("with HPR", 0.4), ("without HPR", 0.2)):
            for (seed, _), found in panel[row].items():
                found["structure"] = {"prototypes.0": 0.9 - low, "prototypes.1": low + 0.01 * seed**2}
    for key, runs in [(f"s{n}", world["groups"][panel]) for n, panel in enumerate(world["groups"])]:
        for row in runs:  # other groups, other streams
            runs[row] = {(seed, f"{row[-9:]}{key}{seed}"): found for (seed, _), found in runs[row].items()}
    return world


def results(world: World, **scales: Scale) -> dict[str, ClaimResult]:
    found = {recipe: Results(scales.get(recipe, Scale.full), panels) for recipe, panels in world.items()}
    return {claim.name: judge(claim, found) for claim in CLAIMS}


def decisions(world: World) -> dict[str, str]:
    return {name: result.decision.value for name, result in results(world).items()}


def move(world: World, recipe: str, panel: str, row: str, metric: str, by: float) -> None:
    """Make a metric of a row better by so much, on one data set."""
    for found in world[recipe][panel][row].values():
        found[metric] += UP[metric] * by


def test_true_claims_are_confirmed() -> None:
    assert set(decisions(true_world()).values()) == {"confirmed"}
    assert [claim.name for claim in CLAIMS] == [*(f"Claim {number}" for number in range(1, 7)), "AMBER", "Backbones"]


def test_a_single_seed_decides_nothing() -> None:
    found = results(true_world(seeds=1))
    assert {result.decision for result in found.values()} == {Decision.undecided}
    assert {outcome.problem for result in found.values() for outcome in result.outcomes} == {"one seed"}


def test_without_runs_nothing_is_decided() -> None:
    found = results({})
    assert {result.decision for result in found.values()} == {Decision.undecided}
    assert {outcome.problem for result in found.values() for outcome in result.outcomes} == {"no runs"}
    planned: World = {
        recipe: {panel: {row: {} for row in own} for panel, own in panels.items()}
        for recipe, panels in true_world().items()
    }
    assert {outcome.problem for result in results(planned).values() for outcome in result.outcomes} == {"no runs"}


REFUTING = [
    *(("Claim 1", "main", row, metric, 9) for row in PAPER for metric in ("AAUC", "FAUC", "MS")),
    *(("Claim 2", "ablation", row, metric, 9) for row in ("linear", "analytic") for metric in ("AAUC", "FAUC", "MS")),
    *(("Claim 2", "ablation", "halo", metric, -3) for metric in ("AAUC", "FAUC", "MS")),
    ("Claim 4", "main", "acil", "FFAcc", -5),
    ("Claim 4", "groups", "acil, 50 groups", "FFAcc", -30),
    ("Claim 5", "hierarchy_noise", "noise 40 %", "AAUC", 9),
    ("Claim 5", "delay", "delay 50", "MS", 90),
    ("Claim 5", "delay", "delay 50", "AAUC", -45),
    ("Claim 5", "buffer", "buffer 100", "AAUC", 9),
    *(("AMBER", "main", "amber", metric, -6) for metric in ("AAUC", "FAUC", "MS")),
    *(("AMBER", "main", "amber, doubled side", metric, -39) for metric in ("AAUC", "FAUC", "MS")),
    *(("AMBER", "main", "joint", metric, 15) for metric in ("AAUC", "FAUC", "MS")),
    ("Backbones", "backbones", "acil resnet50-ssl", "AAUC", 5),
    ("Backbones", "backbones", "acil EfficientNet-Lite0", "AAUC", -7),
    *(("Backbones", "backbones", "amber resnet50-ssl", metric, -5) for metric in ("FAUC", "MS")),
]


@pytest.mark.parametrize(("claim", "recipe", "row", "metric", "by"), REFUTING)
def test_a_comparison_that_contradicts_refutes_its_claim_alone(
    claim: str, recipe: str, row: str, metric: str, by: float
) -> None:
    world = true_world()
    move(world, recipe, "cub200", row, metric, by)
    found = results(world)
    assert {name for name, result in found.items() if result.decision is not Decision.confirmed} == {claim}
    assert found[claim].decision is Decision.refuted
    against = [outcome for outcome in found[claim].outcomes if outcome.verdict is Verdict.contradicts]
    assert {outcome.dataset for outcome in against} == {"cub200"}


@pytest.mark.parametrize(("claim", "recipe", "row", "metric", "by"), REFUTING)
def test_below_full_scale_what_contradicts_was_not_observed(
    claim: str, recipe: str, row: str, metric: str, by: float
) -> None:
    world = true_world()
    move(world, recipe, "cub200", row, metric, by)
    next(reversed(world[recipe]["cub200"][row].values()))["steps"] = 1563
    for scale in (Scale.smoke, Scale.mini):
        result = results(world, **dict.fromkeys(world, scale))[claim]
        assert result.decision is Decision.unobserved
        assert result.words == "not observed in a stream of 1,563 steps"
        shown = [paragraph(part) for part in result.parts if part.decision is Decision.unobserved]
        assert all("**Not observed in a stream of 1,563 steps.**" in text for text in shown)
    assert results(world, **dict.fromkeys(world, Scale.paper))[claim].words == "refuted"


def test_a_contradiction_at_full_scale_refutes_also_beside_one_at_a_smaller_scale() -> None:
    world = true_world()
    move(world, "buffer", "cub200", "buffer 100", "AAUC", 9)
    assert results(world, buffer=Scale.mini)["Claim 5"].decision is Decision.unobserved
    move(world, "delay", "cub200", "delay 50", "MS", 90)
    assert results(world, buffer=Scale.mini)["Claim 5"].decision is Decision.refuted


def test_a_row_that_dominates_below_full_scale_refutes_nothing() -> None:
    world = true_world()
    for panel in ("cifar100", "cub200"):
        for metric in METRICS:
            move(world, "losses", panel, "haf", metric, 20)
    result = results(world, losses=Scale.mini)["Claim 3"]
    assert result.words == "not observed in a stream of 102 steps"
    shown = [paragraph(part) for part in result.parts if part.decision is Decision.unobserved]
    assert len(shown) == 1
    assert "Distinctly better than all others everywhere: haf." in shown[0]


def test_the_coarsest_level_and_the_structure_count() -> None:
    world = true_world()
    for found in world["main"]["cub200"]["acil"].values():
        found["level_accuracy"]["0"] += 20
    assert decisions(world)["Claim 4"] == "refuted"
    world = true_world()
    for found in world["prototype_structure"]["cub200"]["with HPR"].values():
        found["structure"]["prototypes.1"] -= 0.5
    assert [name for name, decision in decisions(world).items() if decision == "refuted"] == ["Claim 6"]


def test_delay_has_to_make_ms_worse_not_only_more_than_aauc() -> None:
    world = true_world()
    move(world, "delay", "cub200", "delay 50", "MS", 45)
    move(world, "delay", "cub200", "delay 50", "AAUC", 45)
    result = results(world)["Claim 5"]
    assert result.decision is Decision.refuted
    against = [outcome.comparison.name for outcome in result.outcomes if outcome.verdict is Verdict.contradicts]
    assert against == ["delay 1 − delay 50"]


@pytest.mark.parametrize(
    ("recipe", "row"),
    [*(("losses", row) for row in ("multi_ce", "hxe", "soft_ce", "haf", "hcon"))]
    + [("memory_policies", row) for row in ("er", "cbrs", "clib", "gss")],
)
def test_a_row_that_is_best_in_all_metrics_on_all_data_sets_dominates(recipe: str, row: str) -> None:
    world = true_world()
    for panel in ("cifar100", "cub200"):
        for metric in METRICS:
            move(world, recipe, panel, row, metric, 20)
    result = results(world)["Claim 3"]
    assert result.decision is Decision.refuted
    shown = [decisive(part) for part in result.parts if part.decision is Decision.refuted]
    assert [outcome.comparison.first for outcome in shown if outcome] == [row]
    for metric in METRICS:  # one metric on one data set in which another is better is enough
        move(world, recipe, "cub200", row, metric, -40)
        assert decisions(world)["Claim 3"] == "confirmed"
        move(world, recipe, "cub200", row, metric, 40)


def test_a_row_that_is_neither_beaten_nor_best_leaves_the_claim_open() -> None:
    world = true_world()
    for panel in ("cifar100", "cub200"):
        for metric in METRICS:
            move(world, "losses", panel, "hxe", metric, 20)
    for metric in METRICS:
        noisy = [found[metric] for found in world["losses"]["cub200"]["hxe"].values()]
        for found, value in zip(world["losses"]["cub200"]["haf"].values(), reversed(noisy), strict=True):
            found[metric] = value
    assert decisions(world)["Claim 3"] == "not decided"


def test_an_interval_that_includes_0_is_named() -> None:
    world = true_world()
    halo, er = (world["main"]["cifar100"][row].values() for row in ("halo", "er"))
    for ours, theirs, by in zip(halo, er, (-1, 0, 1), strict=True):
        theirs["AAUC"] = ours["AAUC"] + by
    result = results(world)["Claim 1"]
    assert result.decision is Decision.undecided
    (outcome,) = (outcome for outcome in result.outcomes if outcome.problem)
    assert (outcome.dataset, outcome.comparison.name, outcome.problem) == (
        "cifar100",
        "halo − er",
        "interval includes 0",
    )
    assert decisive(result.parts[0]) is outcome


def test_the_number_of_an_open_claim_is_of_a_statement_with_runs() -> None:
    world = true_world(seeds=1)
    world["ablation"] = {}
    assert key_number(results(world)["Claim 2"]) == "no runs", "PredLA has no row in `main` here"
    world["main"]["cub200"]["predla"] = world["main"]["cub200"]["er"]
    assert key_number(results(world)["Claim 2"]) == "AAUC, halo − predla on cub200: +5.10 (1 seed)"


def test_rows_of_other_streams_are_not_compared() -> None:
    world = true_world()
    world["main"]["cub200"]["ccl_dc"] = rows(stream="a fifth", ccl_dc=0.0)["ccl_dc"]
    problems = {o.comparison.second: o.problem for o in results(world)["Claim 1"].outcomes if o.problem}
    assert problems == {"ccl_dc": "no common stream"}


# claim, recipe, and the same rows in the recipe `conditions`: (condition, row) -> row
MOVED = [
    ("Claim 4", "main", {("as it is", row): row for row in ("er", "acil")}),
    ("Claim 4", "groups", {(f"{n} groups", row): f"{row}, {n} groups" for row in ("er", "acil") for n in (5, 50)}),
    ("Claim 5", "hierarchy_noise", {(name, "halo"): name for name in ("vacant 40 %", "noise 40 %")}),
    ("Claim 5", "delay", {("as it is", "halo"): "delay 1", ("delay 50", "halo"): "delay 50"}),
    ("Claim 5", "buffer", {(name, "halo"): name for name in ("buffer 100", "buffer 5000")}),
    ("AMBER", "main", {("as it is", row): row for row in ("halo", "amber")}),
]


def used(part: PartResult) -> bool:
    return any(arm.recipe == "conditions" for c in part.part.comparisons for q in c.options[-1] for arm in q.arms)


@pytest.mark.parametrize(("claim", "recipe", "moved"), MOVED)
def test_conditions_are_used_where_a_recipe_was_not_run(
    claim: str, recipe: str, moved: dict[tuple[str, str], str]
) -> None:
    world = true_world()
    single = world.pop(recipe)
    assert decisions(world)[claim] == "not decided"
    panels: dict[str, dict[str, Any]] = {}
    for (condition, row), old in moved.items():
        panels.setdefault(f"cifar100, {condition}", {})[row] = single["cifar100"][old]
    world["conditions"] = panels
    found = results(world)[claim]
    assert all(part.decision is Decision.confirmed for part in found.parts if used(part))
    assert "conditions" in found.recipes


def two_recipes() -> World:
    """`best` has three seeds, `main` only two."""
    world = true_world()
    few = {row: dict(list(runs.items())[:2]) for row, runs in world["main"]["cub200"].items()}
    return world | {"best": {"cub200": world["main"]["cub200"]}, "main": {"cub200": few}}


def test_the_recipe_with_the_most_common_seeds_is_used() -> None:
    found = results(two_recipes())["AMBER"]
    assert found.recipes == ["best"]
    assert {outcome.difference.pairs for outcome in found.outcomes if outcome.difference} == {3}


def test_a_larger_scale_is_used_before_more_seeds() -> None:
    found = results(two_recipes(), best=Scale.mini)["AMBER"]
    assert found.recipes == ["main"]
    assert "Compared on cub200 (recipe `main`, scale `full`)." in paragraph(found.parts[0])
    world = two_recipes()
    world["main"]["cub200"]["amber"] = {}
    found = results(world, best=Scale.mini)["AMBER"]
    assert "Compared on cub200 (recipe `best`, scale `mini`)." in paragraph(found.parts[0])


def test_a_data_set_without_runs_does_not_count() -> None:
    world = true_world()
    for name, panels in world.items():
        panels["glyphs"] = {row: {} for row in panels["cub200"]}
        if name == "main":  # these two are compared with others, not with each other
            panels["glyphs"] |= {"cbrs": panels["cub200"]["cbrs"], "joint": panels["cub200"]["joint"]}
    found = results(world)
    assert {result.decision.value for result in found.values()} == {"confirmed"}
    assert "Compared on cifar100, cub200 (recipe" in paragraph(found["Claim 1"].parts[0])


def test_a_row_without_runs_leaves_the_claim_open_where_others_have_some() -> None:
    world = true_world()
    world["main"]["cub200"]["cbrs"] = {}
    found = results(world)["Claim 1"]
    assert found.decision is Decision.undecided
    assert {(o.dataset, o.comparison.second) for o in found.outcomes if o.problem == "no runs"} == {("cub200", "cbrs")}


def test_a_part_of_a_stream_is_no_data_set() -> None:
    """Rows that learn a fifth of the stream are in a panel of their own, beside some that learn all of it."""
    world = true_world()
    panels = world["main"]
    for panel in ("cifar100", "cub200"):
        part = {row: rows(stream="part", seeds=1, **{row: 0.0})[row] for row in ("halo", "er", "acil", "amber")}
        panels[f"{panel}, 10,000 images"] = part | {"ccl_dc": panels[panel].pop("ccl_dc")}
    found = results(world)
    assert {name for name, result in found.items() if result.decision is not Decision.confirmed} == {"Claim 1"}
    missing = [(o.dataset, o.comparison.second) for o in found["Claim 1"].outcomes if o.problem]
    assert missing == [("", "ccl_dc")] * 3


def test_joint_training_is_compared_on_photographs_only() -> None:
    world = true_world()
    world["main"]["glyphs"] = {
        row: runs if row != "joint" else world["main"]["cub200"]["amber, doubled side"]
        for row, runs in world["main"]["cub200"].items()
    }
    assert {o.dataset for o in results(world)["AMBER"].parts[0].outcomes} == {"cifar100", "cub200", "glyphs"}
    assert {o.dataset for o in results(world)["AMBER"].parts[2].outcomes} == {"cifar100", "cub200"}


def test_what_is_compared_is_in_the_table_of_runs() -> None:
    compared = {
        quantity.metric
        for claim in CLAIMS
        for part in claim.parts
        for comparison in part.comparisons
        for option in comparison.options
        for quantity in option
    }
    assert compared <= set(RUN_COLUMNS)


def test_what_is_compared_is_planned_by_the_recipes() -> None:
    planned = {
        name: {(cell.panel, cell.row) for scale in Scale for cell in recipe.cells(scale)}
        for name, recipe in RECIPES.items()
    }
    sides = {
        arm
        for claim in CLAIMS
        for part in claim.parts
        for comparison in part.comparisons
        for option in comparison.options
        for quantity in option
        for arm in quantity.arms
    }
    for arm in sides:
        tail = f", {arm.condition}" if arm.condition else ""
        assert any(
            fnmatch(arm.row, row.format(backbone="resnet50-*")) and panel.endswith(tail)
            for panel, row in planned[arm.recipe]
        ), arm


def test_every_row_meets_every_other_in_five_metrics() -> None:
    (claim,) = (claim for claim in CLAIMS if claim.name == "Claim 3")
    groups = (("multi_ce", "hxe", "soft_ce", "haf", "hcon"), ("er", "cbrs", "clib", "gss"))
    for part, members in zip(claim.parts, groups, strict=True):
        met = [(pair.first, pair.second, pair.quantity.metric) for pair in part.comparisons]
        assert sorted(met) == sorted((a, b, metric) for a, b in permutations(members, 2) for metric in METRICS)
