"""Tidy tables in CSV files: one row an observation, all of it text, so that what was read equals what was written."""

import csv
import fcntl
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from efmdp.entities import UserError
from efmdp.runs import clear_errors, replace_file

Row = dict[str, str]


def read_table(path: Path | None, fields: Sequence[str]) -> list[Row]:
    """The rows of a table with those columns; none if it is not there yet."""
    if path is None or not path.exists():
        return []
    try:
        with path.open(newline="") as file:
            header, *rows = csv.reader(file)
    except (ValueError, csv.Error, IsADirectoryError):  # empty, or no text
        header, rows = [], []
    if header != list(fields) or any(len(row) != len(header) for row in rows):
        mend = "restore it, move it away, or choose another --out"
        raise UserError(f"{path} holds something else, not a table of these columns: {mend}")
    return [dict(zip(header, row, strict=True)) for row in rows]


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Replace the table by these rows; it is never half there."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path.parent, path.name, text.getvalue().encode())


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Wait for other processes that change a table in the same folder, and keep them waiting."""
    with clear_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = (path.parent / ".lock").open("w")  # network file systems lock no folders
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def grouped(rows: Sequence[Row], *names: str) -> dict[tuple[str, ...], list[Row]]:
    """The rows by what they have in the columns of those names, in order of appearance."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups
