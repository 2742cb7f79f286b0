"""`audit_batch`: each mistake in a batch is found and placed, and batches that only look odd are clean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tokaudit.contract import Missing
from tokaudit.contract.batch import Batch
from tokaudit.errors import UsageError
from tokaudit.findings import Severity
from tokaudit.report import Report
from tokaudit.training import audit_batch
from tokaudit.training.expectations import LabelKind, expectations
from tokaudit.training.measure import edges, measure

TINYLM = Path(__file__).resolve().parents[1] / "fixtures" / "tinylm"

PAD, BOS, EOS = 0, 1, 2
IGNORE = -100
Tensors = dict[str, Any]


def found(report: Report) -> list[str]:
    assert report.unreadable == ()
    return [finding.rule for finding in report.findings]


def skipped(report: Report) -> dict[str, str]:
    return {skip.rule.code: skip.reason for skip in report.skipped}


def rows(*ids: list[int]) -> torch.Tensor:
    return torch.tensor(ids)


def masked(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return ids.masked_fill(mask == 0, IGNORE)


@pytest.fixture
def batch() -> Tensors:
    """Two texts of 8 and 4 tokens with ends, padded to the right."""
    ids = rows([BOS, 10, 11, 12, 13, 14, 15, EOS], [BOS, 20, 21, EOS, PAD, PAD, PAD, PAD])
    mask = (ids != PAD).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": masked(ids, mask)}


def audit(batch: Tensors, rows: int | nn.Module = 512, **options: Any) -> Report:
    return audit_batch(batch, rows, **{"pad_id": PAD, "eos_id": EOS, **options})


@pytest.fixture(scope="module")
def tinylm() -> nn.Module:
    model: nn.Module = transformers.AutoModelForCausalLM.from_pretrained(TINYLM, dtype=torch.float32)
    return model


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(TINYLM)


# --- clean batches ---------------------------------------------------------------------------------------


def test_a_sound_batch_is_checked_by_every_rule_and_clean(batch: Tensors) -> None:
    report = audit(batch)
    assert found(report) == []
    assert skipped(report) == {}
    assert [ref.code for ref in report.checked] == [f"TA92{n}" for n in range(1, 8)]


def test_padding_to_the_left_is_fine(batch: Tensors) -> None:
    assert found(audit({name: tensor.flip(1) for name, tensor in batch.items()}, eos_id=BOS)) == []


def test_a_batch_of_the_tokenizer_itself_is_clean(tinylm: nn.Module, tokenizer: Any) -> None:
    texts = ["The valley lies between two hills.</s>", "A river.</s>"]
    encoded = tokenizer(texts, return_tensors="pt", padding=True)
    encoded["labels"] = masked(encoded["input_ids"], encoded["attention_mask"])
    report = audit_batch(encoded, tinylm, tokenizer=tokenizer)
    assert found(report) == []
    assert skipped(report) == {}


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_collator_of_transformers_makes_clean_batches(
    tinylm: nn.Module, tokenizer: Any, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "padding_side", side)
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    made = collate([tokenizer(text + "</s>") for text in ("A river.", "The valley lies between two hills.")])
    assert found(audit_batch(made, tinylm, tokenizer=tokenizer)) == []


def test_the_collator_of_pairs_makes_clean_batches(tokenizer: Any) -> None:
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "vocab_size": 512}
    t5 = small("T5ForConditionalGeneration", **sizes, pad_token_id=PAD, decoder_start_token_id=PAD)
    pairs = [("A river.", "The valley lies between two hills."), ("It rains in the valley.", "A mill.")]
    collate = transformers.DataCollatorForSeq2Seq(tokenizer, t5)
    made = collate([tokenizer(text + "</s>", text_target=target + "</s>") for text, target in pairs])
    report = audit_batch(made, t5, tokenizer=tokenizer)
    assert found(report) == []
    assert {"TA921", "TA923", "TA924"} <= {ref.code for ref in report.checked}


def test_the_collator_that_packs_texts_makes_clean_batches(tinylm: nn.Module, tokenizer: Any) -> None:
    collate = transformers.DataCollatorWithFlattening()
    made = collate([tokenizer(text + "</s>") for text in ("A river.", "The valley lies between two hills.")])
    report = audit_batch(made, tinylm, tokenizer=tokenizer)
    assert found(report) == []
    assert made["position_ids"].shape == made["input_ids"].shape


@st.composite
def sound_batches(draw: st.DrawFn) -> dict[str, Any]:
    """What collators for causal models make: any side, ends, prompts, packed texts, pad tokens."""
    pad = draw(st.sampled_from([PAD, EOS, BOS, 3]))
    side = draw(st.sampled_from(["left", "right"]))
    token = st.integers(4, 30)
    texts, kept = [], []
    for _ in range(draw(st.integers(1, 4))):
        text, keep = [BOS] if draw(st.booleans()) else [], []
        keep = [draw(st.booleans())] * len(text)
        for _ in range(draw(st.integers(1, 3))):
            part = draw(st.lists(token, min_size=1, max_size=6))
            text += [*part, EOS] if draw(st.booleans()) else part
            keep += [draw(st.booleans())] * (len(text) - len(keep))
        texts.append(text)
        kept.append(keep)
    longest = max(map(len, texts))
    ids, mask, labels = [], [], []
    for text, keep in zip(texts, kept, strict=True):
        rest = longest - len(text)
        known = [id if label else IGNORE for id, label in zip(text, keep, strict=True)]
        rows = ([pad] * rest, text), ([0] * rest, [1] * len(text)), ([IGNORE] * rest, known)
        for into, (padding, own) in zip((ids, mask, labels), rows, strict=True):
            into.append(padding + own if side == "left" else own + padding)
    tensors = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {"pad_id": pad, **{name: torch.tensor(rows) for name, rows in tensors.items()}}


@given(sound_batches(), st.booleans())
@settings(max_examples=400, deadline=None)
def test_no_sound_batch_of_a_causal_model_gets_a_finding(made: dict[str, Any], with_mask: bool) -> None:
    pad = made["pad_id"]
    batch = {name: tensor for name, tensor in made.items() if name != "pad_id"}
    some = bool((batch["labels"] != IGNORE).any())
    if not with_mask:
        del batch["attention_mask"]
    assert found(audit(batch, pad_id=pad)) == ([] if some else ["TA927"])


def test_packed_documents_with_ends_between_them_are_fine() -> None:
    ids = rows([10, 11, EOS, 12, 13, 14, EOS, 15], [16, 17, 18, EOS, 19, 20, 21, EOS])
    for pad in (PAD, EOS, None):
        report = audit({"input_ids": ids, "labels": ids.clone()}, pad_id=pad)
        assert found(report) == []


def test_packed_documents_separated_and_ended_by_the_pad_token_are_fine() -> None:
    ids = rows([10, 11, PAD, 12, 13, 14, 15, PAD], [PAD, 17, 18, PAD, 19, 20, 21, 22])
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}
    assert found(audit(batch)) == []


def test_a_mask_with_four_axes_is_not_compared(batch: Tensors) -> None:
    batch["attention_mask"] = torch.ones(2, 1, 8, 8).tril()
    report = audit(batch)
    assert found(report) == []
    assert skipped(report) == {"TA923": "attention_mask is not [N, L] but [2, 1, 8, 8]"}


def test_a_mask_for_each_kind_of_layer_is_not_compared(batch: Tensors) -> None:
    batch["attention_mask"] = {"full_attention": torch.ones(2, 1, 8, 8)}
    assert found(audit(batch)) == []


def test_a_mask_of_numbers_to_add_is_not_compared(batch: Tensors) -> None:
    batch["attention_mask"] = (1.0 - batch["attention_mask"].float()) * -1e9
    report = audit(batch)
    assert found(report) == []
    assert skipped(report)["TA923"] == "attention_mask holds numbers to add, and no marks"


def test_a_mask_that_numbers_packed_documents_is_fine(batch: Tensors) -> None:
    batch["attention_mask"] = rows([1, 1, 1, 2, 2, 2, 3, 3], [1, 1, 1, 1, 0, 0, 0, 0])
    assert found(audit(batch)) == []


def test_hidden_padding_with_another_id_than_the_pad_token_is_fine(batch: Tensors) -> None:
    assert found(audit(batch, pad_id=77)) == []


def test_prompts_without_labels_are_fine(batch: Tensors) -> None:
    ids = rows([BOS, 30, 31, EOS, 10, 11, 12, EOS], [BOS, 30, EOS, 10, EOS, PAD, PAD, PAD])
    labels = rows([IGNORE] * 4 + [10, 11, 12, EOS], [IGNORE] * 3 + [10, EOS] + [IGNORE] * 3)
    assert found(audit({"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels})) == []


def test_masked_language_models_have_few_labels() -> None:
    torch.manual_seed(0)
    for _ in range(200):
        text = torch.randint(5, 40, (2, 12))
        text[:, 0], text[:, -1] = BOS, EOS
        chosen = (torch.rand(2, 12) < 0.15) & (text != EOS) & (text != BOS)
        inputs = torch.where(chosen & (torch.rand(2, 12) < 0.8), 4, text)
        labels = text.masked_fill(~chosen, IGNORE)
        mask = torch.ones_like(inputs)
        report = audit({"input_ids": inputs, "attention_mask": mask, "labels": labels})
        assert found(report) == ([] if chosen.any() else ["TA927"])


def test_labels_of_an_encoder_decoder_stand_beside_its_decoder() -> None:
    ids = rows([10, 11, 12, 13, EOS, PAD, PAD, PAD], [20, 21, 22, 23, 24, 25, 26, EOS])
    labels = rows([30, 31, 32, 33, 34, 35, 36, EOS], [40, 41, 42, EOS, IGNORE, IGNORE, IGNORE, IGNORE])
    decoder = rows([PAD, 30, 31, 32, 33, 34, 35, 36], [PAD, 40, 41, 42, EOS, PAD, PAD, PAD])
    mask = (ids != PAD).long()
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    assert found(audit({**batch, "decoder_input_ids": decoder})) == []
    assert found(audit({**batch, "labels": labels[:, :6], "decoder_input_ids": decoder[:, :6]})) == []
    assert found(audit(batch)) == []  # where nothing says that there is a decoder


@pytest.mark.parametrize(
    "labels", [torch.tensor([1, 0]), torch.tensor([0.5, -3.0]), rows([0, 1, 0, 0], [1, 1, 0, 0])]
)
def test_labels_that_are_classes_or_numbers_are_none_of_its_business(
    batch: Tensors, labels: torch.Tensor
) -> None:
    report = audit({**batch, "labels": labels})
    assert found(report) == []
    assert {"TA924", "TA925", "TA926"} <= set(skipped(report))


def test_classes_of_tokens_are_no_token_ids(batch: Tensors) -> None:
    batch["labels"] = masked(
        rows([0, 3, 3, 0, 0, 4, 0, 0], [0, 3, 0, 0, 0, 0, 0, 0]), batch["attention_mask"]
    )
    assert found(audit(batch)) == []


def test_a_token_that_is_repeated_shows_no_shift() -> None:
    ids = torch.full((2, 8), 7)
    labels = torch.cat([ids[:, 1:], ids[:, :1]], 1)
    assert found(audit({"input_ids": ids, "labels": labels})) == []


@pytest.mark.parametrize("length", [1, 2])
def test_very_short_sequences_are_clean(length: int) -> None:
    ids = torch.arange(10, 10 + 2 * length).reshape(2, length)
    assert found(audit({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids})) == []
    moved = torch.roll(ids, -1, 1)
    assert found(audit({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": moved})) == []


def test_a_row_of_padding_alone_is_no_text(batch: Tensors) -> None:
    batch["input_ids"][1] = PAD
    batch["labels"][1] = IGNORE
    batch["attention_mask"][1] = 1
    assert found(audit(batch)) == []


def test_a_batch_without_ids_is_skipped_with_its_reason() -> None:
    report = audit({"inputs_embeds": torch.rand(2, 8, 4), "attention_mask": torch.ones(2, 8)})
    assert found(report) == []
    assert skipped(report)["TA921"] == "the batch has no input_ids"


def test_a_batch_of_nothing_that_is_known_is_not_called_checked() -> None:
    report = audit({"x": torch.rand(2, 8)})
    assert report.checked == ()
    assert skipped(report)["TA922"] == 'the batch has no tensor that is known: it has "x"'


def test_ids_with_a_third_axis_are_not_judged() -> None:
    report = audit({"input_ids": torch.full((2, 4, 8), 9999), "attention_mask": torch.ones(2, 4, 8)})
    assert found(report) == []


def test_one_sequence_of_several_texts_is_fine_with_their_lengths() -> None:
    ids = torch.arange(10, 20)
    assert found(audit({"input_ids": ids, "labels": ids, "cu_seqlens": torch.tensor([0, 4, 10])})) == []
    assert found(audit({"input_ids": ids, "labels": ids})) == ["TA922"]


# --- ids -------------------------------------------------------------------------------------------------


def test_the_first_id_out_of_range_is_named_with_its_place(batch: Tensors) -> None:
    batch["input_ids"][0, 5] = batch["labels"][0, 5] = 600
    batch["input_ids"][1, 1] = batch["labels"][1, 1] = 512
    report = audit(batch)
    assert found(report) == ["TA921", "TA921"]
    inputs, labels = report.findings
    assert inputs.message == "2 ids of input_ids lie outside of 0 to 511: first 600 at input_ids[0, 5]"
    assert labels.message == "2 ids of labels lie outside of 0 to 511: first 600 at labels[0, 5]"
    assert inputs.severity is Severity.ERROR


def test_the_last_row_is_in_range(batch: Tensors) -> None:
    batch["input_ids"][0, 5] = batch["labels"][0, 5] = 511
    assert found(audit(batch)) == []


def test_inputs_may_not_be_ignored_but_labels_may(batch: Tensors) -> None:
    batch["input_ids"] = masked(batch["input_ids"], batch["attention_mask"])
    report = audit(batch)
    assert found(report) == ["TA921"]
    assert report.findings[0].message.endswith("first -100 at input_ids[1, 4]")
    assert str(report.findings[0].claims[0].at) == "batch#input_ids[1]"
    assert "-100" in report.findings[0].fix


def test_labels_padded_with_minus_one_are_out_of_range_unless_it_is_ignored(batch: Tensors) -> None:
    batch["labels"][batch["labels"] == IGNORE] = -1
    assert found(audit(batch)) == ["TA921"]
    assert found(audit(batch, ignore_id=-1)) == []


def test_texts_of_ids_come_from_the_tokenizer(batch: Tensors, tinylm: nn.Module, tokenizer: Any) -> None:
    batch["labels"] = batch["input_ids"]
    finding = audit_batch(batch, tinylm, tokenizer=tokenizer).findings[0]
    assert '0 "<pad>" at labels[1, 4]' in finding.message


def test_rows_come_from_the_model(batch: Tensors, tinylm: nn.Module) -> None:
    batch["input_ids"][0, 3] = batch["labels"][0, 3] = 512
    finding = audit_batch(batch, tinylm).findings[0]
    assert finding.claims[1].says == "512 rows: the input embeddings (model.embed_tokens)"


@pytest.mark.parametrize("convert", [lambda ids: ids.numpy(), lambda ids: ids.tolist()])
def test_arrays_and_lists_are_read(batch: Tensors, convert: Any) -> None:
    assert found(audit({name: convert(tensor) for name, tensor in batch.items()})) == []
    batch["input_ids"][1, 2] = 900
    report = audit({name: convert(tensor) for name, tensor in batch.items()})
    assert "900 at input_ids[1, 2]" in report.findings[0].message


def test_narrow_arrays_are_read_and_their_ids_judged() -> None:
    ids = np.array([[1, 5, 65535]], dtype=np.uint16)
    report = audit({"input_ids": ids})
    assert "65535 at input_ids[0, 2]" in report.findings[0].message


# --- dtype and shape -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (torch.ones(2, 4), "input_ids is float32 [2, 4], where int64 (or int32) is expected"),
        (
            torch.ones(2, 4, dtype=torch.int16),
            "input_ids is int16 [2, 4], where int64 (or int32) is expected",
        ),
        (torch.ones(2, 4, dtype=torch.bool), "input_ids is bool [2, 4], where int64 (or int32) is expected"),
        ([[1.0, 2.0]], "input_ids is float32 [1, 2], where int64 (or int32) is expected"),
        (torch.ones(4, dtype=torch.int64), "input_ids is int64 [4], where [N, L] is expected"),
        (
            torch.ones(0, 4, dtype=torch.int64),
            "input_ids is int64 [0, 4], where at least one position is expected",
        ),
        ([[1, 2], [3]], "where a rectangle of integers [N, L] is expected"),
    ],
)
def test_ids_of_another_dtype_or_shape_are_malformed(ids: Any, says: str) -> None:
    report = audit({"input_ids": ids})
    assert found(report) == ["TA922"]
    assert says in report.findings[0].message
    assert skipped(report)["TA921"] == "input_ids is malformed"


def test_int32_is_enough_for_a_lookup() -> None:
    assert found(audit({"input_ids": torch.ones(2, 4, dtype=torch.int32)})) == []


def test_a_mask_of_another_shape_is_malformed(batch: Tensors) -> None:
    batch["attention_mask"] = batch["attention_mask"][:, 1:]
    report = audit(batch)
    assert found(report) == ["TA922"]
    assert "int64 [2, 7], where [2, 8], the shape of input_ids is expected" in report.findings[0].message


def test_labels_that_a_causal_model_cannot_compare_are_malformed(batch: Tensors, tinylm: nn.Module) -> None:
    for labels in (batch["labels"].float(), batch["labels"].int(), batch["labels"][:, 1:]):
        assert found(audit_batch({**batch, "labels": labels}, tinylm)) == ["TA922"]


def test_a_batch_that_is_no_mapping_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="expected a batch that is a mapping"):
        audit_batch([[1, 2]], 512)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [0, -3, "512", True])
def test_a_number_of_rows_that_is_none_is_wrong_usage(rows: Any) -> None:
    with pytest.raises(UsageError, match="expected a model or its number of rows"):
        audit_batch({}, rows)


def test_a_tokenizer_that_is_a_path_is_wrong_usage(batch: Tensors) -> None:
    with pytest.raises(UsageError, match="expected a tokenizer, found PosixPath"):
        audit(batch, tokenizer=TINYLM)


# --- the mask --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [1, -1])
def test_padding_that_is_attended_to_is_found_on_both_sides(batch: Tensors, side: int) -> None:
    batch["attention_mask"][1] = 1
    sided = {name: tensor.flip(1) if side == -1 else tensor for name, tensor in batch.items()}
    report = audit(sided)
    assert found(report) == ["TA923"]
    place = "input_ids[1, 5]" if side == 1 else "input_ids[1, 0]"
    assert f"3 positions of input_ids that the model attends to are padding: first 0 at {place}" == (
        report.findings[0].message
    )
    places = [str(claim.at) for claim in report.findings[0].claims]
    assert places == ["batch#input_ids[1]", "batch#attention_mask"]


def test_tokens_that_are_hidden_are_found(batch: Tensors) -> None:
    batch["attention_mask"][0, 2:5] = 0
    report = audit(batch)
    assert found(report) == ["TA923"]
    assert (
        report.findings[0].message
    ) == "3 positions of input_ids that attention_mask hides are no padding: first 11 at input_ids[0, 2]"
    places = [str(claim.at) for claim in report.findings[0].claims]
    assert places == ["batch#input_ids[0]", "batch#attention_mask"]


def test_an_inverted_mask_is_found_both_ways(batch: Tensors) -> None:
    batch["attention_mask"] = 1 - batch["attention_mask"]
    assert found(audit(batch)) == ["TA923", "TA923"]


def test_without_a_pad_id_the_mask_cannot_be_judged(batch: Tensors) -> None:
    reason = skipped(audit(batch, pad_id=None))["TA923"]
    assert reason == "no pad id was given, and neither tokenizer nor model states one"


def test_a_causal_model_without_a_mask_reads_padding_to_the_left_only(
    batch: Tensors, tinylm: nn.Module
) -> None:
    del batch["attention_mask"]
    assert found(audit_batch(batch, tinylm)) == []
    left = {name: tensor.flip(1) for name, tensor in batch.items()}
    report = audit_batch(left, tinylm)
    assert found(report) == ["TA923"]
    assert "there is no attention_mask" in report.findings[0].message


def test_a_module_of_ones_own_may_make_its_mask_itself(batch: Tensors) -> None:
    del batch["attention_mask"]
    report = audit({name: tensor.flip(1) for name, tensor in batch.items()}, eos_id=BOS)
    assert skipped(report)["TA923"] == "the batch has no attention_mask"


# --- labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [1, -1])
def test_padding_with_labels_is_found(batch: Tensors, side: int) -> None:
    batch["labels"] = batch["input_ids"].clone()
    sided = {name: tensor.flip(1) if side == -1 else tensor for name, tensor in batch.items()}
    report = audit(sided)
    assert found(report) == ["TA924"]
    assert report.findings[0].severity is Severity.WARNING
    place = "labels[1, 4]" if side == 1 else "labels[1, 0]"
    assert report.findings[0].message == f"4 positions of padding have labels: first 0 at {place}"
    assert report.findings[0].claims[1].says == "padding by attention_mask"


def test_padding_with_labels_is_found_by_the_pad_id_alone_and_by_the_mask_alone(batch: Tensors) -> None:
    batch["labels"] = batch["input_ids"].clone()
    unpadded = audit(batch, pad_id=None)
    assert found(unpadded) == ["TA924"]
    del batch["attention_mask"]
    by_id = audit(batch)
    assert found(by_id) == ["TA924"]
    assert by_id.findings[0].claims[1].says == "padding by pad id 0"
    reason = skipped(audit(batch, pad_id=None))["TA924"]
    assert reason == "nothing shows which positions are padding: no pad id is known"


def test_a_loop_whose_loss_ignores_the_pad_token_says_so(batch: Tensors) -> None:
    batch["labels"] = batch["input_ids"].clone()
    assert found(audit(batch, ignore_id=PAD)) == []


def test_labels_of_a_decoder_that_end_in_pad_tokens_are_found() -> None:
    ids = rows([10, 11, 12, EOS], [20, 21, 22, EOS])
    labels = rows([30, 31, 32, 33, 34, EOS], [40, EOS, PAD, PAD, PAD, PAD])
    decoder = rows([PAD, 30, 31, 32, 33, 34], [PAD, 40, EOS, PAD, PAD, PAD])
    report = audit({"input_ids": ids, "labels": labels, "decoder_input_ids": decoder})
    assert found(report) == ["TA924"]
    assert report.findings[0].message == "3 positions of padding have labels: first 0 at labels[1, 3]"


@pytest.mark.parametrize("last", [IGNORE, 99, BOS])
def test_labels_that_were_moved_are_found(batch: Tensors, last: int) -> None:
    end = torch.full((2, 1), last)
    batch["labels"] = torch.cat([batch["labels"][:, 1:], end], 1)
    report = audit(batch)
    assert found(report) == ["TA925"]
    assert report.findings[0].severity is Severity.ERROR
    assert "10 of 10 are the input at the next position" in report.findings[0].message
    assert "predict the token after the next" in report.findings[0].why


def test_labels_of_a_stream_of_tokens_that_were_moved_are_found() -> None:
    stream = torch.randint(5, 500, (4, 65))
    report = audit({"input_ids": stream[:, :-1], "labels": stream[:, 1:]})
    assert found(report) == ["TA925"]


def test_labels_that_were_moved_the_other_way_are_found(batch: Tensors) -> None:
    batch["labels"] = torch.cat([torch.full((2, 1), IGNORE), batch["labels"][:, :-1]], 1)
    report = audit(batch)
    assert found(report) == ["TA925"]
    assert "the input at the position before" in report.findings[0].message
    assert "repeat its input" in report.findings[0].why


def test_labels_that_were_moved_are_found_behind_inputs_with_noise() -> None:
    torch.manual_seed(0)
    text = torch.randint(5, 500, (4, 65))
    noisy = torch.where(torch.rand(4, 65) < 0.05, torch.randint(5, 500, (4, 65)), text)
    assert found(audit({"input_ids": noisy[:, :-1], "labels": text[:, 1:]})) == ["TA925"]
    assert found(audit({"input_ids": noisy, "labels": text})) == []


class Loop(nn.Module):
    """A module whose loss is made outside of it, of labels that its loader moved."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(512, 8)
        self.head = nn.Linear(8, 512, bias=False)


class Moving(Loop):
    """A module that moves labels itself."""

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.embed(ids))
        return nn.functional.cross_entropy(logits[..., :-1, :].flatten(0, 1), labels[..., 1:].flatten())


@pytest.mark.parametrize(("module", "severity"), [(Loop, Severity.NOTE), (Moving, Severity.ERROR)])
def test_moved_labels_are_a_note_for_a_module_that_may_want_them(
    batch: Tensors, module: type[nn.Module], severity: Severity
) -> None:
    batch["labels"] = torch.cat([batch["labels"][:, 1:], torch.full((2, 1), IGNORE)], 1)
    report = audit(batch, module())
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("TA925", severity)]
    assert ("right for a loss" in report.findings[0].why) is (severity is Severity.NOTE)
    assert ("nothing where the loss takes them so" in report.findings[0].fix) is (severity is Severity.NOTE)


def test_ends_of_texts_without_labels_are_found(batch: Tensors) -> None:
    batch["labels"][batch["labels"] == EOS] = IGNORE
    report = audit(batch)
    assert found(report) == ["TA926"]
    assert report.findings[0].message == "2 ends of texts have no label: first 2 at input_ids[0, 7]"
    assert report.findings[0].fix == "keep the label of the token that ends a text"


def test_the_classical_trap_padding_with_the_end_of_sequence_is_found(tokenizer: Any) -> None:
    """A collator masks every pad token, and so the ends of all texts."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(TINYLM, pad_token="</s>")
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    made = collate([tokenizer(text + "</s>") for text in ("A river.", "The valley lies between two hills.")])
    report = audit_batch(made, 512, tokenizer=tokenizer)
    assert found(report) == ["TA926"]
    assert report.findings[0].message.startswith('2 ends of texts have no label: first 2 "</s>" at input_ids')
    assert "pads as well" in report.findings[0].claims[0].says
    assert "mask labels where the attention mask is 0" in report.findings[0].fix


def test_padding_with_the_end_of_sequence_is_fine_where_ends_keep_their_labels(batch: Tensors) -> None:
    batch["input_ids"][batch["input_ids"] == PAD] = EOS
    assert found(audit(batch, pad_id=EOS)) == []


def test_texts_that_were_cut_have_no_end_to_miss(batch: Tensors) -> None:
    ids = rows([10, 11, 12, 13], [20, 21, EOS, EOS])
    mask = rows([1, 1, 1, 1], [1, 1, 0, 0])
    assert (
        found(audit({"input_ids": ids, "attention_mask": mask, "labels": masked(ids, mask)}, pad_id=EOS))
        == []
    )


def test_without_a_mask_an_end_cannot_be_told_from_padding_with_it(batch: Tensors) -> None:
    ids = rows([10, 11, 12, EOS], [20, 21, EOS, EOS])
    labels = ids.masked_fill(ids == EOS, IGNORE)
    report = audit({"input_ids": ids, "labels": labels}, pad_id=EOS)
    assert found(report) == []
    assert skipped(report)["TA926"] == "the batch has no attention_mask"


def test_each_of_several_ends_counts(batch: Tensors) -> None:
    batch["labels"][0, 7] = IGNORE
    batch["input_ids"][0, 7] = 9
    assert found(audit(batch, eos_id=(EOS, 9))) == ["TA926"]
    assert found(audit(batch)) == []


def test_a_batch_without_any_label_is_found(batch: Tensors, tinylm: nn.Module) -> None:
    batch["labels"].fill_(IGNORE)
    assert torch.isnan(tinylm(**batch).loss)
    report = audit(batch)
    assert found(report) == ["TA927"]
    assert report.findings[0].message == (
        "no label of the batch takes part in the loss: 16 positions, and -100 at each"
    )
    batch["labels"][0, 3] = 13
    assert found(audit(batch)) == []


# --- what models expect ----------------------------------------------------------------------------------


def small(architecture: str, **options: Any) -> nn.Module:
    """A model of transformers with random weights, as small as it can be."""
    sizes = {"vocab_size": 50, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    model_class = getattr(transformers, architecture)
    config = model_class.config_class(**{**sizes, "intermediate_size": 8, **options})
    model: nn.Module = model_class(config)
    return model


@pytest.mark.parametrize(
    ("architecture", "options", "kind"),
    [
        ("LlamaForCausalLM", {}, LabelKind.NEXT),
        ("GPT2LMHeadModel", {"n_embd": 8, "n_head": 2, "n_layer": 1}, LabelKind.NEXT),
        ("BertForMaskedLM", {}, LabelKind.SAME),
        ("BertForTokenClassification", {}, LabelKind.CLASSES),
        ("T5ForConditionalGeneration", {"d_model": 8, "d_kv": 4, "d_ff": 8}, LabelKind.DECODED),
        (
            "BartForCausalLM",
            {"d_model": 8, "decoder_layers": 1, "decoder_attention_heads": 2},
            LabelKind.UNKNOWN,
        ),
        ("XLNetLMHeadModel", {"d_model": 8, "n_head": 2, "n_layer": 1, "d_inner": 8}, LabelKind.UNKNOWN),
    ],
)
def test_what_labels_are_is_known_of_the_class(
    architecture: str, options: dict[str, int], kind: LabelKind
) -> None:
    assert expectations(small(architecture, **options)).labels is kind


def test_positions_and_segments_have_bounds_where_they_are_looked_up() -> None:
    bert = small("BertForMaskedLM", max_position_embeddings=8)
    ids = torch.arange(5, 13).reshape(1, 8)
    ones = torch.ones_like(ids)
    assert found(audit_batch({"input_ids": ids, "attention_mask": ones, "token_type_ids": ones}, bert)) == []
    wrong = {"input_ids": ids, "attention_mask": ones, "token_type_ids": 2 * ones, "position_ids": ids}
    report = audit_batch(wrong, bert)
    assert [finding.subject for finding in report.findings] == ["position_ids", "token_type_ids"]
    assert "first 8 at position_ids[0, 3]" in report.findings[0].message
    fixes = [finding.fix.partition(":")[0] for finding in report.findings]
    assert fixes == ["keep position_ids below 8", "keep token_type_ids below 2"]


def test_a_sequence_beyond_the_table_of_positions_is_found() -> None:
    gpt2 = small("GPT2LMHeadModel", n_embd=8, n_head=2, n_layer=1, n_positions=8, pad_token_id=0)
    report = audit_batch({"input_ids": torch.ones(2, 10, dtype=torch.int64)}, gpt2)
    assert [finding.subject for finding in report.findings] == ["position_ids"]
    assert (
        "4 ids of position_ids lie outside of 0 to 7: first 8 at input_ids[0, 8]"
        in report.findings[0].message
    )


def test_rotary_positions_have_no_bound() -> None:
    llama = small("LlamaForCausalLM", max_position_embeddings=8)
    ids = torch.arange(5, 15).reshape(1, 10)
    assert found(audit_batch({"input_ids": ids, "position_ids": ids, "labels": ids}, llama)) == []


def test_labels_of_a_classifier_are_held_against_its_classes(batch: Tensors) -> None:
    model = small("BertForSequenceClassification", num_labels=3)
    ids = rows([5, 6], [7, 8])
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert found(audit_batch({**batch, "labels": torch.tensor([0, 2])}, model)) == []
    report = audit_batch({**batch, "labels": torch.tensor([0, 3])}, model)
    assert found(report) == ["TA921"]
    assert "first 3 at labels[1]" in report.findings[0].message
    assert report.findings[0].claims[1].says == "3 rows: num_labels of the configuration"


def test_an_encoder_without_a_mask_reads_padding_on_the_right() -> None:
    t5 = small("T5ForConditionalGeneration", d_model=8, d_kv=4, d_ff=8)
    ids = rows([10, 11, 12, 1], [10, 1, PAD, PAD])
    labels = rows([20, 21, 1], [20, 1, IGNORE])
    assert found(audit_batch({"input_ids": ids, "labels": labels}, t5)) == ["TA923"]
    mask = (ids != PAD).long()
    assert found(audit_batch({"input_ids": ids, "attention_mask": mask, "labels": labels}, t5)) == []


def test_placeholders_of_images_need_no_row() -> None:
    llama = small("LlamaForCausalLM")
    llama.config.image_token_id = 60  # type: ignore[union-attr]
    ids = rows([10, 60, 60, 11])
    assert found(audit_batch({"input_ids": ids}, llama)) == []
    assert found(audit_batch({"input_ids": ids + 1}, llama)) == ["TA921"]


# --- cost ------------------------------------------------------------------------------------------------


class Waits(TorchDispatchMode):
    """Counts the operations that wait for the device: values that are read, and shapes made of values."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal")

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        indexed = name == "index" and any(i is not None and i.dtype is torch.bool for i in args[1])
        if name in self.WAITING or indexed:
            self.names.append(name)
        return function(*args, **(kwargs or {}))


def test_the_device_is_waited_for_once(batch: Tensors, monkeypatch: pytest.MonkeyPatch) -> None:
    lists: list[int] = []
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: lists.append(tensor.numel()) or tolist(tensor))
    batch["labels"] = batch["input_ids"].clone()
    batch["input_ids"][0, 5] = 600
    expected = expectations(512, pad_id=PAD, eos_id=EOS)
    with Waits() as waits:
        facts = measure(batch, expected)
    assert waits.names == []
    assert len(lists) == 1
    assert isinstance(facts, Batch)
    assert not isinstance(facts.unmasked_or, Missing)


def test_operations_that_wait_are_counted() -> None:
    """So that the test above can fail."""
    with Waits() as waits:
        ids = torch.arange(4)
        assert ids[ids > 1].sum().item() == 5
    assert waits.names == ["index", "_local_scalar_dense"]


@pytest.mark.parametrize("make", [lambda ids: ids.to("meta"), torch.Tensor.to_sparse], ids=["meta", "sparse"])
def test_a_tensor_without_values_to_look_at_skips_the_rules(
    make: Callable[[torch.Tensor], torch.Tensor], batch: Tensors
) -> None:
    report = audit_batch({"input_ids": make(batch["input_ids"])}, 512, pad_id=PAD)
    assert report.findings == ()
    assert "TA921" in {skip.rule.code for skip in report.skipped}


def test_the_batch_is_left_as_it_was(batch: Tensors) -> None:
    before = {name: tensor.clone() for name, tensor in batch.items()}
    audit(batch)
    assert all(torch.equal(batch[name], before[name]) for name in before)


@pytest.mark.parametrize(
    ("ids", "leading", "trailing"),
    [
        ([0, 0, 0, 5, 6, 0, 0], [1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1]),
        ([0, 5, 0, 0, 6, 7, 0], [0] * 7, [0] * 7),
        ([0] * 7, [0] * 7, [0] * 7),
        ([5] * 7, [0] * 7, [0] * 7),
    ],
)
def test_the_pad_token_next_to_a_text_is_not_called_padding(
    ids: list[int], leading: list[int], trailing: list[int]
) -> None:
    assert [edge.int().tolist() for edge in edges(rows(ids), PAD)] == [[leading], [trailing]]
