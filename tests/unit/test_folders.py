"""Folders of a runtime environment: patterns of what is left out, and by what changes are known."""

from __future__ import annotations

import os

import pytest

from mray._runtime.environment.folders import excluder, stamp_of


@pytest.mark.parametrize(
    ("patterns", "path", "excluded"),
    [
        (["*.bin"], "a.bin", True),
        (["*.bin"], "deep/er/a.bin", True),
        (["*.bin"], "a.bin.txt", False),
        (["*.bin", "!keep.bin"], "x/keep.bin", False),
        (["!keep.bin", "*.bin"], "x/keep.bin", True),
        (["/build"], "build", True),
        (["/build"], "x/build", False),
        (["a/b"], "a/b", True),
        (["a/b"], "x/a/b", False),
        (["a/*.txt"], "a/b/c.txt", False),
        (["a/**/c.txt"], "a/c.txt", True),
        (["a/**/c.txt"], "a/b/b/c.txt", True),
        (["**/logs"], "x/y/logs", True),
        (["logs/**"], "logs/a/b", True),
        (["logs/**"], "logs", False),
        (["a?c", "x[12]", "y[!1]"], "abc", True),
        (["a?c"], "a/c", False),
        (["x[12]"], "x2", True),
        (["x[12]"], "x3", False),
        (["y[!1]"], "y2", True),
        (["y[!1]"], "y1", False),
        (["a.c"], "abc", False),
        (["# comment", ""], "# comment", False),
    ],
)
def test_the_last_pattern_that_fits_decides(patterns, path, excluded):
    assert excluder(patterns)(path, False) is excluded


def test_a_slash_at_the_end_means_folders():
    is_excluded = excluder(["build/"])
    assert is_excluded("x/build", True)
    assert not is_excluded("x/build", False)


def test_a_folder_has_another_stamp_when_something_in_it_was_changed_added_or_removed(tmp_path):
    (tmp_path / "package").mkdir()
    file = tmp_path / "package" / "module.py"
    file.write_text("1")
    seen = [stamp_of(str(tmp_path))]
    file.write_text("22")
    seen.append(stamp_of(str(tmp_path)))
    (tmp_path / "empty").touch()
    seen.append(stamp_of(str(tmp_path)))
    assert len(set(map(repr, seen))) == 3
    (tmp_path / "empty").unlink()
    assert stamp_of(str(tmp_path)) == seen[1]


@pytest.mark.parametrize("of", ["file", "folder"])
def test_a_file_of_the_same_size_and_time_in_the_place_of_another_has_another_stamp(tmp_path, of):
    file = tmp_path / "module.py"
    path = str(file if of == "file" else tmp_path)
    file.write_text("1")
    info, before = file.stat(), stamp_of(path)
    (tmp_path / "new").write_text("2")
    (tmp_path / "new").replace(file)
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (info.st_size, info.st_mtime_ns)
    assert stamp_of(path) != before


def test_what_is_left_out_does_not_count(tmp_path):
    (tmp_path / "module.py").touch()
    before = stamp_of(str(tmp_path), ["/build/", "*.log"])
    for folder in ("build", ".git", "__pycache__"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").touch()
    (tmp_path / "a.log").touch()
    assert stamp_of(str(tmp_path), ["/build/", "*.log"]) == before


def test_a_link_that_leads_nowhere_has_a_stamp(tmp_path):
    os.symlink("nobody@nowhere", tmp_path / ".#module.py")
    assert [name for name, _state in stamp_of(str(tmp_path))[1]] == [".#module.py"]
