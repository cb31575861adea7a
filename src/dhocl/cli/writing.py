"""Write predictions as text, CSV, JSON or JSON lines, each as soon as it is there."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dhocl.core.errors import InputError

if TYPE_CHECKING:
    from dhocl.classifier import Guess, Prediction
    from dhocl.classifier.files import Predicted
    from dhocl.core.decode import Decoding

Write = Callable[["Predicted"], None]


@contextmanager
def open_writer(
    out: Path | None, levels: Sequence[str], confidence: float, top: int, decode: Decoding
) -> Iterator[Write]:
    """Yields a function that writes a prediction to `out`; None for text on the screen."""
    if out is None:
        yield lambda found: print(f"{found.path}: {_told(found, confidence)}")
        return
    if out.suffix.lower() not in (".csv", ".json", ".jsonl"):
        raise InputError(f"`out` {out}: the name must end in .csv, .json or .jsonl")
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"`out` {out}: {'is a folder' if out.is_dir() else f'there is no folder {out.parent}'}")
    with out.open("w", encoding="utf-8", newline="") as file:
        if out.suffix.lower() == ".csv":
            yield _table(file, levels, confidence, top)
        elif out.suffix.lower() == ".jsonl":
            yield lambda found: print(_line(found, confidence, decode), file=file)
        else:
            before = iter(["[\n"])
            try:
                yield lambda found: print(next(before, ",\n") + _line(found, confidence, decode), end="", file=file)
            finally:
                file.write(next(before, "\n") + "]\n")


def _told(found: Predicted, confidence: float) -> str:
    return sentence(found.prediction, confidence) if found.prediction else "can not be read"


def sentence(prediction: Prediction, confidence: float) -> str:
    """The part of the path that is sure, and the first rank that is not, with its alternatives.

    >>> from dhocl import Guess, Prediction
    >>> path = {"family": Guess("Corvidae", 0.9), "genus": Guess("Corvus", 0.6)}
    >>> found = Prediction(path, path, {"genus": (Guess("Pica", 0.2),)})
    >>> sentence(found, 0.8), sentence(found, 0.5)
    ('Corvidae 0.90; genus unsure (Corvus 0.60, Pica 0.20)', 'Corvidae 0.90 > Corvus 0.60')
    >>> sentence(found._replace(new="genus"), 0.5)
    'Corvidae 0.90; new genus? (Corvus 0.60, Pica 0.20)'
    """
    if not prediction.is_coherent:
        return repr(prediction)
    sure = prediction.sure(confidence)
    told = [" > ".join(map(prediction.shown, sure))] if sure else []
    for level, guess in prediction.levels.items():
        if level == prediction.new or (level in prediction.path and level not in sure):
            guesses = [guess, *prediction.alternatives.get(level, ())]
            what = f"new {level}?" if level == prediction.new else f"{level} unsure"
            told.append(f"{what} ({', '.join(map(str, guesses))})")
            break
    return "; ".join(told)


def entry(found: Predicted, confidence: float, decode: Decoding) -> dict[str, Any]:
    """A prediction as JSON."""
    if found.prediction is None:
        return {"image": str(found.path), "problem": found.problem}
    return {"image": str(found.path), **found.prediction.to_json(confidence, decode)}


def _line(found: Predicted, confidence: float, decode: Decoding) -> str:
    return json.dumps(entry(found, confidence, decode), ensure_ascii=False)


def _table(file: IO[str], levels: Sequence[str], confidence: float, top: int) -> Write:
    """Columns: the image, the answer, a note, and for each rank its class and alternatives with their probabilities."""
    writer = csv.writer(file)
    numbers = ["", *(f"_{place}" for place in range(2, top + 1))]
    ranked = [f"{level}{number}{end}" for level in levels for number in numbers for end in ("", "_probability")]
    writer.writerow(["path", "answer", "rank", "probability", "note", *ranked, "problem"])

    def write(found: Predicted) -> None:
        if found.prediction is None:
            writer.writerow([found.path, "", "", "", "", *[""] * len(ranked), found.problem])
            return
        prediction = found.prediction
        rank, answer = next(reversed(prediction.sure(confidence).items()), ("", None))
        cells = [str(found.path), *((answer.name, rank, _number(answer)) if answer else ("", "", ""))]
        cells.append(prediction.note)
        for level in levels:
            guesses = [prediction.levels[level], *prediction.alternatives[level]] if level in prediction.levels else []
            cells += [text for guess in guesses for text in (guess.name, _number(guess))]
            cells += [""] * (2 * (top - len(guesses)))
        writer.writerow([*cells, ""])

    return write


def _number(guess: Guess) -> str:
    return f"{guess.probability:.4f}"
