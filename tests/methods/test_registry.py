"""A method from outside is found with its settings, or the reason is one line."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dhocl.core.errors import InputError
from dhocl.core.settings import Settings
from dhocl.methods import METHODS
from dhocl.methods.er import ER, ReplaySettings
from dhocl.methods.registry import find_method, method_settings
from dhocl.nn.learner import Learner, Setup


@dataclass(frozen=True)
class MySettings(ReplaySettings):
    weight: float = 0.5


class Mine(ER):
    """Replay, weighted.

    More about it.
    """

    def __init__(self, setup: Setup, settings: MySettings) -> None:
        super().__init__(setup, settings)


class Inherits(ER):
    pass


class InItsBody(ER):
    settings: MySettings


class Below(InItsBody):
    pass


class WithoutSettings(ER):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, ReplaySettings())


class WithoutAnything(ER):
    def __init__(self) -> None:
        pass


class WithOtherSettings(ER):
    def __init__(self, setup: Setup, settings: dict[str, float]) -> None:
        super().__init__(setup, ReplaySettings(**settings))


class Unannotated(ER):
    def __init__(self, setup, settings) -> None:  # type: ignore[no-untyped-def]
        super().__init__(setup, settings)


class Partly(ER):
    def __init__(self, setup, options: MySettings) -> None:  # type: ignore[no-untyped-def]
        super().__init__(setup, options)


class Unresolved(ER):
    def __init__(self, setup: Setup, settings: OnlyForTypeCheckers) -> None:  # type: ignore[name-defined]  # noqa: F821
        super().__init__(setup, settings)


NOTHING = 3


@pytest.mark.parametrize("method", [Mine, f"{__name__}:Mine"])
def test_a_class_states_its_settings_by_its_annotation(method: str | type[Learner]) -> None:
    found = find_method(method)
    assert found == (Mine, MySettings, "Replay, weighted.", __name__)
    assert method_settings(method, {"weight": "0.25", "lr_heads": 0.1}) == MySettings(weight=0.25, lr_heads=0.1)


def test_a_subclass_has_the_settings_of_its_parent() -> None:
    assert find_method(Inherits)[1:3] == (ReplaySettings, "")


def test_an_annotation_in_the_body_suffices() -> None:
    assert find_method(InItsBody).settings is find_method(Below).settings is MySettings


def test_only_the_settings_need_an_annotation() -> None:
    assert find_method(Partly).settings is MySettings


@pytest.mark.parametrize("name", METHODS)
def test_the_methods_here_would_be_found_from_outside_too(name: str) -> None:
    entry = METHODS[name]
    assert issubclass(entry.settings, find_method(entry.learner).settings)


@pytest.mark.parametrize(
    "name", ["WithoutSettings", "WithoutAnything", "WithOtherSettings", "Unannotated", "Unresolved"]
)
def test_a_class_without_settings_is_told_how(name: str) -> None:
    with pytest.raises(InputError, match=f"the settings of {name} are unknown: write `settings: MySettings`") as error:
        find_method(f"{__name__}:{name}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["MySettings", "NOTHING", "pytest"])
def test_what_is_no_learner_is_told(name: str) -> None:
    with pytest.raises(InputError, match="is not a Learner: a method is a class derived from"):
        find_method(f"{__name__}:{name}")


def test_only_fields_are_settings() -> None:
    assert Settings.positive == frozenset()
    with pytest.raises(InputError, match="er has no setting 'positive': choose one of average, loss, lr_backbone"):
        method_settings("er", {"positive": "1"})
