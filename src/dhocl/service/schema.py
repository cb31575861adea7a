"""Schemas of requests and responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from dhocl.service.names import LONGEST, clean_name

Name = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(clean_name)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    detail: str = Field(description="One line about the request.")


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Error responses for the description of a route: the common status codes and these."""
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
    accepted: list[int] = Field(description="Entry number of each observation, in the order of the request.")
    queued: int = Field(description="Entries that wait to be applied, including these.")


class AcceptedRevision(BaseModel):
    accepted: int


class Guess(BaseModel):
    name: str
    probability: float = Field(ge=0, le=1)


class Node(Guess):
    rank: str


class Foreseen(Guess):
    right: bool = Field(description="Whether it is the class of the label.")


class Prediction(BaseModel):
    ranks: dict[str, Guess] = Field(description="The most probable class of each rank, with ranks as independent.")
    path: list[Node] = Field(description="The most probable consistent path, coarsest first.")
    answer: Node | None = Field(description="The deepest node of the path with at least the requested confidence.")


class Predictions(BaseModel):
    predictions: list[Prediction]


class Link(Strict):
    """Put `child` below `parent`, and replace a parent that it has."""

    kind: Literal["link"]
    child: Class
    parent: Class


class Unlink(Strict):
    """Remove the link of `child` to its parent."""

    kind: Literal["unlink"]
    child: Class


class Rename(Strict):
    """Give a class another name. The old name still finds it."""

    kind: Literal["rename"]
    class_: Class = Field(alias="class")
    to: Name


class Merge(Strict):
    """Merge a class into another of the same rank."""

    kind: Literal["merge"]
    class_: Class = Field(alias="class")
    into: Name


class Add(Strict):
    """Add a class below a known one before its first image, for example to split a class."""

    kind: Literal["add"]
    class_: Class = Field(alias="class")
    parent: Class


Revision = Annotated[Link | Unlink | Rename | Merge | Add, Field(discriminator="kind")]


class TreeNode(BaseModel):
    id: int
    name: str
    rank: str
    parent: int | None
    since: int = Field(description="Version of the tree in which it was added.")


class Tree(BaseModel):
    ranks: list[str]
    version: int
    nodes: list[TreeNode]


class TreeEvent(BaseModel):
    number: int = Field(description="Version of the tree after this event.")
    kind: Literal["add", "link", "unlink", "rename", "merge"]
    node: int
    time: int = Field(description="Micro-batch of the event.")
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


class Confusion(BaseModel):
    true: str
    predicted: str
    count: int = Field(description="How often it is among the newest mistakes of the rank, at most 500.")


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
    reason: str | None = Field(description="Why it was refused.")


class Health(BaseModel):
    status: Literal["ok", "failed"]
    queued: int
    learned: int
