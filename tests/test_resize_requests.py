"""Every way to ask for tokens, roles and rows, and what it does to the files."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from models import Description, base, build, changed
from resizing import EMBED, HEAD, another, data, in_shards, tables, tensor, untied, with_rows
from tokenizers import Tokenizer

from tokaudit.cli import main
from tokaudit.contract import Role
from tokaudit.errors import TokauditError, Unreadable, UsageError
from tokaudit.formats import limits
from tokaudit.resize import NewToken, Refused, Request, plan_resize, resize
from tokaudit.resize.ask import method, roles, token_file

INDEX = "model.safetensors.index.json"
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def run(*arguments: str | Path) -> int:
    return main(["resize", *map(str, arguments), "--color", "never"])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return build(untied(), tmp_path / "source")


# --- tokens ------------------------------------------------------------------------------------------


def test_tokens_get_the_ids_after_the_largest_one_in_order(source: Path, tmp_path: Path) -> None:
    assert run(source, tmp_path / "out", "--add-token", "zeta", "--add-token", "alpha", "--special") == 0
    added = data(tmp_path / "out" / "tokenizer.json")["added_tokens"][-2:]
    assert [(token["id"], token["content"]) for token in added] == [(320, "zeta"), (321, "alpha")]
    assert all(token["special"] and not token["normalized"] for token in added)
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert [tokenizer.token_to_id(text) for text in ("zeta", "alpha")] == [320, 321]


def test_special_is_for_the_tokens_of_add_token_only(source: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("word\n")
    arguments = ("--add-token", "<|a|>", "--special", "--tokens", tmp_path / "words.txt")
    assert run(source, tmp_path / "out", *arguments) == 0
    added = data(tmp_path / "out" / "tokenizer.json")["added_tokens"][-2:]
    assert [(token["content"], token["special"]) for token in added] == [("<|a|>", True), ("word", False)]


def test_a_text_file_has_one_token_a_line(tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    path.write_bytes("one\n\n two \r\ntr\u00e8s\n".encode())
    assert [token.content for token in token_file(path)] == ["one", " two ", "tr\u00e8s"]


ENTRIES: list[Any] = [
    "plain",
    {
        "content": "<|x|>",
        "special": True,
        "lstrip": True,
        "rstrip": True,
        "normalized": True,
        "single_word": True,
        "init": "copy",
        "from": "<|user|>",
    },
    {"content": "yttrium", "init": "zeros"},
    {"content": "zirconium", "init": "description", "from": "a letter"},
]
TOKENS = (
    NewToken("plain"),
    NewToken("<|x|>", True, True, True, True, True, "copy=<|user|>"),
    NewToken("yttrium", init="zeros"),
    NewToken("zirconium", init="description=a letter"),
)


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_json_files_state_every_field(suffix: str, source: Path, tmp_path: Path) -> None:
    path = tmp_path / f"tokens{suffix}"
    lines = "\n".join(map(json.dumps, ENTRIES)) + "\n\n"
    path.write_text(json.dumps(ENTRIES) if suffix == ".json" else lines)
    assert token_file(path) == TOKENS
    assert run(source, tmp_path / "out", "--tokens", path) == 0
    plain, x, y, z = data(tmp_path / "out" / "tokenizer.json")["added_tokens"][-4:]
    assert [plain[flag] for flag in FLAGS] == [False, False, False, True, False]
    assert [x[flag] for flag in FLAGS] == [True, True, True, True, True]
    manifest = data(tmp_path / "out" / "tokaudit-resize.json")
    assert [token["input"]["method"] for token in manifest["tokens"]] == [
        "mean-of-subwords", "copy", "zeros", "description",
    ]  # fmt: skip
    assert manifest["tokens"][1]["input"]["constituents"] == [{"id": 309, "content": "<|user|>", "weight": 1}]
    assert (y["id"], z["id"]) == (322, 323)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"content": "x"}', "expected a list"),
        ("[1]", "entry 1: expected a text"),
        ('["a", {"special": true}]', "entry 2: expected a text"),
        ('[{"content": "x", "lstripp": true}]', 'unknown field "lstripp"'),
        ('[{"content": "x", "special": 1}]', "special must be true or false"),
        ('[{"content": "x", "init": 1}]', "init must be a text"),
        ('[{"content": "x", "init": "mean", "from": "y"}]', "`from` goes with"),
        ('[{"content": "x", "init": "copy"}]', "needs to know of what"),
        ('[{"content": "x", "init": "meen"}]', "no initialiser 'meen'"),
        ("[", "expecting value"),
    ],
)
def test_a_wrong_file_of_tokens_is_named_with_its_entry(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text)
    with pytest.raises(TokauditError) as error:
        token_file(path)
    assert says.lower() in str(error.value).lower()
    assert len(str(error.value).splitlines()) == 1


def test_a_wrong_line_of_tokens_is_named_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "tokens.jsonl"
    path.write_text('"a"\n\n1\n')
    with pytest.raises(UsageError, match=r"tokens\.jsonl, line 3: expected a text"):
        token_file(path)


def test_a_file_of_tokens_that_is_no_text_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_bytes(b"a\xff\n")
    with pytest.raises(Unreadable, match="not UTF-8 at byte 1"):
        token_file(tmp_path / "tokens.txt")
    with pytest.raises(Unreadable, match="no such file") as missing:
        token_file(tmp_path / "missing.txt")
    assert missing.value.code == "no-such-file"


def test_a_file_of_tokens_is_a_regular_file_of_a_modest_size(tmp_path: Path) -> None:
    """A pipe would be waited for, and a device read without an end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link", "."):
        with pytest.raises(Unreadable, match="expected a regular file"):
            token_file(tmp_path / name)
    with (tmp_path / "large.txt").open("wb") as file:
        file.truncate(limits.SIDE_FILE_BYTES + 1)
    with pytest.raises(Unreadable, match="expected at most"):
        token_file(tmp_path / "large.txt")


def test_a_token_that_is_there_already_is_not_added_again(source: Path, tmp_path: Path) -> None:
    result = resize(source, tmp_path / "out", Request(tokens=(NewToken("<|user|>"), NewToken("new"))))
    assert [token.content for token in result.plan.added] == ["new"]
    assert '"<|user|>" is not new: it has id 309' in result.plan.notes


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (("",), "empty text"),
        (("a", "b", "a"), '"a" is asked for twice'),
        (("x\ud800",), "half a character"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused(tokens: tuple[str, ...], says: str, source: Path) -> None:
    with pytest.raises(Refused, match=says):
        plan_resize(source, Request(tokens=tuple(map(NewToken, tokens))))


def with_holes() -> Description:
    """A base vocabulary with two holes; the special tokens stand in it, so that they keep their ids."""
    special = {str(token["id"]): token["content"] for token in base("llama")["tokenizer"]["added"]}
    tokenizer = {"size": 320, "names": special, "remove": [300, 302]}
    vocab = {"vocab.json": {"placeholder": 0}}
    return changed(base("llama"), {"tokenizer": tokenizer, "json": vocab})


def test_with_holes_in_the_base_vocabulary_new_tokens_stand_in_it_too(tmp_path: Path) -> None:
    source = build(with_holes(), tmp_path / "source")
    vocab = data(source / "tokenizer.json")["model"]["vocab"]
    (source / "vocab.json").write_text(json.dumps(vocab))
    assert run(source, tmp_path / "out", "--add-token", "<|new|>", "--special", "--add-token", "other") == 0
    grown = data(tmp_path / "out" / "tokenizer.json")
    assert grown["model"]["vocab"] == {**vocab, "<|new|>": 320, "other": 321}
    assert data(tmp_path / "out" / "vocab.json") == grown["model"]["vocab"]
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert tokenizer.encode("a<|new|>b").ids == [97, 320, 98]
    assert tokenizer.encode("other").ids == [321]


def test_holes_that_added_tokens_fill_leave_no_way_to_add_one(tmp_path: Path) -> None:
    """<|odd|> has id 318 because 318 tokens come before it: one more in the vocabulary would move it."""
    kept = [token for token in base("llama")["tokenizer"]["added"] if token["id"] not in (317, 318)]
    names = {str(token["id"]): token["content"] for token in kept}
    tokenizer = {"size": 320, "names": names, "remove": [317, 318]}
    tokenizer["added"] = [*kept, {"id": 318, "content": "<|odd|>", "special": True}]
    source = build(changed(untied(), {"tokenizer": tokenizer}), tmp_path / "source")
    with pytest.raises(Refused, match="no way to add a token without moving others"):
        plan_resize(source, Request(tokens=(NewToken("<|new|>"),)))


@pytest.mark.parametrize("spelling", [list, " ".join])
def test_tokens_that_merges_make_are_decomposed_without_those_merges(
    spelling: Callable[[list[str]], object], tmp_path: Path
) -> None:
    """Neither with those that go on from them: 300 is made of two that have no rows."""
    source = build(changed(with_holes(), {}, ("json/vocab.json",)), tmp_path / "source")
    document = data(source / "tokenizer.json")
    document["model"]["vocab"] |= {"qz": 320, "qzx": 321, "qzqz": 300}
    document["model"]["merges"] += [["q", "z"], ["qz", "x"], ["qz", "qz"]]
    document["model"]["merges"] = [
        spelling(merge.split(" ") if isinstance(merge, str) else merge)
        for merge in document["model"]["merges"]
    ]
    (source / "tokenizer.json").write_text(json.dumps(document))
    rows = plan_resize(source, Request()).rows
    assert [(row.content, [piece.content for piece in row.input.pieces]) for row in rows] == [
        ("qz", ["q", "z"]), ("qzx", ["q", "z", "x"]),
    ]  # fmt: skip


def test_tokens_of_the_base_vocabulary_without_a_row_get_theirs_from_their_pieces(tmp_path: Path) -> None:
    """As an added token that swallows spaces does, which stands behind one in running text."""
    tokens = untied()["tokenizer"]["added"]
    greedy = [*tokens[:-1], {**tokens[-1], "lstrip": True}]
    source = build(with_rows(changed(untied(), {"tokenizer": {"added": greedy}}), 319), tmp_path / "added")
    (row,) = plan_resize(source, Request()).rows
    assert "".join(piece.content for piece in row.input.pieces) == "\u0120<|reserved_7|>"
    source = build(with_rows(base("bert"), 310), tmp_path / "base")
    by_id = {id: content for content, id in data(source / "tokenizer.json")["model"]["vocab"].items()}
    rows = plan_resize(source, Request()).rows
    assert [(row.id, row.content) for row in rows] == [(id, by_id[id]) for id in range(310, 320)]


def test_tokens_without_a_row_get_theirs_from_their_pieces_too(tmp_path: Path) -> None:
    """<|reserved_6|> and <|reserved_7|> lie past the last row: their rows are no padding."""
    source = build(with_rows(untied(), 318), tmp_path / "source")
    plan = resize(source, tmp_path / "out", Request(tokens=(NewToken("<|new|>"),))).plan
    assert [(row.id, row.content) for row in plan.rows] == [
        (318, "<|reserved_6|>"), (319, "<|reserved_7|>"), (320, "<|new|>"),
    ]  # fmt: skip
    texts = ["".join(piece.content for piece in row.input.pieces) for row in plan.rows]
    assert texts == [row.content for row in plan.rows]
    assert plan.padding_rows == 0


# --- roles -------------------------------------------------------------------------------------------


def files_of(out: Path, *names: str) -> list[Any]:
    return [data(out / name) for name in names]


def test_a_role_is_set_in_both_configurations_and_in_the_tokenizers(source: Path, tmp_path: Path) -> None:
    assert run(source, tmp_path / "out", "--set-role", "pad=<|padding|>") == 0
    config, generation, tokenizer = files_of(
        tmp_path / "out", "config.json", "generation_config.json", "tokenizer_config.json"
    )
    assert config["pad_token_id"] == generation["pad_token_id"] == 320
    assert tokenizer["pad_token"] == "<|padding|>"
    assert data(tmp_path / "out" / "tokenizer.json")["added_tokens"][-1]["special"] is True


def test_a_role_can_go_to_a_token_that_is_there(source: Path, tmp_path: Path) -> None:
    result = resize(source, tmp_path / "out", Request(roles={Role.PAD: "<|reserved_0|>"}))
    assert result.plan.added == ()
    assert result.plan.tensors == ()
    assert data(tmp_path / "out" / "config.json")["pad_token_id"] == 312
    assert tables(tmp_path / "out") == tables(source)


def test_one_call_can_add_a_token_and_give_it_a_role(source: Path, tmp_path: Path) -> None:
    arguments = ("--tokens", tmp_path / "t.json", "--set-role", "pad=<|p|>")
    (tmp_path / "t.json").write_text('[{"content": "<|p|>", "init": "zeros", "special": true}, "other"]')
    assert run(source, tmp_path / "out", *arguments) == 0
    added = data(tmp_path / "out" / "tokenizer.json")["added_tokens"][-2:]
    assert [token["content"] for token in added] == ["<|p|>", "other"]
    assert data(tmp_path / "out" / "config.json")["pad_token_id"] == 320


def roled(description: Description, tmp_path: Path, request: Mapping[Role, str]) -> Path:
    source = build(description, tmp_path / "source")
    resize(source, tmp_path / "out", Request(roles=request))
    return tmp_path / "out"


def test_a_list_of_stop_ids_gets_the_new_one(tmp_path: Path) -> None:
    stops = {"config.json": {"eos_token_id": [311, 305]}, "generation_config.json": {"eos_token_id": [311]}}
    out = roled(changed(untied(), {"json": stops}), tmp_path, {Role.EOS: "<|stop|>"})
    config, generation = files_of(out, "config.json", "generation_config.json")
    assert config["eos_token_id"] == [311, 305, 320]
    assert generation["eos_token_id"] == [311, 320]


def test_a_role_is_set_where_the_field_is_absent_or_null(tmp_path: Path) -> None:
    fields = {"config.json": {"pad_token_id": None}, "generation_config.json": {"pad_token_id": None}}
    description = changed(untied(), {"json": {**fields, "tokenizer_config.json": {"pad_token": None}}})
    description["json"]["tokenizer_config.json"]["pad_token"] = None
    description["json"]["config.json"]["pad_token_id"] = None
    out = roled(description, tmp_path, {Role.PAD: "<|padding|>"})
    config, generation, tokenizer = files_of(
        out, "config.json", "generation_config.json", "tokenizer_config.json"
    )
    assert (config["pad_token_id"], generation["pad_token_id"]) == (320, 320)
    assert tokenizer["pad_token"] == "<|padding|>"


def test_the_layout_of_transformers_4_is_followed_in_all_its_files(tmp_path: Path) -> None:
    old = {"content": "[PAD]", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    change = {"special_tokens_map.json": {"pad_token": old}, "added_tokens.json": {"[MASK]": 4}}
    out = roled(changed(base("bert"), {"json": change}), tmp_path, {Role.PAD: "[NEW]"})
    tokenizer, special, added, config = files_of(
        out, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json"
    )
    assert tokenizer["pad_token"] == "[NEW]"
    assert special["pad_token"] == {**old, "content": "[NEW]"}
    assert tokenizer["added_tokens_decoder"]["320"] == {
        "content": "[NEW]", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
        "special": True,
    }  # fmt: skip
    assert added == {"[MASK]": 4, "[NEW]": 320}
    assert config["pad_token_id"] == 320


def test_a_null_in_special_tokens_map_json_does_not_undo_the_role(tmp_path: Path) -> None:
    files = {
        "special_tokens_map.json": {"bos_token": "<|begin|>"},
        "tokenizer_config.json": {"pad_token": None},
    }
    description = changed(untied(), {"json": files})
    description["json"]["special_tokens_map.json"]["pad_token"] = None
    out = roled(description, tmp_path, {Role.PAD: "<|padding|>"})
    assert data(out / "special_tokens_map.json")["pad_token"] == "<|padding|>"


def test_saved_padding_follows_the_pad_role(tmp_path: Path) -> None:
    padding = {"strategy": "BatchLongest", "direction": "Right",
               "pad_id": 306, "pad_type_id": 0, "pad_token": "<|pad|>"}  # fmt: skip
    description = changed(untied(), {"tokenizer": {"padding": padding}})
    out = roled(description, tmp_path, {Role.PAD: "<|padding|>"})
    stands = data(out / "tokenizer.json")["padding"]
    assert stands == {**padding, "pad_id": 320, "pad_token": "<|padding|>"}


def test_a_role_of_the_token_that_has_it_already_changes_nothing(tmp_path: Path) -> None:
    padding = {"strategy": "BatchLongest", "direction": "Right",
               "pad_id": 306, "pad_type_id": 0, "pad_token": "<|pad|>"}  # fmt: skip
    generation = {"generation_config.json": {"eos_token_id": [311, 309]}}
    description = changed(untied(), {"tokenizer": {"padding": padding}, "json": generation})
    settings = description["json"]["tokenizer_config.json"]
    config = description["json"]["config.json"]
    assert (settings["pad_token"], config["pad_token_id"]) == ("<|pad|>", 306)
    stop = Role.EOS, settings["eos_token"]
    plan = plan_resize(
        build(description, tmp_path / "source"), Request(roles=dict([stop, (Role.PAD, "<|pad|>")]))
    )
    assert plan.nothing_to_do


def test_saved_padding_stays_where_another_role_is_set(tmp_path: Path) -> None:
    padding = {"strategy": "BatchLongest", "direction": "Right",
               "pad_id": 306, "pad_type_id": 0, "pad_token": "<|pad|>"}  # fmt: skip
    description = changed(untied(), {"tokenizer": {"padding": padding}})
    out = roled(description, tmp_path, {Role.MASK: "<|mask|>"})
    assert data(out / "tokenizer.json")["padding"] == padding


def test_a_forced_id_follows_its_role(tmp_path: Path) -> None:
    description = changed(
        base("t5"), {"json": {"generation_config.json": {"forced_eos_token_id": 1, "eos_token_id": [1]}}}
    )
    out = roled(description, tmp_path, {Role.EOS: "<end>"})
    generation = data(out / "generation_config.json")
    assert generation["forced_eos_token_id"] == 320
    assert generation["eos_token_id"] == [1, 320]


def test_a_role_in_a_section_is_set_there(tmp_path: Path) -> None:
    text = {"model_type": "llama", "vocab_size": 320, "hidden_size": 8, "pad_token_id": 306}
    config = {"model_type": "llava", "text_config": text, "image_token_index": 312}
    tensors = {
        "language_model.model.embed_tokens.weight": tensor(320, 8),
        f"language_model.{HEAD}": tensor(320, 8),
    }
    description = another("LlavaForConditionalGeneration", config, tensors)
    del description["json"]["config.json"]["pad_token_id"]
    out = roled(description, tmp_path, {Role.PAD: "<|padding|>"})
    config = data(out / "config.json")
    assert config["text_config"]["pad_token_id"] == 320
    assert config["text_config"]["vocab_size"] == 321
    assert "pad_token_id" not in config


def test_a_post_processor_that_goes_on_with_the_old_token_is_told(tmp_path: Path) -> None:
    source = build(base("t5"), tmp_path / "source")
    plan = plan_resize(source, Request(roles={Role.EOS: "<end>"}))
    assert any('the post-processor still puts 1 "</s>"' in text for text in plan.warnings)


def test_another_unknown_token_than_the_models_own_is_refused(tmp_path: Path) -> None:
    for name in ("t5", "bert"):
        source = build(base(name), tmp_path / name)
        with pytest.raises(Refused, match="old text would be encoded differently"):
            plan_resize(source, Request(roles={Role.UNK: "<other>"}))


def test_a_role_that_leaves_the_model_unable_to_stop_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="template-stop-not-eos"):
        resize(source, tmp_path / "out", Request(roles={Role.EOS: "<|stop|>"}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["pad"], "ROLE=TEXT"),
        (["pad="], "ROLE=TEXT"),
        (["padding=<p>"], "no role 'padding'"),
        (["pad=<a>", "pad=<b>"], "names pad twice"),
    ],
)
def test_a_wrong_role_is_named(texts: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        roles(texts)


@pytest.mark.parametrize(
    ("text", "says"),
    [("meen", "no initialiser"), ("copy", "of what"), ("description=", "of what"), ("zeros=1", "takes no")],
)
def test_a_wrong_initialiser_is_named(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        method(text)


@pytest.mark.parametrize(
    ("id", "room"), [(321, "or make room with --rows 322"), (-2, "correct pad_token_id$")]
)
def test_a_role_without_a_row_gets_room_where_it_can(id: int, room: str, tmp_path: Path) -> None:
    description = changed(untied(), {"json": {"config.json": {"pad_token_id": id}}})
    with pytest.raises(Refused, match=f"names id {id}, and the tables will have 321 rows") as refusal:
        plan_resize(build(description, tmp_path / "source"), Request(tokens=(NewToken("<|x|>"),)))
    assert re.search(room, refusal.value.hint)


def test_an_id_that_a_field_names_already_is_told(tmp_path: Path) -> None:
    description = changed(with_rows(untied(), 336), {"json": {"config.json": {"image_token_id": 321}}})
    plan = plan_resize(
        build(description, tmp_path / "source"), Request(tokens=(NewToken("x1"), NewToken("x2")))
    )
    assert any("image_token_id names id 321 already" in text for text in plan.warnings)


# --- another tokenizer ---------------------------------------------------------------------------------


def with_tokens(description: Description, *contents: str, first: int = 320) -> Description:
    """The same tokenizer with more added tokens."""
    added = [
        {"id": first + place, "content": content, "special": True} for place, content in enumerate(contents)
    ]
    tokens = description["tokenizer"]["added"] + added
    return changed(description, {"tokenizer": {"added": tokens}})


def tokenizer_only(description: Description) -> Description:
    names = ("tokenizer_config.json", "special_tokens_map.json")
    files = {name: description["json"][name] for name in names if name in description["json"]}
    return {"json": files, "tokenizer": description["tokenizer"], "text": description.get("text", {})}


def test_a_tokenizer_with_more_tokens_is_taken_as_it_stands(source: Path, tmp_path: Path) -> None:
    other = build(tokenizer_only(with_tokens(untied(), "<|x|>", "<|y|>")), tmp_path / "other")
    (source / "added_tokens.json").write_text("{}")
    assert run(source, tmp_path / "out", "--to-tokenizer", other) == 0
    for path in other.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert not (tmp_path / "out" / "added_tokens.json").exists()
    manifest = data(tmp_path / "out" / "tokaudit-resize.json")
    pieces = [
        "".join(piece["content"] for piece in token["input"]["constituents"]) for token in manifest["tokens"]
    ]
    assert pieces == ["<|x|>", "<|y|>"]
    assert data(tmp_path / "out" / "config.json")["vocab_size"] == 322


def test_a_token_of_another_tokenizer_that_swallows_spaces_stands_behind_one(
    source: Path, tmp_path: Path
) -> None:
    added = with_tokens(untied(), "<|x|>")["tokenizer"]["added"]
    greedy = changed(untied(), {"tokenizer": {"added": [*added[:-1], {**added[-1], "lstrip": True}]}})
    (row,) = plan_resize(source, Request(), to_tokenizer=build(greedy, tmp_path / "other")).rows
    assert "".join(piece.content for piece in row.input.pieces) == "\u0120<|x|>"


def test_settings_and_templates_stay_where_the_other_tokenizer_has_none(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bare = {"tokenizer": with_tokens(untied(), "<|x|>")["tokenizer"]}
    other = build(bare, tmp_path / "other")
    (source / "special_tokens_map.json").write_text("{}")
    result = resize(source, tmp_path / "out", Request(), to_tokenizer=other)
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()
    assert [left.name for left in result.left_behind] == ["special_tokens_map.json"]
    assert main(["resize", str(source), "--to-tokenizer", str(other), "--dry-run"]) == 0
    assert "special_tokens_map.json  not carried" in capfd.readouterr().out
    (other / "chat_template.jinja").write_text("{{ messages }}<|turn_end|>")
    resize(source, tmp_path / "two", Request(force=True), to_tokenizer=other)
    assert (tmp_path / "two" / "chat_template.jinja").read_text() == "{{ messages }}<|turn_end|>"


def test_another_tokenizer_with_the_same_tokens_is_taken_all_the_same(source: Path, tmp_path: Path) -> None:
    other = build({"tokenizer": untied()["tokenizer"]}, tmp_path / "other")
    plan = plan_resize(source, Request(), to_tokenizer=other)
    assert (plan.taken_files, plan.tensors, plan.files) == (("tokenizer.json",), (), ())
    assert not plan.nothing_to_do


def test_what_transformers_saved_after_add_tokens_is_taken(source: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.add_tokens(["lighthouse", "keeper"])
    tokenizer.add_special_tokens({"pad_token": "<|padding|>"})
    tokenizer.save_pretrained(tmp_path / "other")
    result = resize(source, tmp_path / "out", Request(multiple=8), to_tokenizer=tmp_path / "other")
    assert [(row.id, row.content) for row in result.plan.rows] == [
        (320, "lighthouse"), (321, "keeper"), (322, "<|padding|>"),
    ]  # fmt: skip
    assert result.plan.rows_after == 328
    config, generation = files_of(tmp_path / "out", "config.json", "generation_config.json")
    assert config["pad_token_id"] == generation["pad_token_id"] == 322  # the role moved with the tokenizer


def test_moved_ids_are_refused_and_shown(source: Path, tmp_path: Path) -> None:
    tokens = untied()["tokenizer"]["added"]
    swapped = [{**tokens[0], "content": "<|end|>"}, {**tokens[1], "content": "<|begin|>"}, *tokens[2:]]
    other = build(tokenizer_only(changed(untied(), {"tokenizer": {"added": swapped}})), tmp_path / "other")
    with pytest.raises(Refused) as refusal:
        plan_resize(source, Request(), to_tokenizer=other)
    assert '"<|begin|>" from 304 to 305' in str(refusal.value)
    assert '"<|end|>" from 305 to 304' in str(refusal.value)


def test_a_tokenizer_that_lacks_old_tokens_is_refused(source: Path, tmp_path: Path) -> None:
    fewer = changed(untied(), {"tokenizer": {"added": untied()["tokenizer"]["added"][:-2]}})
    other = build(tokenizer_only(fewer), tmp_path / "other")
    with pytest.raises(Refused, match=r"would move: .* to nothing"):
        plan_resize(source, Request(), to_tokenizer=other)


def test_a_second_text_for_an_old_id_is_refused(source: Path, tmp_path: Path) -> None:
    alias = changed(untied(), {"tokenizer": {"alias": {"Zoo": 100}}})
    other = build(tokenizer_only(alias), tmp_path / "other")
    with pytest.raises(Refused, match='100 from "d" to "Zoo"'):
        plan_resize(source, Request(), to_tokenizer=other)


def test_ids_that_the_library_would_not_give_are_refused(source: Path, tmp_path: Path) -> None:
    other = build(tokenizer_only(with_tokens(untied(), "<|x|>", first=324)), tmp_path / "other")
    with pytest.raises(Refused, match=r'declares "<\|x\|>" as 324, .* makes it 320'):
        plan_resize(source, Request(), to_tokenizer=other)


@pytest.mark.parametrize("kept", ["model.safetensors", "README.md"])
def test_a_directory_without_a_tokenizer_has_none_to_take(kept: str, source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / kept).write_bytes((source / "model.safetensors").read_bytes())
    with pytest.raises(Refused, match=r"no tokenizer in .*other: "):
        plan_resize(source, Request(), to_tokenizer=other)


@pytest.mark.parametrize("spelling", ["source", "source/", "./source/../source"])
def test_the_models_own_tokenizer_fits_the_rows_to_it(spelling: str, tmp_path: Path) -> None:
    source = build(with_rows(with_tokens(untied(), "<|x|>"), 320), tmp_path / "source")
    result = resize(source, tmp_path / "out", Request(), to_tokenizer=f"{tmp_path}/{spelling}")
    assert [(row.id, row.content) for row in result.plan.rows] == [(320, "<|x|>")]
    assert "".join(piece.content for piece in result.plan.rows[0].input.pieces) == "<|x|>"
    assert result.plan.taken_files == ()


def test_weights_without_a_tokenizer_take_pieces_from_the_new_one(tmp_path: Path) -> None:
    weights = {
        "json": {"config.json": untied()["json"]["config.json"]},
        "safetensors": untied()["safetensors"],
    }
    source = build(weights, tmp_path / "source")
    other = build(tokenizer_only(with_tokens(untied(), "<|x|>")), tmp_path / "other")
    result = resize(source, tmp_path / "out", Request(), to_tokenizer=other)
    (row,) = result.plan.rows
    assert "".join(piece.content for piece in row.input.pieces) == "<|x|>"
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (other / "tokenizer.json").read_bytes()


def test_new_tokens_of_a_base_vocabulary_are_decomposed_without_themselves(tmp_path: Path) -> None:
    """A WordPiece list reaches its own new entry: it has to be taken out before it is asked."""
    source = build(base("bert"), tmp_path / "source")
    other = tmp_path / "other"
    shutil.copytree(source, other, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    document = data(other / "tokenizer.json")
    document["model"]["vocab"] |= {"toast": 320, "[SEP]oat": 321}
    (other / "tokenizer.json").write_text(json.dumps(document))
    paths = ("tokenizer", "json/tokenizer_config.json", "json/special_tokens_map.json")
    weights = build(changed(base("bert"), {}, paths), tmp_path / "weights")
    for directory in (source, weights):
        plan = plan_resize(directory, Request(), to_tokenizer=other)
        pieces = [[piece.content for piece in row.input.pieces] for row in plan.rows]
        assert pieces == [["t", "##o", "##a", "##s", "##t"], ["[SEP]", "o", "##a", "##t"]]


def test_to_tokenizer_goes_without_tokens_of_its_own(source: Path) -> None:
    with pytest.raises(UsageError, match="brings its own tokens"):
        plan_resize(source, Request(tokens=(NewToken("x"),)), to_tokenizer=source)


# --- rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "after"), [(320, 320), (321, 321), (400, 400)])
def test_rows_are_at_least_what_is_asked(rows: int, after: int, source: Path, tmp_path: Path) -> None:
    assert run(source, tmp_path / "out", "--rows", str(rows)) == 0
    grown = tables(tmp_path / "out")
    assert len(grown[EMBED]) == len(grown[HEAD]) == after
    assert data(tmp_path / "out" / "config.json")["vocab_size"] == after


@pytest.mark.parametrize(("multiple", "after"), [(1, 321), (2, 322), (64, 384), (1000, 1000)])
def test_rows_are_rounded_up_after_the_tokens(
    multiple: int, after: int, source: Path, tmp_path: Path
) -> None:
    plan = plan_resize(source, Request(tokens=(NewToken("<|x|>"),), multiple=multiple))
    assert (plan.rows_after, plan.padding_rows) == (after, after - 321)


def test_padding_rows_are_used_before_new_ones(tmp_path: Path) -> None:
    source = build(with_rows(untied(), 336), tmp_path / "source")
    plan = plan_resize(source, Request(tokens=(NewToken("<|x|>"),)))
    assert (plan.rows_before, plan.rows_after, plan.padding_rows) == (336, 336, 0)
    assert [edit.table.name for edit in plan.tensors] == [EMBED, HEAD]


def test_an_index_keeps_totals_that_padding_rows_in_use_do_not_change(tmp_path: Path) -> None:
    source = build(in_shards(with_rows(untied(), 336), 2), tmp_path / "source")
    index = data(source / INDEX)
    index["metadata"]["total_parameters"] = 2 * 336 * 8
    (source / INDEX).write_text(json.dumps(index))
    plan = plan_resize(source, Request(tokens=(NewToken("<|x|>"),)))
    assert INDEX not in {edit.at.file for edit in plan.files}


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request(rows=319), "too few: the tables have 320"),
        (Request(rows=320, tokens=(NewToken("<|x|>"),)), "too few: the tokens need 321"),
        (Request(multiple=0), "not a positive number"),
        (Request(rows=10**12), "more than ids can address"),
        (Request(multiple=2**31), "more than ids can address"),
    ],
)
def test_rows_that_cannot_be_are_refused(request_: Request, says: str, source: Path) -> None:
    with pytest.raises(Refused, match=says):
        plan_resize(source, request_)


def test_a_vocab_size_that_the_file_leaves_to_its_default_is_stated(tmp_path: Path) -> None:
    source = build(changed(untied(), {}, ("json/config.json/vocab_size",)), tmp_path / "source")
    resize(source, tmp_path / "out", Request(rows=400))
    assert data(tmp_path / "out" / "config.json")["vocab_size"] == 400
