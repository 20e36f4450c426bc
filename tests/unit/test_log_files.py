"""The last lines of log files, found from their ends, however blocks and parts cut them."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mray._observe import log_files
from mray._observe.log_files import find_last_lines, folded, lines_of, process_of, tail_of

OUT, ERR = "worker-ab-01000000-41.out", "worker-cd-01000000-42.err"


def texts(folder: Path, files: list[str], parts: list[list[Any]], count: int = -1, **options: Any) -> list[str]:
    return [line.text.decode() for line in find_last_lines(str(folder), files, parts, count, **options).lines]


def lines_in(data: bytes) -> list[bytes]:
    """The lines of a file by the plain way; without an end of which nothing is seen."""
    lines = [folded(line) for line in data.split(b"\n")]
    return lines if lines[-1] else lines[:-1]


@pytest.mark.parametrize("seed", range(300))
def test_the_last_lines_are_those_of_the_whole_file_however_it_is_cut(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(log_files, "_BLOCK", chance.choice([1, 2, 3, 5, 16, 64]))
    data = b"".join(chance.choice([b"a", b"b", b"\n", b"\r", b"xyz", b"line\n"]) for _ in range(chance.randrange(50)))
    path = tmp_path / OUT
    path.write_bytes(data)
    wanted = lines_in(data)
    for count in (0, 1, 3, 1000):
        last = wanted[max(0, len(wanted) - count) :]
        assert [line.text for line in find_last_lines(str(tmp_path), [OUT], [], count).lines] == last
        ended = b"".join(line + b"\n" for line in last)
        found = b"".join(tail_of(str(path), count))
        assert found in (ended, ended[:-1])
        assert found.endswith(b"\n") == data.endswith(b"\n") or not last or data.endswith(b"\r")
    cuts = sorted(chance.sample(range(len(data) + 1), min(len(data), 4)))
    parts = [[float(at), OUT, "f", begin, end, b"\n" in data[begin:end]] for at, (begin, end) in enumerate(pairwise(cuts))]
    assert [line.text for line in find_last_lines(str(tmp_path), [OUT], parts, -1).lines] == wanted
    most = chance.randrange(60)
    look = find_last_lines(str(tmp_path), [OUT], parts, -1, most)
    assert look.read <= most
    assert look.is_cut or [line.text for line in look.lines] == wanted


def test_a_look_at_a_log_of_200_megabytes_reads_no_more_than_was_allowed(tmp_path: Path) -> None:
    with (tmp_path / OUT).open("wb") as file:
        file.truncate(200 << 20)
        file.seek(0, 2)
        file.write(b"".join(b"\nline %d" % number for number in range(100_000)))
    look = find_last_lines(str(tmp_path), [OUT], [], 2000, 200_000)
    assert (len(look.lines), look.lines[-1].text, look.is_cut) == (2000, b"line 99999", True)
    assert look.read <= 200_000 < look.size


def test_a_progress_bar_of_40_megabytes_without_a_line_end_is_what_it_showed_last(tmp_path: Path) -> None:
    with (tmp_path / ERR).open("wb") as file:
        file.write(b"begin\n")
        for start in range(0, 400_000, 1000):
            file.write(b"".join(b"\r%6d/400000 [%s]" % (number, b"#" * 80) for number in range(start, start + 1000)))
    bar = f"399999/400000 [{'#' * 80}]"
    look = find_last_lines(str(tmp_path), [ERR], [], 2000, 200_000)
    assert ([line.text.decode() for line in look.lines], look.is_cut) == ([bar], True)
    assert texts(tmp_path, [ERR], []) == ["begin", bar]
    assert [line.decode() for line in tail_of(str(tmp_path / ERR), 2)] == ["begin\n", bar]
    assert sum(map(len, lines_of(str(tmp_path / ERR)))) == (tmp_path / ERR).stat().st_size  # all lines are as they were written


def test_a_progress_bar_costs_a_look_at_all_files_only_its_last_state(tmp_path: Path) -> None:
    states = b"".join(b"\r%7d [%s]" % (number, b"#" * 80) for number in range(100_000))
    (tmp_path / ERR).write_bytes(b"begin\n" + states)
    (tmp_path / OUT).write_bytes(b"before\nafter\n")
    size = len(states)
    parts = [[1.0, ERR, "bar", 0, 6, True], [2.0, OUT, "f", 0, 7, True]]
    parts += [[3.0, ERR, "bar", 6, 6 + size // 2, False], [4.0, OUT, "f", 7, 13, True], [5.0, ERR, "bar", 6 + size // 2, 6 + size, False]]
    look = find_last_lines(str(tmp_path), [OUT, ERR], parts, 2000, 200_000)
    assert [line.text for line in look.lines] == [b"begin", b"before", b"after", b"  99999 [" + b"#" * 80 + b"]"]
    assert (look.is_cut, look.read < 100_000) == (False, True)


def test_a_bar_that_ended_its_line_and_lines_of_windows_are_whole() -> None:
    assert [folded(line) for line in (b"50%\r100%\r", b"plain\r", b"", b"\r", b"a\r\r")] == [b"100%", b"plain", b"", b"", b"a"]


def test_lines_of_several_files_come_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    (tmp_path / OUT).write_bytes(b"old\none\nhalf and half\nlast, unfinished")
    (tmp_path / ERR).write_bytes(b"two\n")
    parts = [
        *([5.0, OUT, "f", 4, 8, True], [6.0, OUT, "f", 8, 12, False], [7.0, ERR, "g", 0, 4, True]),
        *([8.0, OUT, "f", 12, 22, True], [9.0, OUT, "h", 22, 30, False]),
    ]
    look = find_last_lines(str(tmp_path), [OUT, ERR], parts, -1)
    said = [(line.time, line.printer(), line.text.decode()) for line in look.lines]
    assert said == [
        (None, "pid=41", "old"),
        (5.0, "f pid=41", "one"),
        (7.0, "g pid=42 err", "two"),
        (8.0, "f pid=41", "half and half"),
        (9.0, "h pid=41", "last, unfinished"),
    ]
    assert (look.size, look.is_cut) == ((tmp_path / OUT).stat().st_size + 4, False)
    assert texts(tmp_path, [OUT, ERR], parts, 2, is_wanted=lambda line: line.startswith(b"o")) == ["old", "one"]
    assert texts(tmp_path, [ERR], parts) == ["two"]


def test_a_file_of_no_worker_comes_at_its_time(tmp_path: Path) -> None:
    (tmp_path / OUT).write_bytes(b"one\n")
    (tmp_path / "node.log").write_bytes(b"a warning\n")
    (tmp_path / "empty.log").touch()
    later = (tmp_path / "node.log").stat().st_mtime + 1
    files = [OUT, "empty.log", "node.log"]
    assert texts(tmp_path, files, [[later, OUT, "f", 0, 4, True]]) == ["a warning", "one"]
    assert texts(tmp_path, files, [[later - 2, OUT, "f", 0, 4, True]]) == ["one", "a warning"]


def test_a_process_is_known_by_the_name_of_its_file() -> None:
    assert [process_of(file) for file in (OUT, ERR, "node.log", "worker-x.out")] == [(41, "out"), (42, "err"), (0, ""), (0, "")]
