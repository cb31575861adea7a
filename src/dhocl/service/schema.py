"""What goes over the wire."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

LONGEST = 200  # characters of a name


def clean_name(text: str) -> str:
    """A name in one spelling: composed characters, single blanks. It is data and holds no controls.

    >>> clean_name("  Parus\\u00a0 major ")
    'Parus major'
    """
    name = " ".join(unicodedata.normalize("NFC", text).split())
    if not name:
        raise ValueError("a name is empty")
    if len(name) > LONGEST:
        raise ValueError(f"a name has more than {LONGEST} characters")
    if any(unicodedata.category(c) in ("Cc", "Cs", "Cn") or unicodedata.bidirectional(c) in _TURNS for c in name):
        raise ValueError("a name holds a character that is none: a control, a half or a turn of the writing direction")
    return name


_TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}

Name = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(clean_name)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    detail: str = Field(description="One line about the request.")


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """For a route's description: it may answer with these codes, as any route with the usual ones."""
    return {code: {"model": Problem} for code in (400, 401, 422, 429, *codes)}


class Class(Strict):
    name: Name
    rank: str = Field(max_length=LONGEST)


class Observation(Class):
    image: str = Field(description="JPEG, PNG or WebP, in base64.", json_schema_extra={"contentEncoding": "base64"})


class Observations(Strict):
    observations: list[Observation] = Field(min_length=1)


class Images(Strict):
    images: list[str] = Field(min_length=1, description="JPEG, PNG or WebP each, in base64.")


class Accepted(BaseModel):
    accepted: list[int] = Field(description="A number for each observation, in the order they were given.")
    queued: int = Field(description="Entries that wait to be applied, these included.")


class AcceptedRevision(BaseModel):
    accepted: int


class Guess(BaseModel):
    name: str
    probability: float = Field(ge=0, le=1)


class Node(Guess):
    rank: str


class Foreseen(Guess):
    right: bool = Field(description="It is the class that the image came with, by whichever of its names.")


class Prediction(BaseModel):
    ranks: dict[str, Guess] = Field(description="The best class of each rank, judged by itself.")
    path: list[Node] = Field(description="The most probable consistent path, coarsest first.")
    answer: Node | None = Field(description="The deepest node of the path that is as sure as was asked for.")


class Predictions(BaseModel):
    predictions: list[Prediction]


class Link(Strict):
    """`child` lies below `parent`; a parent that it had is replaced."""

    kind: Literal["link"]
    child: Class
    parent: Class


class Unlink(Strict):
    """`child` does not lie below its parent."""

    kind: Literal["unlink"]
    child: Class


class Rename(Strict):
    """A class gets another name, and answers to both."""

    kind: Literal["rename"]
    class_: Class = Field(alias="class")
    to: Name


class Merge(Strict):
    """A class is the same as another of its rank, and goes by that one's name."""

    kind: Literal["merge"]
    class_: Class = Field(alias="class")
    into: Name


class Add(Strict):
    """A class below a known one, announced before its first image: so a class is split."""

    kind: Literal["add"]
    class_: Class = Field(alias="class")
    parent: Class


Revision = Annotated[Link | Unlink | Rename | Merge | Add, Field(discriminator="kind")]


class TreeNode(BaseModel):
    id: int
    name: str
    rank: str
    parent: int | None
    since: int = Field(description="The version of the tree in which it came.")


class Tree(BaseModel):
    ranks: list[str]
    version: int
    nodes: list[TreeNode]


class TreeEvent(BaseModel):
    number: int = Field(description="The version of the tree that it made.")
    kind: Literal["add", "link", "unlink", "rename", "merge"]
    node: int
    time: int = Field(description="The micro-batch it happened in.")
    name: str | None = None
    rank: str | None = None
    parent: int | None = None
    into: int | None = None


class TreeEvents(BaseModel):
    version: int
    events: list[TreeEvent]


class RankMetrics(BaseModel):
    seen: int
    correct: int
    accuracy: float | None
    recent: float | None


class Metrics(BaseModel):
    accepted: int
    learned: int
    refused: int
    queued: int
    per_second: float
    ranks: dict[str, RankMetrics]
    history: list[dict[str, Any]]
    classes: dict[str, int]


class Recent(BaseModel):
    number: int
    name: str
    rank: str
    time: float
    state: Literal["queued", "learned", "refused"]
    predicted: Foreseen | None
    thumbnail: str


class EntryState(BaseModel):
    number: int
    kind: str
    state: Literal["queued", "done", "refused"]


class Health(BaseModel):
    status: Literal["ok", "failed"]
    queued: int
    learned: int
