"""Tables in files: what is read is what was written, and processes that write one wait for each other."""

import threading
from pathlib import Path

import pytest

from efmdp.entities import UserError
from efmdp.tables import grouped, only_writer, read_table, write_table

ROWS = [{"task": "1-Push", "seed": "0"}, {"task": "2-Push", "seed": ""}, {"task": "1-Push", "seed": "a,\nb"}]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "table.csv"
    assert read_table(path, ("task", "seed")) == read_table(None, ("task",)) == []
    write_table(path, ROWS)
    assert read_table(path, ("task", "seed")) == ROWS
    with pytest.raises(UserError, match="not a table of these columns"):
        read_table(path, ("task",))


@pytest.mark.parametrize(
    "content", [b"", b"a letter\n", b"task\n", b"\xff\xfe\x00", b"task,seed\n1-Push\n", b"task,seed\n1-Push,0,1\n"]
)
def test_what_is_no_such_table_is_refused_and_kept(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match="holds something else, not a table"):
        read_table(path, ("task", "seed"))
    assert path.read_bytes() == content


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds something else, not a table"):
        read_table(tmp_path, ("task", "seed"))


def test_where_nothing_can_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(UserError, match=r"cannot write to .*file: .*choose another --out"),
        only_writer(tmp_path / "file" / "table.csv"),
    ):
        pass


def test_groups_are_in_order_of_appearance() -> None:
    assert grouped(ROWS, "task") == {("1-Push",): [ROWS[0], ROWS[2]], ("2-Push",): [ROWS[1]]}


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    """Every one adds a row to what it read; without waiting most would be lost."""
    path = tmp_path / "new" / "table.csv"

    def add(who: str) -> None:
        for number in range(20):
            with only_writer(path):
                write_table(path, [*read_table(path, ("who", "number")), {"who": who, "number": str(number)}])

    threads = [threading.Thread(target=add, args=(who,)) for who in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_table(path, ("who", "number"))) == 60
    assert sorted(file.name for file in path.parent.iterdir()) == [".lock", "table.csv"]
