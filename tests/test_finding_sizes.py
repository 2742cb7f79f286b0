"""Findings stay short whatever a model breaks: rules list a few of many, and cut what is long itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from models import base, build

import tokaudit
from tokaudit.findings import Claim, Location, Severity
from tokaudit.rule import LONGEST_LINE, MOST_CLAIMS, Rule

MANY = 3000
LENGTH_BYTES = 8
Json = dict[str, Any]
FLAGS = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}


def edit(path: Path, change: Callable[[Json], None]) -> None:
    document = json.loads(path.read_text("utf-8")) if path.exists() else {}
    change(document)
    path.write_text(json.dumps(document), "utf-8")


def add_to_vocabulary(model: Path, tokens: dict[str, int]) -> None:
    edit(model / "tokenizer.json", lambda d: d["model"]["vocab"].update(tokens))


def shared_ids(model: Path) -> None:
    edit(
        model / "tokenizer.json", lambda d: d["model"]["vocab"].update({f"zz{n}": n % 9 for n in range(MANY)})
    )


def ids_without_rows(model: Path) -> None:
    edit(
        model / "tokenizer.json", lambda d: d["model"]["vocab"].update({f"zz{n}": 9 * n for n in range(MANY)})
    )


def added_tokens(model: Path) -> None:
    entries = [{"id": 9000 - 2 * n, "content": f" a{n} ", **FLAGS} for n in range(MANY)]
    edit(model / "tokenizer.json", lambda d: d["added_tokens"].extend(entries))
    edit(
        model / "tokenizer_config.json",
        lambda d: d.update(
            added_tokens_decoder={str(9000 - n): {"content": f"<b{n}>", **FLAGS} for n in range(MANY)},
            additional_special_tokens=[f"<c{n}>" for n in range(MANY)],
        ),
    )
    edit(
        model / "special_tokens_map.json",
        lambda d: d.update(additional_special_tokens=[f"<d{n}>" for n in range(MANY)]),
    )


def id_fields(model: Path) -> None:
    ids = list(range(300, 300 + MANY))
    fields = {"eos_token_id": ids, "suppress_tokens": ids, "bad_words_ids": [[n] for n in ids]}
    edit(model / "config.json", lambda d: d.update(bos_token_id=ids, image_token_id=ids))
    edit(model / "generation_config.json", lambda d: d.update(fields, forced_eos_token_id=ids))


def templates(model: Path) -> None:
    (model / "additional_chat_templates").mkdir()
    for n in range(30):
        markers = "".join(f"<|m{n}-{k}|>" for k in range(MANY // 30))
        (model / "additional_chat_templates" / f"t{n}.jinja").write_text(
            "{% for m in messages %}{{ m.content }}" + markers + "{% endfor %}"
        )


def header(model: Path, change: Callable[[Json], None]) -> None:
    path = model / "model.safetensors"
    data = path.read_bytes()
    end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
    found = json.loads(data[LENGTH_BYTES:end])
    change(found)
    text = json.dumps(found).encode()
    path.write_bytes(len(text).to_bytes(LENGTH_BYTES, "little") + text + data[end:])


def axes(model: Path) -> None:
    header(model, lambda d: d["model.embed_tokens.weight"]["shape"].extend([1] * MANY))


def tensors(model: Path) -> None:
    def change(found: Json) -> None:
        end = max(entry["data_offsets"][1] for name, entry in found.items() if name != "__metadata__")
        empty = {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}
        found.update({f"module.layers.{n}.weight": empty for n in range(MANY)})

    header(model, change)
    names = {f"layers.{n}.bias": f"part-{n}.safetensors" for n in range(MANY)}
    edit(model / "model.safetensors.index.json", lambda d: d.update(weight_map=names))


def long_names(model: Path) -> None:
    name = "n" * 100_000
    edit(
        model / "tokenizer_config.json",
        lambda d: d.update(
            eos_token=name,
            pad_token=name,
            tokenizer_class=name,
            chat_template=[{"name": name, "template": "{{"}],
        ),
    )
    (model / "chat_template.jinja").unlink()
    edit(
        model / "tokenizer.json",
        lambda d: d["model"]["vocab"].update({name: 3, name + "b": 3, name + "c": 400}),
    )
    edit(model / "config.json", lambda d: d.update(model_type=name, architectures=[name]))


CASES = {
    shared_ids: {"TA402", "TA403"},
    ids_without_rows: {"TA101", "TA404"},
    added_tokens: {"TA102", "TA401", "TA403", "TA412"},
    id_fields: {"TA301", "TA313"},
    templates: {"TA311"},
    axes: {"TA110"},
    tensors: {"TA709"},
    long_names: {"TA305", "TA315", "TA415"},
}


@pytest.mark.parametrize("damage", CASES, ids=lambda damage: damage.__name__)
def test_a_finding_is_short_whatever_the_number_of_breaches(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    model = build(base("llama"), tmp_path / "model")
    damage(model)
    report = tokaudit.check(model)
    assert CASES[damage] <= {finding.rule for finding in report.findings}
    for finding in report.findings:
        lines = [finding.message, finding.why, finding.fix, *(claim.says for claim in finding.claims)]
        assert max(map(len, lines)) <= 400
        assert len(finding.claims) <= 10
        assert len(finding.subject) <= LONGEST_LINE + 1


def test_what_a_rule_does_not_cut_is_cut() -> None:
    class Talkative(Rule):
        """It cuts nothing."""

        code = "TA999"
        severity = Severity.NOTE

    long = "start" + "x" * 100_000 + "end"
    claims = (Claim(Location("config.json"), long) for _ in range(100_000))
    found = Talkative().finding(long, claims, why=long, fix=long, subject=long)
    assert len(found.claims) == MOST_CLAIMS
    for line in (found.message, found.why, found.fix, found.subject, found.claims[-1].says):
        assert len(line) == LONGEST_LINE + 1
        assert (line[:5], line[-3:]) == ("start", "end")
