"""The HTML page: nothing is loaded, nothing of a model acts, it stays small, and a browser draws it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
import zlib
from array import array
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import synthetic
from browser import Browser, chromium
from command import tokaudit
from models import base, build
from reports import ACTIVE, BROKEN, CLEAN, HOSTILE, REPORTS

from tokaudit.audit import run
from tokaudit.contract import Options, RowClass, Values
from tokaudit.load import load
from tokaudit.report import Report, Summary, Tokens
from tokaudit.reporters import View, html
from tokaudit.reporters._html.packed import MOST_IDS
from tokaudit.text import shown

TINYLM = Path(__file__).resolve().parents[1] / "fixtures/tinylm"
MARKUP = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "<img src=x onerror=alert(1)>",
    "\"' onload='alert(1)",
    "</style></title>&lt;&#60;",
    "\u2028\u2029\u202e\u2066\x00\x1b[31m\ud800",
    "javascript:alert(1)",
)


class Page(HTMLParser):
    """A page taken apart: its tags, and the texts within scripts, styles and everything else."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.comments: list[str] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "": []}
        self._within = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "wbr":  # within a word
            self.texts[""].append(" ")
        self._within = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        self.texts[self._within].append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    @property
    def words(self) -> str:
        return " ".join("".join(self.texts[""]).split())

    def having(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def packed(self) -> list[str]:
        return [text for text in self.texts["script"] if re.fullmatch("[A-Za-z0-9+/]+=*", text)]


def page_of(*reports: Report) -> Page:
    return Page(html.render(list(reports), View()))


def unpacked(text: str) -> tuple[dict[str, Any], list[bytes]]:
    """The header and the columns, as the script of the page takes them apart."""
    line, _, rest = zlib.decompress(base64.b64decode(text)).partition(b"\n")
    header = json.loads(line)
    columns = []
    for length in header["lengths"]:
        columns.append(rest[:length])
        rest = rest[length:]
    assert not rest
    return header, columns


def with_tokens(report: Report, *contents: str) -> Report:
    tokens = Tokens(dict(enumerate(contents)), frozenset([0]), frozenset([1]), frozenset(), {0: (HOSTILE,)})
    facts = dataclasses.replace(report.summary, tokens=tokens, required_rows=len(contents), input_rows=512)
    return dataclasses.replace(report, summary=facts)


@pytest.fixture(scope="module")
def large() -> Report:
    return synthetic.report()


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_refers_to_nothing_outside_itself(name: str) -> None:
    page = page_of(REPORTS[name])
    for tag, attributes in page.tags:
        assert tag not in ("iframe", "img", "object", "embed", "base", "form", "audio", "video")
        assert not {"src", "srcset", "style", "action", "background"} & attributes.keys()
        assert attributes.get("href", "#") in ("data:,", "#")
    style = "".join(page.texts["style"])
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import)\s*\(", "".join(page.texts["script"]))


def test_the_policy_allows_one_script_and_one_style_by_their_hashes_and_no_request() -> None:
    page = page_of(BROKEN)
    metas = [meta for meta in page.having("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    policy = dict(part.split(" ", 1) for part in str(metas[0]["content"]).split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    executed = [text for text in page.texts["script"] if text not in page.packed]
    assert len(executed) == len(page.texts["style"]) == 1
    for kind, source in (("script-src", executed[0]), ("style-src", page.texts["style"][0])):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert policy[kind] == f"'sha256-{digest}'"
    assert page.tags.index(("meta", metas[0])) < page.tags.index(("style", {}))


def hostile(report: Report, text: str) -> Report:
    """The report with that text wherever one may come from a model."""
    finding = dataclasses.replace(
        BROKEN.findings[2],
        message=text,
        claims=tuple(dataclasses.replace(claim, says=text) for claim in BROKEN.findings[2].claims),
        why=text,
        fix=text,
    )
    facts = dataclasses.replace(report.summary, architecture=text, tokenizer_kind=text)
    return dataclasses.replace(report, target=text, findings=(finding,), summary=facts)


@pytest.mark.parametrize("text", MARKUP)
def test_no_text_of_a_model_becomes_markup(text: str) -> None:
    plain = page_of(with_tokens(hostile(BROKEN, "plain"), "a", "b"))
    page = page_of(with_tokens(hostile(BROKEN, text), text, "b"))

    def tags(page: Page) -> list[tuple[str, str]]:
        """What stands in quotes is set as code: the one element that a text may bring about."""
        return [(tag, ",".join(sorted(found))) for tag, found in page.tags if tag not in ("code", "wbr")]

    assert tags(page) == tags(plain)
    assert not page.comments
    assert page.source.isascii()
    assert not ACTIVE.search(page.source)
    assert page.words.count("alert") == 8 * text.count("alert")  # each place shows it as text


def test_texts_of_tokens_are_packed_as_every_report_shows_them() -> None:
    contents = (*MARKUP, "a\nb", '"\\', HOSTILE)
    page = page_of(with_tokens(CLEAN, *contents))
    header, columns = unpacked(page.packed[0])
    lines = columns[1].decode().split("\n")
    assert lines[: len(contents)] == [shown(content)[1:-1] for content in contents]
    assert len(lines) == header["span"] == 512
    assert not any(content in page.source for content in MARKUP)
    assert not ACTIVE.search(header["roles"]["0"][0])


def test_a_page_for_128_000_rows_of_two_tables_is_smaller_than_2_mb(large: Report) -> None:
    page = html.render([large], View())
    assert len(page) < 2_000_000
    header, columns = unpacked(Page(page).packed[0])
    assert [table["rows"] for table in header["tables"]] == [128_000, 128_000]
    assert len(columns) == 6


def test_norms_survive_the_packing_to_four_digits(large: Report) -> None:
    header, columns = unpacked(Page(html.render([large], View())).packed[0])
    assert large.summary.values is not None
    for table, values in enumerate(large.summary.values.tables):
        about, planes = header["tables"][table], columns[3 + 2 * table]
        levels = [high << 8 | low for high, low in zip(planes[:128_000], planes[128_000:], strict=True)]
        step = (about["high"] - about["low"]) / 65_533
        for level, norm in list(zip(levels, values.norms, strict=True))[::997]:
            assert 2.718281828459045 ** (about["low"] + level * step) == pytest.approx(norm, rel=1e-4)


def test_the_same_report_makes_the_same_page(large: Report) -> None:
    assert html.render([large], View()) == html.render([synthetic.report()], View())


def test_one_page_holds_several_models_below_a_table_that_leads_to_each() -> None:
    page = page_of(*REPORTS.values())
    links = [attributes["href"] for attributes in page.having("a")]
    assert links == [f"#model-{place}" for place in range(len(REPORTS))]
    assert [attributes["id"] for attributes in page.having("article")] == [str(link)[1:] for link in links]
    assert all(report.target in page.words for report in REPORTS.values())


def test_the_page_shows_verdict_facts_findings_claims_fixes_and_skipped_rules() -> None:
    words = page_of(BROKEN).words
    assert "\u2717 fail" in words
    for text in ("TA101", "token-id-out-of-range", "generation_config.json", "512 rows, so the largest"):
        assert text in words
    for text in ("tokaudit resize DIR OUT", "no file holds a chat template", "LlamaForCausalLM"):
        assert text in words


def test_without_deep_the_page_has_what_needs_no_rows_and_says_what_deep_adds() -> None:
    report = run(load(TINYLM, options=Options(tokens=True)))
    page = page_of(report)
    assert page.words.count("tokaudit check --deep") == 1
    classes = [attributes.get("class") for attributes in page.having("div")]
    assert "chart map" in classes
    assert "chart scatter" not in classes
    assert len(page.having("meter")) == 2  # the shares of the table and of everything else


def test_with_deep_the_page_has_a_picture_for_each_table_and_does_not_ask_for_more(large: Report) -> None:
    page = page_of(large)
    classes = [attributes.get("class") for attributes in page.having("div")]
    assert classes.count("chart norms") == classes.count("chart scatter") == 2
    assert "tokaudit check --deep" not in page.words
    neighbours = [button for button in page.having("button") if button.get("class") == "token"]
    assert len(neighbours) == 2 * 32 * 4


def test_an_id_of_any_size_neither_fills_the_page_nor_goes_unsaid() -> None:
    facts = dataclasses.replace(
        CLEAN.summary,
        required_rows=10**12,
        tokens=Tokens(
            {5: "a", 10**12 - 1: "far"}, frozenset([10**12 - 1]), frozenset(), frozenset(), {-1: ("x",)}
        ),
    )
    page = page_of(dataclasses.replace(CLEAN, summary=facts))
    assert len(page.source) < 200_000
    assert f"Only ids below {MOST_IDS:,} are drawn, of 1,000,000,000,000." in page.words


def test_a_report_on_nothing_is_a_page_all_the_same() -> None:
    page = page_of(dataclasses.replace(CLEAN, summary=Summary(), findings=(), checked=(), skipped=()))
    assert "no findings" in page.words
    assert not page.packed


def test_only_a_report_for_the_page_holds_every_token() -> None:
    assert run(load(TINYLM)).summary.tokens is None
    tokens = run(load(TINYLM, options=Options(tokens=True))).summary.tokens
    assert tokens is not None
    assert len(tokens.texts) == 500
    assert tokens.special >= {0, 1, 2, 3}


@pytest.mark.parametrize(
    "asked", [("--format", "html"), ("--output", "html={file}"), ("-q", "-o", "html={file}")]
)
def test_the_command_writes_the_page(asked: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    arguments = [argument.format(file=file) for argument in asked]
    result = tokaudit("check", TINYLM, *arguments, cwd=tmp_path)
    assert result.returncode == 0
    page = Page(file.read_text(encoding="utf-8") if "html={file}" in asked else result.stdout)
    _, columns = unpacked(page.packed[0])
    assert columns[1].decode().split("\n")[0] == "<pad>"


def test_several_models_are_one_page_with_the_tokens_of_each(tmp_path: Path) -> None:
    other = build(base("llama"), tmp_path / "other")
    page = Page(tokaudit("check", TINYLM, other, "--format", "html", cwd=tmp_path).stdout)
    texts = [unpacked(packed)[1][1].decode().split("\n") for packed in page.packed]
    assert [len(lines) for lines in texts] == [512, 320]
    assert all(any(lines) for lines in texts)


# In a browser


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = chromium()
    if executable is None:
        pytest.skip("no Chromium is installed: what the page does in a browser is not tested")
    with Browser(executable, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def browser(opened: Browser) -> Browser:
    """The one browser, without the memory of other tests."""
    opened.events.clear()
    return opened


def shown_in(browser: Browser, tmp_path: Path, *reports: Report, **media: Any) -> None:
    file = tmp_path / "page.html"
    file.write_text(html.render(list(reports), View()), encoding="ascii")
    browser.media(**{"width": 1100, **media})
    browser.open(file)
    browser.wait("document.querySelector('article[data-drawn]')")


def quiet(browser: Browser) -> bool:
    """Whether the page asked for nothing but itself and complained of nothing."""
    assert not browser.complaints()
    return [url.rpartition("/")[2] for url in browser.requests()] == ["page.html"]


def middle(browser: Browser, selector: str, across: float = 0.5, down: float = 0.5) -> tuple[float, float]:
    """A place within an element that is in view, in CSS pixels."""
    script = f"""(() => {{
        const found = document.querySelector({json.dumps(selector)});
        found.scrollIntoView({{ block: "center" }});
        const box = found.getBoundingClientRect();
        return [box.left + {across} * box.width, box.top + {down} * box.height];
    }})()"""
    x, y = browser.value(script)
    return x, y


def tip(browser: Browser) -> str:
    return str(browser.value("(t => t.hidden ? '' : t.innerText)(document.querySelector('.tip'))"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 390])
def test_it_is_drawn_without_complaints_or_requests_and_fits(
    browser: Browser, tmp_path: Path, large: Report, scheme: str, width: int
) -> None:
    shown_in(browser, tmp_path, large, width=width, scheme=scheme)
    assert browser.value("document.querySelectorAll('.chart canvas').length") == 5
    assert browser.value("document.documentElement.scrollWidth") <= width
    painted = """[...document.querySelectorAll('.chart canvas')].every(canvas => {
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(pixels.data.buffer)).size > 3;
    })"""
    assert browser.value(painted)
    assert quiet(browser)


def test_hovering_shows_the_token_under_the_pointer(browser: Browser, tmp_path: Path, large: Report) -> None:
    shown_in(browser, tmp_path, large)
    browser.point(*middle(browser, ".map .u-over", 0.5, 0.1))
    browser.wait("!document.querySelector('.tip').hidden")
    id, text = re.match(r"([\d,]+) (\S+)", tip(browser)).groups()  # type: ignore[union-attr]
    assert large.summary.tokens is not None
    assert shown(large.summary.tokens.texts[int(id.replace(",", ""))])[1:-1] == text
    browser.point(*middle(browser, ".scatter .u-over", 0.4, 0.25))
    browser.wait("document.querySelector('.tip').innerText.includes('norm')")
    assert "rows in use" in tip(browser)
    browser.point(*middle(browser, ".norms .u-over", 0.68, 0.3))
    browser.wait("document.querySelector('.tip').innerText.includes('rows in use')")
    browser.point(2, 2)
    browser.wait("document.querySelector('.tip').hidden")
    assert quiet(browser)


def test_searching_finds_a_token_by_text_and_by_id_and_marks_it(
    browser: Browser, tmp_path: Path, large: Report
) -> None:
    shown_in(browser, tmp_path, large)
    canvas = "document.querySelector('.scatter canvas').toDataURL()"
    before = browser.value(canvas)
    browser.click(*middle(browser, ".find"))
    browser.type("<|tool_9|>")
    browser.wait("document.querySelectorAll('.hits li').length")
    browser.key("Enter")
    browser.wait("document.querySelector('.chosen').innerText")
    card = browser.value("document.querySelector('.chosen').innerText")
    assert "127,157 <|tool_9|>" in card
    assert "percentile" in card or "of rows in use" in card
    browser.wait(f"{canvas} !== {json.dumps(before)}")
    browser.value("document.querySelector('.find').value = ''")
    browser.click(*middle(browser, ".find"))
    browser.type("127148")
    browser.key("Enter")
    browser.wait("document.querySelector('.chosen').innerText.includes('127,148 <|tool_0|>')")
    assert "the eos token" in browser.value("document.querySelector('.chosen').innerText")
    browser.click(*middle(browser, ".chosen .close"))
    browser.wait("!document.querySelector('.chosen').innerText")
    assert quiet(browser)


def test_hostile_texts_do_nothing_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    shown_in(browser, tmp_path, with_tokens(hostile(BROKEN, " ".join(MARKUP)), *MARKUP))
    browser.click(*middle(browser, ".find"))
    browser.type("<")
    browser.wait("document.querySelectorAll('.hits button').length")
    browser.key("Enter")
    browser.wait("document.querySelector('.chosen').innerText")
    assert browser.value("document.images.length") == 0
    assert quiet(browser)


def test_dragging_zooms_in_and_a_double_click_zooms_out(
    browser: Browser, tmp_path: Path, large: Report
) -> None:
    shown_in(browser, tmp_path, large)
    canvas = "document.querySelector('.scatter canvas').toDataURL()"
    whole = browser.value(canvas)
    x, y = middle(browser, ".scatter .u-over")
    for kind, to in (
        ("mouseMoved", x),
        ("mousePressed", x),
        ("mouseMoved", x + 120),
        ("mouseReleased", x + 120),
    ):
        browser.point(to, y, kind)
    browser.wait(f"{canvas} !== {json.dumps(whole)}")
    assert browser.value("document.querySelector('.ids .zoom').textContent") == "Show all ids"
    browser.value("document.querySelector('.ids .zoom').click()")
    browser.point(2, 2)
    browser.wait(f"{canvas} === {json.dumps(whole)}")
    assert quiet(browser)


def test_it_prints(browser: Browser, tmp_path: Path, large: Report) -> None:
    shown_in(browser, tmp_path, large, scheme="dark")
    browser.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert not browser.value("document.documentElement.classList.contains('printing')")
    assert quiet(browser)


def with_norms(norms: list[float], classes: RowClass = RowClass.IN_USE, first_id: int = 0) -> Report:
    """A report on a table of these rows."""
    report = synthetic.report(rows=64, added=8, reserved=8, padding=8)
    assert report.summary.values is not None
    table = dataclasses.replace(
        report.summary.values.tables[0],
        first_id=first_id,
        norms=array("d", norms),
        classes=array("H", [classes.value]) * len(norms),
        new={},
        signs={},
    )
    facts = dataclasses.replace(report.summary, values=Values((table,), {"lm_head.weight": "it is packed"}))
    return dataclasses.replace(report, summary=facts)


ODD = {
    "zeros": with_norms([0.0] * 64),
    "nothing finite": with_norms([math.nan] * 64),
    "one row": with_norms([1.5]),
    "no row": with_norms([]),
    "equal rows": with_norms([1.25] * 64),
    "nearly equal rows": with_norms([1.25, 1.25 + 1e-15] * 32),
    "the widest range": with_norms([5e-324, 0.0, math.inf, math.nan, 1.7e308, *[1.0] * 59]),
    "rows without a purpose": with_norms([1.0, 2.0] * 32, RowClass(0)),
    "a table of further ids": with_norms([1.0, 2.0] * 8, first_id=48),
    "tokens alone": with_tokens(CLEAN, "a", "b"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_tables_are_drawn_and_hovered_without_complaints(
    browser: Browser, tmp_path: Path, name: str
) -> None:
    shown_in(browser, tmp_path, ODD[name])
    for chart in browser.value("[...document.querySelectorAll('.chart')].map(one => one.className)"):
        for down in (0.1, 0.5, 0.95):
            browser.point(*middle(browser, f"[class='{chart}'] .u-over", 0.5, down))
    browser.value("[...document.querySelectorAll('.zoom')].forEach(button => button.click())")
    browser.click(*middle(browser, ".find"))
    browser.type("1")
    browser.key("Enter")
    browser.wait("document.querySelector('.chosen').innerText")
    assert quiet(browser)


def test_a_browser_that_cannot_unpack_says_so(browser: Browser, tmp_path: Path) -> None:
    old = browser.send("Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream")
    file = tmp_path / "page.html"
    file.write_text(html.render([with_tokens(CLEAN, "a")], View()), encoding="ascii")
    browser.media(width=1100)
    browser.open(file)
    browser.wait("document.querySelector('.map').innerText.includes('DecompressionStream')")
    assert browser.value("document.querySelector('.search').hidden")
    browser.send("Page.removeScriptToEvaluateOnNewDocument", **old)
