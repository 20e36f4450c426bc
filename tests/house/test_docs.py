"""``mray docs``: the list, a page on a terminal and through a pipe, and all pages in a browser."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mray.cli import manual
from mray.cli.commands import docs
from tests.house.chromium import PROGRAM, Chromium

NAMES = [page.name for page in manual.pages()]


def test_the_list_has_a_line_for_each_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main([]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in lines] == NAMES
    assert all(len(line) <= 80 for line in lines)


def test_a_pipe_gets_the_page_as_it_is_written_without_comments(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["settings"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# Settings\n")
    assert "| `MRAY_TMPDIR`, `RAY_TMPDIR` |" in text
    assert "<!--" not in text
    assert "\x1b" not in text


def test_a_page_goes_through_the_pager_of_a_terminal() -> None:
    parent, child = pty.openpty()
    environ = {**os.environ, "PAGER": "sed s/^/paged:/", "TERM": "xterm"}
    command = [sys.executable, "-m", "mray", "docs", "objects"]
    with subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environ) as process:
        os.close(child)
        text = b""
        try:
            while piece := os.read(parent, 1 << 16):
                text += piece
        except OSError:  # nobody holds the other end any more
            pass
    os.close(parent)
    assert process.returncode == 0, text
    assert b"paged:" in text
    assert b"Share an array" in text


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("grahps", "graphs"), ("spilling", "objects"), ("graph", "graphs"), ("ctrl-c", "tasks"), ("notebook", "start"),
        ("jupyter", "start"), ("windows", "start"), ("quiet", "observe"), ("verbose", "observe"), ("colab", "start"),
        ("Kubernetes", "recipes"), ("stuck", "graphs"),
    ],
)  # fmt: skip
def test_the_nearest_pages_are_named_for_an_unknown_one(word: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main([word]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert meant in printed.err.partition("nearest are ")[2].strip().split(", ")


def test_a_word_of_no_page_is_answered_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["qwertyuiop"]) == 1
    assert "mray docs lists them" in capsys.readouterr().err


def test_words_of_the_search_mean_words_that_the_manual_has() -> None:
    text = " ".join(page.text for page in manual.pages()).lower()
    assert manual.meanings()["colab"] == ("notebook",)
    assert not [same for found in manual.meanings().values() for same in found if same not in text]


# --------------------------------------------------------------------------------------------- browser
@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("markdown_it")
    path = tmp_path_factory.mktemp("manual") / "manual.html"
    assert docs.main(["--web", "--output", str(path)]) == 0
    return path


def test_the_document_needs_nothing_else_and_its_links_lead_somewhere(document: Path) -> None:
    text = document.read_text("utf-8")
    places = re.findall(r'\bid="([^"]+)"', text)
    assert len(places) == len(set(places))
    assert set(NAMES) <= set(places)
    targets = re.findall(r'<a [^>]*href="([^"]+)"', text)
    assert not [target for target in targets if not target.startswith("https://") and target.removeprefix("#") not in places]
    assert not re.findall(r"<link\b|<img\b|<script [^>]*src|@import|url\(", text)
    assert "&lt;!--" not in text


def test_without_markdown_it_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    assert docs.main(["--web"]) == 4
    assert "markdown-it-py" in capsys.readouterr().err


@pytest.mark.parametrize("found", [True, False], ids=["browser", "no browser"])
def test_the_document_is_opened_at_the_page(
    found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("markdown_it")
    opened: list[str] = []
    monkeypatch.setenv("MRAY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or found)
    assert docs.main(["graphs", "--web"]) == (0 if found else 1)
    assert opened == [f"{(tmp_path / 'manual.html').as_uri()}#graphs"]
    assert (tmp_path / "manual.html").stat().st_size > 100_000
    assert opened[0] in "".join(capsys.readouterr())


def test_an_output_without_web_is_a_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["graphs", "--output", "x.html"]) == 2
    assert "--web" in capsys.readouterr().err


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


in_a_browser = pytest.mark.skipif(PROGRAM is None, reason="needs the program chromium, which is not installed here")
SIZES = {"wide": (1280, 900), "narrow": (400, 800)}


def shown(browser: Chromium, document: Path, where: str = "", size: str = "wide", scheme: str = "light") -> None:
    browser.screen(*SIZES[size], scheme)
    browser.load("about:blank")
    browser.load(document.as_uri() + where)


def visible(browser: Chromium, selector: str) -> Any:
    return browser.value(f"getComputedStyle(document.querySelector({selector!r})).display !== 'none'")


@in_a_browser
def test_in_a_browser_the_search_finds_sections_and_leads_to_them(browser: Chromium, document: Path) -> None:
    shown(browser, document)
    browser.value("(search.value = 'peer  ACCESS', search.dispatchEvent(new Event('input')))")
    assert not visible(browser, "#pages")
    assert browser.value("document.querySelector('#results p').textContent").endswith("sections")
    first = browser.value("document.querySelector('#results a').textContent")
    assert first.startswith("GPUs")
    assert browser.value("document.querySelectorAll('#results mark').length") >= 2
    browser.value("document.querySelector('#results a').click()")
    assert visible(browser, "#pages")
    assert browser.value("location.hash").startswith("#gpus")
    assert 60 <= browser.value("document.getElementById(location.hash.slice(1)).getBoundingClientRect().top") < 200


@in_a_browser
@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("jupyter", "Getting started"), ("windows", "Getting started"), ("macos", "Getting started"), ("quiet", "Seeing what runs"),
        ("verbose", "Seeing what runs"), ("colab", "Getting started"), ("run kubernetes", "Recipes"),
    ],
)  # fmt: skip
def test_in_a_browser_the_search_finds_what_the_words_of_new_users_mean(browser: Chromium, document: Path, words: str, page: str) -> None:
    shown(browser, document, f"?q={words.replace(' ', '+')}")
    found = browser.value("[...document.querySelectorAll('#results b')].slice(0, 3).map((each) => each.textContent)")
    assert [title for title in found if title.startswith(page)], found
    assert browser.value("document.querySelectorAll('#results a:first-of-type mark').length") >= 1


@in_a_browser
@pytest.mark.parametrize("clipboard", [True, False], ids=["clipboard", "no clipboard"])
def test_in_a_browser_code_is_copied_as_it_is_written(browser: Chromium, document: Path, clipboard: bool) -> None:
    shown(browser, document, "#first")
    copied = "window.copied" if clipboard else "getSelection().toString()"
    given = "{ writeText: async (text) => { window.copied = text; } }" if clipboard else "undefined"
    browser.value(f"Object.defineProperty(navigator, 'clipboard', {{ value: {given} }})")
    pre = "document.querySelector('#first').parentNode.querySelector('pre')"
    browser.value(f"{pre}.parentNode.querySelector('.copy').click()")
    browser.value("new Promise((done) => setTimeout(done, 0))")
    assert browser.value(f"{pre}.parentNode.querySelector('.copy').textContent") == "copied"
    code = browser.value(copied)
    assert code.startswith("import os") and "copy" not in code
    assert code.rstrip() in (manual.find("first") or pytest.fail("no page")).text
    assert browser.value(
        "[...document.querySelectorAll('#pages pre')].every((each) => each.parentNode.querySelectorAll('.copy').length == 1)"
    )


@in_a_browser
def test_in_a_browser_an_address_may_search_and_may_find_nothing(browser: Chromium, document: Path) -> None:
    shown(browser, document, "?q=doorbell")
    assert browser.value("document.querySelectorAll('#results a').length") >= 1
    shown(browser, document, "?q=qwertyuiop")
    assert browser.value("results.textContent") == "Nothing found."


@in_a_browser
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("where", ["", "?q=timeout"], ids=["pages", "results"])
def test_in_a_browser_the_page_fits_the_screen_and_can_be_read(
    browser: Chromium, document: Path, size: str, scheme: str, where: str
) -> None:
    shown(browser, document, where, size, scheme)
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    assert visible(browser, "#menu") == (size == "narrow")
    assert visible(browser, "#contents") == (size == "wide")
    # Text and ground as luminances: far apart, and which is the lighter one.
    colours = "['color', 'backgroundColor'].map((name) => getComputedStyle(document.body)[name].match(/[0-9]+/g).map(Number))"
    text, ground = ((2 * red + 7 * green + blue) / 2550 for red, green, blue in browser.value(colours))
    assert (text > ground) == (scheme == "dark")
    assert abs(text - ground) > 0.7


@in_a_browser
def test_in_a_browser_the_contents_of_a_narrow_screen_open_and_close(browser: Chromium, document: Path) -> None:
    shown(browser, document, "#gpus", "narrow")
    browser.value("menu.click()")
    assert visible(browser, "#contents")
    frame = browser.value("(({ top, bottom }) => [top, bottom])(contents.getBoundingClientRect())")
    assert 0 < frame[0] < frame[1] <= SIZES["narrow"][1]  # on the screen, however far the page was scrolled
    browser.value("""document.querySelector("#contents a[href='#tests']").click()""")
    assert not visible(browser, "#contents")
    assert browser.value("location.hash") == "#tests"


@in_a_browser
def test_in_a_browser_the_contents_show_the_section_that_is_read(browser: Chromium, document: Path) -> None:
    shown(browser, document, "#graphs--draw-a-graph")
    browser.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert browser.value("document.querySelector('#contents .here').textContent") == "Draw a graph"
