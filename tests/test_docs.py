"""The documentation says what the code does: generated parts are current, commands and options exist."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_cases import CASES
from typer.main import get_command

from tokaudit.cli.app import app
from tokaudit.cli.explain import explain
from tokaudit.formats import limits
from tokaudit.load.tokenizer import MOST_TOKENS_TRIED
from tokaudit.rule import Rule, all_rules

PROJECT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    *sorted(PROJECT.glob("*.md")),
    *sorted((PROJECT / "docs").glob("*.md")),
    PROJECT / "benchmarks" / "README.md",
    PROJECT / "fixtures" / "README.md",
]
HEADINGS = ["## What it finds", "## Why it matters", "## How to fix it"]

# What was decided before the rules were written: codes, slugs and the severity of an ordinary breach.
DECIDED = """
    TA101 token-id-out-of-range error
    TA102 unused-token-out-of-range warning
    TA103 vocab-size-mismatch error
    TA104 config-vocab-sizes-disagree error
    TA105 output-rows-mismatch error
    TA106 output-bias-mismatch error
    TA107 secondary-table-mismatch error
    TA108 padding-rows note
    TA109 lost-added-token warning
    TA110 malformed-embedding-table error
    TA111 embedding-not-found error
    TA112 rows-not-divisible note
    TA201 tied-tables-differ error
    TA202 tied-table-stored-twice note
    TA203 untied-output-missing error
    TA204 tie-flags-contradict error
    TA205 untied-tables-identical warning
    TA206 inverted-tie error
    TA207 encoder-decoder-embeddings-differ error
    TA208 tie-depends-on-loader warning
    TA301 special-id-out-of-range error
    TA302 pad-token-missing note
    TA303 pad-equals-eos warning
    TA304 eos-disagree error
    TA305 special-id-disagree warning
    TA306 special-token-not-in-vocabulary error
    TA307 special-token-splits error
    TA308 special-id-names-another-token warning
    TA309 double-bos note
    TA310 post-processor-id-mismatch error
    TA311 template-token-missing warning
    TA312 template-stop-not-eos error
    TA313 forced-id-invalid error
    TA314 generation-config-incomplete warning
    TA315 template-broken error
    TA401 tokenizer-files-disagree error
    TA402 duplicate-token-id error
    TA403 renumbered-on-load error
    TA404 id-hole note
    TA405 tokenizer-unreadable error
    TA406 saved-truncation warning
    TA407 tokenizer-class-mismatch warning
    TA408 vocabulary-coverage warning
    TA409 unreachable-tokens note
    TA410 context-length-mismatch warning
    TA411 duplicate-json-key error
    TA412 token-appended-on-load error
    TA413 stale-special-tokens-map warning
    TA414 rebuilt-on-load warning
    TA415 unknown-tokenizer-class warning
    TA416 sentinel-count-mismatch warning
    TA417 added-token-shadows-text note
    TA701 shard-missing error
    TA702 shard-damaged error
    TA703 index-entry-without-tensor error
    TA704 tensor-not-in-index warning
    TA705 not-weights error
    TA706 wrapper-prefix error
    TA707 index-size-mismatch note
    TA708 tensor-stored-twice warning
    TA709 stale-weights-file warning
    TA710 unsafe-weights note
    TA711 path-outside-directory error
"""

by_code = pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
by_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))


@pytest.fixture(scope="module")
def make_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", PROJECT / "tools" / "make_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- generated parts -----------------------------------------------------------------------------------


def test_generating_the_documentation_anew_changes_nothing(make_docs: ModuleType) -> None:
    """Where this fails: `python tools/make_docs.py`, and read the difference."""
    for path, text in make_docs.documents().items():
        assert path.read_text(encoding="utf-8") == text, path


def test_every_page_belongs_to_a_rule() -> None:
    pages = {path.stem for path in (PROJECT / "docs" / "rules").glob("TA*.md")}
    assert pages == {rule.code for rule in all_rules()}


@by_code
def test_explain_prints_the_page(rule: type[Rule], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    page = (PROJECT / "docs" / "rules" / f"{rule.code}.md").read_text(encoding="utf-8")
    assert page == explain(rule.slug).output + "\n[All rules](README.md)\n"


def test_output_that_is_out_of_date_is_replaced(make_docs: ModuleType) -> None:
    """So that the comparison above can fail."""
    block = "```console\n$ echo one\nold\n$ echo two \\\n  three\n```\n"
    fresh = "```console\n$ echo one\none\n$ echo two \\\n  three\ntwo three\n```\n"
    assert make_docs.with_output(f"before\n\n{block}\nafter\n") == f"before\n\n{fresh}\nafter\n"


# --- pages of rules ------------------------------------------------------------------------------------


@by_code
def test_a_rules_docstring_is_a_summary_and_three_sections(rule: type[Rule]) -> None:
    text = inspect.getdoc(rule) or ""
    summary, *sections = re.split(r"\n\n(?=## )", text)
    assert "\n" not in summary
    assert summary.endswith(".")
    assert [section.splitlines()[0] for section in sections] == HEADINGS
    for section in sections:
        assert re.match(r"## .+\n\n\S", section)


def test_codes_and_slugs_are_unique() -> None:
    names = Counter(name for rule in all_rules() for name in (rule.code, rule.slug))
    assert set(names.values()) == {1}


@pytest.mark.parametrize("decided", [line.strip() for line in DECIDED.strip().splitlines()])
def test_a_rule_that_was_decided_exists_under_its_names(decided: str) -> None:
    rules = {f"{rule.code} {rule.slug} {rule.severity.word}" for rule in all_rules()}
    assert decided in rules


# --- commands and options that texts name --------------------------------------------------------------

APP: Any = get_command(app)
OPTIONS = {
    name: {"--help", *(option for each in command.params for option in (*each.opts, *each.secondary_opts))}
    for name, command in {"": APP, **APP.commands}.items()
}
EVERY_OPTION = set().union(*OPTIONS.values())
CALL = re.compile(r"`tokaudit ([a-z]+)([^`]*)|^\$ tokaudit ([a-z]+)(.*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
MODULES = sorted((PROJECT / "tokaudit").rglob("*.py"))


def wrong_calls(text: str) -> list[str]:
    """The calls of tokaudit that a text shows, in backticks or behind a prompt, and that do not exist."""
    found = []
    for match in CALL.finditer(text):
        command, arguments = match[1] or match[3], match[2] or match[4] or ""
        if command not in APP.commands:
            found.append(command)
        else:
            found += sorted(set(OPTION.findall(arguments)) - OPTIONS[command])
    return found


def texts_of(path: Path) -> Iterator[str]:
    """The texts in a module; what an f-string computes is left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_messages_and_pages_name_commands_and_options_that_exist(path: Path) -> None:
    for text in texts_of(path):
        assert wrong_calls(text) == []
        assert set(OPTION.findall(text)) <= EVERY_OPTION, text


@by_document
def test_documents_name_commands_and_options_that_exist(path: Path) -> None:
    assert wrong_calls(path.read_text(encoding="utf-8")) == []


def test_a_call_that_does_not_exist_is_noticed() -> None:
    """So that the tests above can fail."""
    assert wrong_calls("`tokaudit grow SRC DST`, `tokaudit resize SRC\nDST --rows 3 --columns 4`") == [
        "grow",
        "--columns",
    ]
    assert wrong_calls("$ tokaudit check DIR --rows 3\nand --nonsense") == ["--rows"]


# --- documents -----------------------------------------------------------------------------------------


@by_document
def test_links_lead_to_files_that_exist(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@by_document
def test_examples_of_the_library_give_what_they_show(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "fixtures").symlink_to(PROJECT / "fixtures")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```pycon\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, path.name, str(path), 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_recipes_name_files_that_exist() -> None:
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`((?!\.\./)[a-z_./]+(?:/|\.(?:py|md|json|jsonl)))`", text))
    homes = [PROJECT, PROJECT / "tokaudit", PROJECT / "tokaudit" / "resize"]
    assert {"fixtures/tinylm/", "load/", "formats/limits.py", "proof.py"} <= names
    assert [name for name in names if not any((home / name).exists() for home in homes)] == []


def test_the_readme_shows_the_commands_that_ci_runs() -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    ci = (PROJECT / ".ci" / "run").read_text(encoding="utf-8")
    for command in ("pytest -q -n 2", "tokaudit check fixtures/tinylm"):
        assert command in readme
        assert f"\n{command}\n" in ci


def test_figures_in_the_readme_are_those_of_the_tests_and_the_benchmarks() -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    families = (PROJECT / "tests" / "test_families.py").read_text(encoding="utf-8")
    for right, measured in re.findall(r"(\d+) of (\d+) measured classes", readme):
        assert re.search(rf"def test_.*_{right}_of_{measured}_.*classes", families)
    assert f" {len(CASES)} cases " in readme
    assert f" {limits.TOKENIZER_BYTES // 2**20} MiB for tokenizer.json" in readme
    assert (
        f" {limits.SIDE_FILE_BYTES // 2**20} MiB for other JSON files, {limits.JSON_DEPTH} levels" in readme
    )
    assert f" up to {MOST_TOKENS_TRIED:,} tokens" in readme
    benchmarks = (PROJECT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for figure in re.findall(r"\d+\.\d+ s\b|\d+\.\d+x|\d+ MB\b", readme):
        assert figure in benchmarks
