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


class Observed(Class):
    observer: Name | None = Field(default=None, description="Who made it. A batch of an observer can be undone.")


class Observation(Observed):
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


class AcceptedCorrection(BaseModel):
    accepted: int = Field(description="Number of the entry that corrects the observation.")
    queued: int = Field(description="Entries that wait to be applied, including this one.")


class Unlabelled(AcceptedCorrection):
    id: int = Field(description="Of the image, which has no label any more.")


class Guess(BaseModel):
    name: str
    probability: float = Field(ge=0, le=1)


class Node(Guess):
    rank: str


class Foreseen(Guess):
    right: bool = Field(description="Whether it is the class of the label.")


class Prediction(BaseModel):
    path: list[Node] = Field(description="The most probable path of the tree, coarsest first.")
    answer: Node | None = Field(description="The deepest node of the path, above `new`, with at least the confidence.")
    new: str | None = Field(description="The coarsest rank at which the image shows none of the known classes.")
    only: list[str] = Field(description="Ranks at which one class alone is known: there was nothing to choose from.")
    familiar: dict[str, float] = Field(
        description="Share of recent images of known classes that looked at least as strange, by rank."
    )
    alternatives: dict[str, list[Guess]] = Field(
        default={}, description="With decode=path: the next best classes of each rank, `top` with that on the path."
    )
    ranks: dict[str, list[Guess]] = Field(
        default={}, description="With decode=level: the `top` best classes of each rank, with ranks as independent."
    )


class Predictions(BaseModel):
    predictions: list[Prediction]
    unknown: list[str] = Field(default=[], description="Names of `among` that are not known.")


class Pooled(BaseModel):
    accepted: list[int] = Field(description="Id of each image, in the order of the request.")
    pool: int = Field(description="Images in the pool, including these.")


class Example(BaseModel):
    number: int
    name: str
    rank: str
    thumbnail: str


class Examples(BaseModel):
    by: Literal["similarity", "time"] = Field(description="Order. Networks that are trained have the newest first.")
    compared: int = Field(description="Newest observations of the class that were compared, at most 64.")
    examples: list[Example]


class Suggestion(BaseModel):
    id: int
    thumbnail: str = Field(description="Address of a small picture.")
    rank: str = Field(description="Rank at which a label would teach most. Another rank is accepted, too.")
    guess: Guess | None = Field(description="The most probable class of that rank; null if none is known.")
    path: list[Node] = Field(description="The most probable path, coarsest first; empty if nothing is learned.")
    score: float = Field(description="Doubted images like it, that nothing else covers. The list is sorted by it.")
    uncertainty: float = Field(ge=0, le=1, description="Probability that the path is wrong.")
    novelty: float = Field(ge=0, le=1, description="1 - similarity to the nearest image that was learned.")


class Suggestions(BaseModel):
    suggestions: list[Suggestion] = Field(description="Best first; fewer than asked for if the pool has fewer.")
    considered: int = Field(description="Images that were compared. Features of the others are still computed.")
    pool: int = Field(description="Images in the pool.")


class Labelled(BaseModel):
    accepted: int = Field(description="Entry number of the observation.")
    queued: int = Field(description="Entries that wait to be applied, including this one.")


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
    """Of the model."""

    learned: int
    refused: int
    deleted: int = Field(description="Of the learned ones.")
    relabelled: int
    ranks: dict[str, RankMetrics]
    history: list[dict[str, Any]]
    classes: dict[str, int]


class LearningMetrics(Metrics):
    accepted: int
    queued: int
    per_second: float
    waiting: float = Field(description="Seconds since learning waits for memory; 0 if it does not.")
    pool: int = Field(description="Images without a label.")


class Freshness(BaseModel):
    """How far a replica is behind the service that it follows."""

    staleness: float = Field(description="Seconds since the checkpoint that predicts was written.")
    behind: int | None = Field(description="Entries that the writer has accepted since; null if it is not known.")
    checked: float = Field(description="Seconds since the replica last found out which checkpoint is the newest.")


class Following(Freshness):
    follows: str = Field(description="The folder or the address.")
    writer: str | None = Field(description="Address of the service that takes writes.")
    checkpoint: str = Field(description="Name of the checkpoint that predicts: a serial number and a hash.")
    problem: str | None = Field(description="Why the newest checkpoint is not there.")


class ReplicaMetrics(Metrics):
    replica: Following


class ReplicaHealth(Freshness):
    status: Literal["ok", "stale"] = Field(description="`stale`: it predicts, but gets no new checkpoints.")
    learned: int


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
    observer: str | None = None
    was: Class | None = Field(default=None, description="Its first label, about which `predicted` is, if corrected.")


class EntryState(BaseModel):
    number: int
    kind: str
    state: Literal["queued", "done", "refused"]
    reason: str | None = Field(description="Why it was refused.")
    of: int | None = Field(default=None, description="The observation that a correction is about.")
    erased: bool | None = Field(default=None, description="Whether the image of a deleted observation is off the disk.")


class Health(BaseModel):
    status: Literal["ok", "waiting", "failed"] = Field(
        description="`waiting`: memory is short, so what is accepted is learned later."
    )
    queued: int
    learned: int
