"""The rules on rows and ties: silent on every class of transformers as it is saved, and corner cases."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_families
from models import base, build, changed
from test_families import FAMILIES, Measured, checkpoint, document, put

import tokaudit
from tokaudit import audit
from tokaudit.contract import (
    Contract,
    Declared,
    Embeddings,
    Missing,
    RowCount,
    Table,
    TableComparison,
    Tie,
    TokenTable,
    Vocabulary,
    Witness,
)
from tokaudit.errors import FactMissing
from tokaudit.families import resolve
from tokaudit.findings import Finding, Location, Severity
from tokaudit.load import load
from tokaudit.rules.rows._tables import input_side

RULES = audit.select_rules(["TA1", "TA2"])
ROWS = 448
NOT_READ = Missing("not read")


class Saved(Measured):
    """A measured class as a checkpoint that transformers 5 writes, its tie flags all saying the same."""

    def __init__(self, record: dict[str, Any], tied: bool) -> None:
        super().__init__(record)
        for flag in record.get("tie_flags_default") or {}:
            if flag.endswith("tie_word_embeddings"):
                put(self.config, flag, tied)
        found = resolve(document(self.config), checkpoint(*self.stored.values()))
        if isinstance(found.tie_or, Tie) and found.tie.tied and isinstance(found.output_or, Table):
            del self.stored[found.output.name]

    def findings(self) -> tuple[Finding, ...]:
        weights = checkpoint(*self.stored.values())
        embeddings = self.embeddings()
        contract = Contract(
            name="saved",
            files=frozenset({"config.json", "model.safetensors"}),
            config_or=document(self.config),
            generation_config_or=NOT_READ,
            tokenizer_config_or=NOT_READ,
            vocabulary_or=_fitting_vocabulary(embeddings),
            checkpoint_or=weights,
            embeddings_or=embeddings,
            comparisons_or=dict(_comparisons(embeddings)),
        )
        return audit.run(contract, RULES).findings


def _fitting_vocabulary(embeddings: Embeddings) -> Vocabulary | Missing:
    """A tokenizer with as many ids as the size field says."""
    expected = embeddings.expected_input_or
    if not isinstance(expected, RowCount) or not expected.terms:
        return NOT_READ
    last = expected.terms[0].value - 1
    table = TokenTable(Witness.BASE, Location("vocab.json"), {"first": 0, "last": last})
    return Vocabulary(Declared((table,)), (), NOT_READ, NOT_READ)


def _comparisons(embeddings: Embeddings) -> Iterator[tuple[tuple[str, str], TableComparison]]:
    """Copies are equal, tables of their own differ."""
    partner, output = embeddings.tie_partner_or, embeddings.output_or
    if isinstance(partner, Table) and isinstance(output, Table):
        rows = output.tensor.shape[0]
        yield (partner.name, output.name), TableComparison(partner.tensor, output.tensor, rows, (0,), 0.5)
    for copy in embeddings.secondary:
        if copy.copy:
            given = embeddings.input
            yield (given.name, copy.name), TableComparison(given.tensor, copy.tensor, 0, (), None)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The measured classes, every size field of which has the same value."""
    if not FAMILIES.is_file():
        pytest.skip("../shared/knowledge/families.json is not here")
    monkeypatch.setattr(test_families, "PRIMES", [ROWS] * len(test_families.PRIMES))
    loaded: list[dict[str, Any]] = json.loads(FAMILIES.read_text(encoding="utf-8"))["families"]
    return loaded


def test_no_class_of_transformers_that_is_saved_untied_gets_a_warning(records: list[dict[str, Any]]) -> None:
    loud = {
        (record["architecture"], finding.slug)
        for record in records
        for finding in Saved(record, tied=False).findings()
        if finding.severity > Severity.NOTE
    }
    assert loud == set()


def test_no_class_of_transformers_that_is_saved_tied_gets_more_than_a_loader_warning(
    records: list[dict[str, Any]],
) -> None:
    loud = {
        (record["architecture"], finding.slug)
        for record in records
        for finding in Saved(record, tied=True).findings()
        if finding.severity > Severity.NOTE and finding.slug != "tie-depends-on-loader"
    }
    assert loud == set()


def _declare_alias(path: Path, name: str, kept: str) -> None:
    """Add the metadata that `safetensors.torch.save_model` writes for a tensor of shared storage."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"][name] = kept
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def test_an_inverted_tie_that_the_weights_declare_is_a_warning(tmp_path: Path) -> None:
    tied = {
        "json": {"config.json": {"tie_word_embeddings": True}},
        "safetensors": {"model.safetensors": {"model.embed_tokens.weight": None}},
    }
    directory = build(changed(base("llama"), tied), tmp_path / "model")
    _declare_alias(directory / "model.safetensors", "model.embed_tokens.weight", "lm_head.weight")
    (finding,) = tokaudit.check(directory).findings
    assert (finding.rule, finding.severity) == ("TA206", Severity.WARNING)
    assert "model.embed_tokens.weight is an alias of lm_head.weight" in [
        claim.says for claim in finding.claims
    ]


def test_rows_of_an_inverted_tie_are_those_of_the_output_table(tmp_path: Path) -> None:
    stored = {"model.embed_tokens.weight": None, "lm_head.weight": {"dtype": "BF16", "shape": [310, 8]}}
    change = {
        "json": {"config.json": {"tie_word_embeddings": True}},
        "safetensors": {"model.safetensors": stored},
    }
    report = tokaudit.check(build(changed(base("llama"), change), tmp_path / "model"))
    beyond = [finding for finding in report.findings if finding.rule in ("TA101", "TA102")]
    assert beyond
    for finding in beyond:
        assert "the input embeddings have 310 rows" in finding.message
        assert "310 rows: ids 0 to 309" in {claim.says for claim in finding.claims}


def test_tables_of_two_dtypes_under_a_tie_differ_in_every_row(tmp_path: Path) -> None:
    change = {
        "json": {"config.json": {"tie_word_embeddings": True}},
        "safetensors": {
            "model.safetensors": {
                "lm_head.weight": {"dtype": "F32", "fill": {"same": "model.embed_tokens.weight"}},
            }
        },
    }
    (finding,) = tokaudit.check(build(changed(base("llama"), change), tmp_path / "model")).findings
    assert (finding.rule, finding.severity) == ("TA201", Severity.ERROR)
    assert "stored as BF16 and F32" in finding.message


def test_ids_of_a_vocabulary_are_looked_up_in_a_sound_table_of_its_own(tmp_path: Path) -> None:
    embeddings = load(build(base("llama"), tmp_path / "model")).embeddings
    other = replace(embeddings.input, group="per_layer")
    flat = replace(embeddings.input, group="decoder", malformed="1-D")
    sound = replace(embeddings.input, group="decoder")
    several = replace(embeddings, secondary=(other, flat, sound))
    assert input_side(several, "decoder") is sound
    assert input_side(several, "") is embeddings.input
    with pytest.raises(FactMissing, match="decoder's own vocabulary"):
        input_side(replace(embeddings, secondary=(other, flat)), "decoder")
