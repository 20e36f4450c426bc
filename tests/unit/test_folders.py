"""Patterns of what is left out of a folder, as in a .gitignore."""

from __future__ import annotations

import pytest

from mray._runtime.folders import excluder


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
