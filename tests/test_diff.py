"""`tokaudit diff`: what differs, the verdict for each use, and how it is shown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from locked import edit, put, set_token, text_of
from models import FIXTURES, base, build, changed

import tokaudit
from tokaudit.contract import Lock, LockedToken
from tokaudit.diffs.difference import Side
from tokaudit.diffs.mapping import mapping_diff
from tokaudit.diffs.run import Answer, Diff
from tokaudit.diffs.values import around_difference
from tokaudit.locks.digests import mapping_digest
from tokaudit.reporters import View
from tokaudit.reporters._diff import as_text
from tokaudit.reporters._diff_json import as_json

PROJECT = Path(__file__).resolve().parents[1]
GOLDEN = Path(__file__).parent / "golden"
SCHEMA = json.loads((PROJECT / "tokaudit" / "reporters" / "diff.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


# --- mappings ---------------------------------------------------------------------------------------------


def side(ids: Mapping[str, int], listed: int | None = None) -> Side:
    """A directory with these ids; with ``listed``, a lock that lists so many of its tokens."""
    if listed is None:
        contract: Any = SimpleNamespace(vocabulary=SimpleNamespace(effective=ids))
        return Side(Lock("model", mapping=mapping_digest(ids)), contract)
    tokens = tuple(LockedToken(id, content) for content, id in list(ids.items())[:listed])
    return Side(Lock("lock", mapping=mapping_digest(ids), added_tokens=tokens))


MAPPINGS = st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(0, 12), max_size=10).map(
    lambda ids: {content: id for id, content in {id: content for content, id in ids.items()}.items()}
)


@given(left=MAPPINGS, right=MAPPINGS)
def test_a_diff_of_two_known_mappings_leads_from_one_to_the_other(
    left: dict[str, int], right: dict[str, int]
) -> None:
    found = mapping_diff(side(left), side(right))
    if found is None:
        assert left == right
        return
    assert found.complete
    made = dict(left)
    for id, content in found.removed:
        assert made.pop(content) == id
    for moved in found.moved:
        assert made[moved.content] == moved.left
        made[moved.content] = moved.right
    for id, content in found.added:
        assert content not in made
        made[content] = id
    assert made == right
    for pair in found.replaced:
        assert left[pair.left] == right[pair.right] == pair.id


@given(left=MAPPINGS, right=MAPPINGS, listed=st.integers(0, 10), lock_first=st.booleans())
@settings(max_examples=400)
def test_against_a_lock_a_diff_is_complete_or_says_where_the_rest_is(
    left: dict[str, int], right: dict[str, int], listed: int, lock_first: bool
) -> None:
    exact = mapping_diff(side(left), side(right))
    if lock_first:
        found = mapping_diff(side(left, listed), side(right))
    else:
        found = mapping_diff(side(left), side(right, listed))
    if found is None or exact is None:
        assert found is exact is None
    elif found.complete:
        assert (found.added, found.removed, found.moved) == (exact.added, exact.removed, exact.moved)
    else:
        assert found.ranges
        named = [id for id, _ in (*found.added, *found.removed)]
        named += [id for moved in found.moved for id in (moved.left, moved.right)]
        assert all(any(first <= id < past for first, past in found.ranges) for id in named)


def test_a_lock_that_lists_a_token_knows_that_it_was_replaced_and_by_what() -> None:
    found = mapping_diff(side({"<x>": 3, "a": 0}, listed=1), side({"<y>": 3, "a": 0}))
    assert found is not None
    assert found.complete
    assert list(found.sentences()) == ['1 replaced: 3 "<x>" -> "<y>"']


def test_a_lock_cannot_name_tokens_that_it_does_not_list() -> None:
    found = mapping_diff(side({"a": 0, "b": 5000}, listed=0), side({"a": 0, "c": 5000}))
    assert found is not None
    assert not found.complete
    assert list(found.sentences()) == ["tokens, whose texts a lock does not hold, among the ids 4096 to 5000"]


def test_two_locks_are_compared_by_what_both_list() -> None:
    found = mapping_diff(side({"<x>": 1, "a": 0}, listed=1), side({"<x>": 2, "a": 0}, listed=1))
    assert found is not None
    assert not found.complete
    assert [(moved.content, moved.left, moved.right) for moved in found.moved] == [("<x>", 1, 2)]


def test_long_texts_are_cut_around_their_first_difference() -> None:
    left, right = "a" * 200 + "X" + "b" * 200, "a" * 200 + "Y" + "b" * 200
    one, other = around_difference(left, right)
    assert "X" in one
    assert "Y" in other
    assert one.replace("X", "Y") == other
    assert len(one) < 70


# --- uses -------------------------------------------------------------------------------------------------

Patch = dict[str, Any]


def rows(count: int, hidden: int = 8, **config: object) -> Patch:
    shapes = {name: {"shape": [count, hidden]} for name in ("model.embed_tokens.weight", "lm_head.weight")}
    sizes = {"vocab_size": count, "hidden_size": hidden, **config}
    return {"json": {"config.json": sizes}, "safetensors": {"model.safetensors": shapes}}


def token(which: str, **values: object) -> Patch:
    """Another added token in the place of one."""
    added = [dict(token) for token in base("llama")["tokenizer"]["added"]]
    next(token for token in added if token["content"] == which).update(values)
    return {"tokenizer": {"added": added}}


def more_tokens(*contents: str) -> Patch:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [*base("llama")["tokenizer"]["added"]]
    added += [{"id": 320 + i, "content": content, **flags} for i, content in enumerate(contents)]
    return {"tokenizer": {"added": added}}


def role(name: str, content: str, id: int) -> Patch:
    fields = {f"{name}_token_id": id}
    settings = {"tokenizer_config.json": {f"{name}_token": content}}
    return {"json": {**settings, "config.json": fields, "generation_config.json": fields}}


def joined(*patches: Patch) -> Patch:
    description: Patch = {}
    for patch in patches:
        description = changed(description, patch)
    return description


DOUBLED = {"fill": {"rows": {"17": {"scale": 2.0}}}}
PREFIXED = {
    "tokenizer": {
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        }
    }
}
TEMPLATE = {"text": {"chat_template.jinja": "{{ messages }}"}}
NO_WEIGHTS: Patch = {"safetensors": None}
NO_TOKENIZER: Patch = {"tokenizer": None, "json": {"tokenizer_config.json": None}}
SWAPPED = joined(
    token("<|reserved_0|>", content="<|reserved_1|>"),
)

# (use, --deep, left, right, the answer, what a reason or a remark says)
PAIRS: Mapping[str, tuple[str, bool, Patch, Patch, Answer, str]] = {
    "the same model": ("drop-in", True, {}, {}, Answer.SAME, ""),
    "another template": ("drop-in", False, {}, TEMPLATE, Answer.DIFFERS, "chat template, line 1"),
    "another pipeline": ("drop-in", False, {}, PREFIXED, Answer.DIFFERS, "add_prefix_space: false -> true"),
    "padding rows": (
        "drop-in",
        False,
        {},
        rows(384),
        Answer.DIFFERS,
        "rows of the input embeddings: 320 -> 384",
    ),
    "fine-tuned, shapes only": (
        "drop-in",
        False,
        {},
        {"safetensors": {"model.safetensors": {"lm_head.weight": DOUBLED}}},
        Answer.SAME,
        "",
    ),
    "fine-tuned, rows read": (
        "drop-in",
        True,
        {},
        {"safetensors": {"model.safetensors": {"lm_head.weight": DOUBLED}}},
        Answer.DIFFERS,
        'output embeddings lm_head.weight: 1 of the rows of 320 shared tokens differ: 17 "',
    ),
    "two tokenizers": ("drop-in", False, NO_WEIGHTS, NO_WEIGHTS, Answer.SAME, ""),
    "a tokenizer and a whole model": (
        "drop-in",
        False,
        NO_WEIGHTS,
        {},
        Answer.NO_VERDICT,
        "tables not",
    ),
    "a tokenizer and another whole model": (
        "drop-in",
        False,
        NO_WEIGHTS,
        TEMPLATE,
        Answer.DIFFERS,
        "template",
    ),
    "two checkpoints": ("drop-in", False, NO_TOKENIZER, NO_TOKENIZER, Answer.SAME, ""),
    "two checkpoints of other shapes": (
        "drop-in",
        False,
        NO_TOKENIZER,
        joined(NO_TOKENIZER, rows(384)),
        Answer.DIFFERS,
        "320 -> 384",
    ),
    "a draft with other padding": (
        "speculative",
        False,
        {},
        rows(384),
        Answer.SAME,
        "vocab_size is 320 and in",
    ),
    "a narrower draft": ("speculative", False, rows(320, 16), {}, Answer.SAME, ""),
    "a draft with another pipeline": ("speculative", False, {}, PREFIXED, Answer.SAME, "add_prefix_space"),
    "a draft with another template": ("speculative", False, {}, TEMPLATE, Answer.SAME, ""),
    "a draft with another token": (
        "speculative",
        False,
        {},
        token("<|reserved_0|>", content="<|tool|>"),
        Answer.DIFFERS,
        '1 id of the target mean another token to the draft: 312 "<|reserved_0|>" is 312 "<|tool|>"',
    ),
    "a draft with one more token and a row for it": (
        "speculative",
        False,
        rows(384),
        joined(rows(384), more_tokens("<|tool|>")),
        Answer.SAME,
        '1 token of the draft alone, never accepted: 320 "<|tool|>"',
    ),
    "a draft with one more token and no row for it": (
        "speculative",
        False,
        {},
        joined(rows(384), more_tokens("<|tool|>")),
        Answer.DIFFERS,
        'the draft may propose 320 "<|tool|>", and the target has only 320 rows',
    ),
    "a target with a few more tokens": (
        "speculative",
        False,
        joined(rows(384), more_tokens("<|tool|>")),
        {},
        Answer.SAME,
        '1 token of the target alone, never drafted: 320 "<|tool|>"',
    ),
    "a target with many more tokens": (
        "speculative",
        False,
        joined(rows(512), more_tokens(*(f"<|more_{i}|>" for i in range(129)))),
        {},
        Answer.DIFFERS,
        "the target has 449 tokens and the draft 320; llama.cpp allows 128 more or less",
    ),
    "a draft that ends otherwise": (
        "speculative",
        False,
        {},
        role("eos", "<|end|>", 305),
        Answer.DIFFERS,
        'the eos token is 311 "<|turn_end|>" and in the draft 305 "<|end|>"',
    ),
    "a draft that pads otherwise": ("speculative", False, {}, role("pad", "<|end|>", 305), Answer.SAME, ""),
    "a draft without a tokenizer": ("speculative", False, {}, NO_TOKENIZER, Answer.NO_VERDICT, "mapping not"),
    "parents of one kind": ("merge", False, {}, TEMPLATE, Answer.SAME, "chat template, line 1"),
    "parents with other padding": ("merge", False, {}, rows(384), Answer.SAME, "320 -> 384"),
    "parents of other widths": (
        "merge",
        False,
        {},
        rows(320, 16),
        Answer.DIFFERS,
        "hidden of the input embeddings: 8 -> 16",
    ),
    "parents with other tokens": (
        "merge",
        False,
        rows(384),
        joined(rows(384), more_tokens("<|tool|>")),
        Answer.DIFFERS,
        "a union has 321 tokens: 320 of both, 0 of the left and 1 of the right side alone",
    ),
    "parents that cut rows of tokens off": ("merge", False, {}, rows(312), Answer.DIFFERS, "320 -> 312"),
    "parents without weights": (
        "merge",
        False,
        NO_WEIGHTS,
        NO_WEIGHTS,
        Answer.NO_VERDICT,
        "tables not",
    ),
}


def compared(tmp_path: Path, left: Patch, right: Patch, use: str = "drop-in", *, deep: bool = False) -> Diff:
    sides = [
        build(changed(base("llama"), patch), tmp_path / name)
        for name, patch in (("left", left), ("right", right))
    ]
    return tokaudit.diff(*sides, use=use, deep=deep)


@pytest.mark.parametrize("pair", PAIRS)
def test_the_answer_for_a_use(pair: str, tmp_path: Path) -> None:
    use, deep, left, right, answer, words = PAIRS[pair]
    found = compared(tmp_path, left, right, use, deep=deep)
    assert found.answer is answer, (found.reasons, found.undecided)
    said = {
        Answer.SAME: found.remarks,
        Answer.DIFFERS: found.reasons,
        Answer.NO_VERDICT: found.undecided,
    }[answer]
    assert any(words in sentence for sentence in said) or not words
    assert bool(found.reasons) is (answer is Answer.DIFFERS)
    VALIDATOR.validate(json.loads(as_json(found, View())))
    assert as_text(found, View()).count("\n") > 3


def test_another_use_is_refused() -> None:
    with pytest.raises(tokaudit.UsageError, match="drop-in, speculative or merge, not 'serving'"):
        tokaudit.diff(FIXTURES / "tinylm", FIXTURES / "tinylm", use="serving")


def test_rows_of_tokens_that_moved_are_compared_with_their_new_rows(tmp_path: Path) -> None:
    """Two tokens change places, and so do their rows: not one shared token has another row."""
    left = build(changed(base("llama"), {}), tmp_path / "left")
    added = [dict(token) for token in base("llama")["tokenizer"]["added"]]
    added[8]["content"], added[9]["content"] = added[9]["content"], added[8]["content"]
    right = build(changed(base("llama"), {"tokenizer": {"added": added}}), tmp_path / "right")
    unmoved = tokaudit.diff(left, right, deep=True)
    assert {rows.different for rows in unmoved.comparison.rows} == {
        ((312, "<|reserved_0|>"), (313, "<|reserved_1|>"))
    }
    swap_rows(right / "model.safetensors", 312, 313)
    moved = tokaudit.diff(left, right, deep=True)
    assert [rows.different for rows in moved.comparison.rows] == [(), ()]
    assert moved.answer is Answer.DIFFERS


def swap_rows(path: Path, one: int, other: int) -> None:
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name in ("model.embed_tokens.weight", "lm_head.weight"):
            start = 8 + length + entry["data_offsets"][0]
            size = (entry["data_offsets"][1] - entry["data_offsets"][0]) // entry["shape"][0]
            a, b = (slice(start + row * size, start + (row + 1) * size) for row in (one, other))
            data[a], data[b] = data[b], data[a]
    path.write_bytes(data)


def test_rows_of_other_dtypes_are_not_compared_and_say_so(tmp_path: Path) -> None:
    tables = {"safetensors": {"model.safetensors": {"lm_head.weight": {"dtype": "F32"}}}}
    found = compared(tmp_path, {}, tables, deep=True)
    words = [str(rows) for rows in found.comparison.rows]
    assert "output embeddings lm_head.weight: not compared, one has BF16 and the other F32" in words


# --- locks ------------------------------------------------------------------------------------------------


def written(lock_of: Path, to: Path, *, deep: bool = False) -> Path:
    to.write_text(text_of(lock_of, deep=deep), encoding="ascii")
    return to


def test_a_model_is_the_same_as_its_lock_on_either_side(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    lock = written(model, tmp_path / "x.lock", deep=True)
    for left, right in ((model, lock), (lock, model), (lock, lock)):
        found = tokaudit.diff(left, right, deep=True)
        assert found.answer is Answer.SAME, found.reasons
        assert dict(found.comparison.not_compared) == {}


def test_a_lock_and_a_changed_model_differ_in_the_same_groups_as_two_models(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    lock = written(model, tmp_path / "x.lock")
    other = build(changed(base("llama"), joined(PREFIXED, TEMPLATE, rows(384))), tmp_path / "other")
    groups = ("pipeline", "templates", "special", "tables")
    of_lock, of_model = tokaudit.diff(lock, other), tokaudit.diff(model, other)
    for group in groups:
        layers = [change.layer for change in of_model.comparison.group(group)]
        assert [change.layer for change in of_lock.comparison.group(group)] == layers
    assert of_lock.comparison.probes is not None
    assert of_model.comparison.probes is not None
    assert len(of_lock.comparison.probes.different) == len(of_model.comparison.probes.different)


def test_rows_of_a_lock_without_contents_are_not_compared_and_say_so(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    found = tokaudit.diff(written(model, tmp_path / "x.lock"), model, deep=True)
    assert "holds no rows" in found.comparison.not_compared["rows"]


def test_contents_in_a_lock_are_compared_with_deep(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    lock = written(model, tmp_path / "x.lock", deep=True)
    doubled = {"safetensors": {"model.safetensors": {"lm_head.weight": DOUBLED}}}
    other = build(changed(base("llama"), doubled), tmp_path / "other")
    assert tokaudit.diff(lock, other).answer is Answer.SAME
    deep = tokaudit.diff(lock, other, deep=True)
    assert [change.what for change in deep.comparison.tables] == ["bytes of lm_head.weight"]


# --- no verdict -------------------------------------------------------------------------------------------


def test_an_unreadable_part_leaves_no_verdict(tmp_path: Path) -> None:
    left = build(base("llama"), tmp_path / "left")
    right = build(base("llama"), tmp_path / "right")
    (right / "config.json").write_text("{", encoding="utf-8")
    found = tokaudit.diff(left, right)
    assert found.answer is Answer.NO_VERDICT
    assert found.unreadable[0].file == "config.json"
    VALIDATOR.validate(json.loads(as_json(found, View())))
    assert "? no verdict" in as_text(found, View())


def test_a_tokenizer_that_does_not_load_leaves_no_verdict_and_says_why(tmp_path: Path) -> None:
    left = build(base("llama"), tmp_path / "left")
    right = build(base("llama"), tmp_path / "right")
    edit(right, "tokenizer.json", put("pre_tokenizer", value={"type": "Nonsense"}))
    found = tokaudit.diff(left, right, use="speculative")
    assert found.answer is Answer.NO_VERDICT
    assert "cannot use" in found.undecided[0]


# --- the command ------------------------------------------------------------------------------------------


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Two directories: the trained model, and a copy with one change of every kind."""
    shutil.copytree(FIXTURES / "tinylm", tmp_path / "old")
    new = shutil.copytree(FIXTURES / "tinylm", tmp_path / "new")
    edit(new, "tokenizer.json", more)
    edit(new, "config.json", put("eos_token_id", value=5))
    template = new / "chat_template.jinja"
    template.write_text(template.read_text(encoding="utf-8").replace("user", "human"), encoding="utf-8")
    return tmp_path


def more(document: dict[str, Any]) -> None:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    document["added_tokens"].append({"id": 500, "content": "[PAD]", **flags})
    document["model"]["merges"][5:7] = reversed(document["model"]["merges"][5:7])
    document["pre_tokenizer"]["add_prefix_space"] = True
    set_token("<|user|>", lstrip=True)(document)


def tokaudit_run(cwd: Path, *arguments: str, columns: int = 100) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "NO_COLOR": "1", "COLUMNS": str(columns)}
    environment["LC_ALL"] = "C.UTF-8"
    return subprocess.run(
        [sys.executable, "-m", "tokaudit", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )


@pytest.mark.parametrize(
    ("golden", "code", "arguments"),
    [
        ("diff-drop-in.txt", 1, ["old", "new", "--deep"]),
        ("diff-speculative.txt", 0, ["old", "new", "--for", "speculative"]),
        ("diff-merge.txt", 1, ["old", "new", "--for", "merge"]),
        ("diff-same.txt", 0, ["old", "old"]),
        ("diff-lock.txt", 1, ["old.lock", "new"]),
        ("diff-drop-in.json", 1, ["old", "new", "--deep", "--format", "json"]),
    ],
)
def test_output(models: Path, golden: str, code: int, arguments: list[str]) -> None:
    """UPDATE_GOLDEN=1 writes the files anew; read the difference."""
    written(models / "old", models / "old.lock")
    done = tokaudit_run(models, "diff", *arguments)
    assert done.returncode == code, done.stderr
    assert done.stderr == ""
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / golden).write_text(done.stdout, encoding="utf-8")
    assert done.stdout == (GOLDEN / golden).read_text(encoding="utf-8")
    if golden.endswith(".json"):
        VALIDATOR.validate(json.loads(done.stdout))


def test_colours_only_paint(models: Path) -> None:
    import re

    plain = tokaudit_run(models, "diff", "old", "new").stdout
    painted = tokaudit_run(models, "diff", "old", "new", "--color", "always").stdout
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain


@pytest.mark.parametrize("columns", [20, 40, 200])
def test_lines_fit_the_terminal(models: Path, columns: int) -> None:
    lines = tokaudit_run(models, "diff", "old", "new", columns=columns).stdout.splitlines()
    assert max(map(len, lines)) <= min(columns, 100)


def test_no_verdict_is_one_line_on_standard_error(models: Path) -> None:
    (models / "new" / "model.safetensors").unlink()
    done = tokaudit_run(models, "diff", "old", "new", "--for", "merge")
    assert done.returncode == 1  # the mapping differs, whatever the tables are
    shutil.copyfile(models / "old" / "tokenizer.json", models / "new" / "tokenizer.json")
    done = tokaudit_run(models, "diff", "old", "new", "--for", "merge")
    assert done.returncode == 2
    assert done.stderr.startswith("tokaudit: error: tables not compared, new: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["old"], "missing argument"),
        (["old", "new", "--for", "serving"], "drop-in, speculative or merge"),
        (["old", "new", "--format", "xml"], "--format must be terminal or json"),
        (["old", "absent"], "there is no such directory or lock: absent"),
    ],
)
def test_a_wrong_call_is_no_verdict(models: Path, arguments: list[str], words: str) -> None:
    done = tokaudit_run(models, "diff", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


HOSTILE = "\x1b[31m\n::error::forged\u202e##[error]x\u2028"


@pytest.mark.parametrize("format", ["terminal", "json"])
def test_texts_of_a_model_are_inert(models: Path, format: str) -> None:
    delimiter = {"type": "CharDelimiterSplit", "delimiter": "\u202e"}
    edit(models / "new", "tokenizer.json", set_token("[PAD]", content=HOSTILE))
    edit(models / "new", "tokenizer.json", put("pre_tokenizer", value=delimiter))
    (models / "new" / "chat_template.jinja").write_text(HOSTILE * 3, encoding="utf-8")
    for arguments in ("old new", "new old --for speculative", "old new --for merge"):
        out = tokaudit_run(models, "diff", *arguments.split(), "--format", format).stdout
        assert not set(out) & set("\x1b\u202e\u2028\r\x07")
        assert "##[" not in out
        assert not [line for line in out.splitlines() if line.lstrip().startswith("::")]
