"""Corrections in the journal: what an observation is by now, and the removal of deleted ones from disk.

A correction is an entry that deletes or relabels an earlier observation, its target. The entry of the observation stays
as it was accepted, since a replay needs it. What the observation is at some entry follows from the corrections before.
"""

from __future__ import annotations

from typing import NamedTuple

from dhocl.core.errors import InputError
from dhocl.service.journal import Entry, Journal
from dhocl.service.journal_format import DELETION, PENDING


class Standing(NamedTuple):
    """An observation, by the corrections before some entry."""

    name: str
    rank: str
    learned: bool  # False: it was refused, so no model has it


def standing(journal: Journal, correction: Entry) -> Standing:
    """The observation that a correction is about. InputError if it was deleted or its entry is no longer stored."""
    number = correction.target or 0
    observation = journal.entry(number)
    if observation is None:
        raise InputError(f"observation {number} is no longer stored")
    last = journal.entries(
        "WHERE target = ? AND number < ? AND state = 'done' ORDER BY number DESC LIMIT 1", number, correction.number
    )
    if last and last[0].content["kind"] == "delete":
        raise InputError(f"observation {number} was deleted by entry {last[0].number}")
    label = last[0].content if last else observation.content
    return Standing(label["name"], label["rank"], observation.state != "refused")


def corrected(journal: Journal, observation: Entry) -> Entry:
    """An observation with the label that it has by now; if that is not the first, with the first as `was`."""
    last = journal.entries(
        "WHERE target = ? AND state = 'done' AND json_extract(content, '$.kind') = 'relabel' "
        "ORDER BY number DESC LIMIT 1",
        observation.number,
    )
    if not last:
        return observation
    now, first = ({key: entry.content[key] for key in ("name", "rank")} for entry in (last[0], observation))
    return observation._replace(content=observation.content | now | {"was": first})


def deletion(journal: Journal, number: int) -> int | None:
    """The entry that deletes an observation, applied or still queued."""
    return journal.one(f"SELECT number FROM entries WHERE target = ? AND {PENDING} LIMIT 1", number)  # type: ignore[no-any-return]


def has_image(journal: Journal, number: int) -> bool:
    return bool(journal.one("SELECT EXISTS (SELECT 1 FROM images WHERE number = ?)", number))


def batch(journal: Journal, observer: str | None, first: int, last: int) -> list[int]:
    """Observations from `first` to `last`, of one observer or of all, that can be deleted, newest first."""
    query = f"""
        WHERE kind = 'observation' AND number BETWEEN ? AND ?
          AND (? = '' OR json_extract(content, '$.observer') = ?)
          AND number IN (SELECT number FROM images) AND number NOT IN (SELECT target FROM entries WHERE {PENDING})
        ORDER BY number DESC
    """
    return [entry.number for entry in journal.entries(query, first, last, observer or "", observer or "")]


def erasing(journal: Journal) -> bool:
    """Whether the journal still has the image of a deleted observation."""
    query = f"SELECT EXISTS (SELECT 1 FROM entries JOIN images ON images.number = target WHERE {DELETION})"
    return bool(journal.one(query))


def erase(journal: Journal, covered: int) -> int:
    """Overwrite the images of observations that entries up to `covered` deleted, and the names of their observers.

    Returns the number of images.
    """
    targets = f"(SELECT target FROM entries WHERE number <= ? AND {DELETION})"
    journal.log_is_clear = False
    with journal.transaction() as db:
        count = db.execute(f"DELETE FROM images WHERE number IN {targets}", (covered,)).rowcount
        db.execute(
            f"UPDATE entries SET content = json_remove(content, '$.observer') WHERE number IN {targets}", (covered,)
        )
    return int(count)
