"""Each initialiser against its formula, computed here with torch alone: float32 sums, one rounding."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from models import Description, build, changed
from resizing import (
    EMBED,
    FLOATS,
    HEAD,
    another,
    bart,
    bert,
    biased,
    both_copies,
    tensor,
    tied,
    untied,
    with_dtype,
    with_rows,
)
from safetensors.torch import load_file, save_file

from tokaudit.resize import NewToken, Refused, Request, Result, plan_resize, resize

BIAS = "lm_head.bias"
WORD = "toast"  # two to four pieces in every tokenizer here
TORCH = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}


def grow(
    description: Description, out: Path, request: Request
) -> tuple[Result, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The result, and the tensors before and after."""
    source = build(description, out / "source")
    result = resize(source, out / "out", request)
    return (
        result,
        load_file(source / "model.safetensors"),
        load_file(out / "out" / "model.safetensors"),
    )


def asked(init: str, output_init: str = "", **options: int) -> Request:
    return Request(tokens=(NewToken(WORD),), init=init, output_init=output_init, **options)  # type: ignore[arg-type]


def pieces(result: Result) -> list[int]:
    (row,) = result.plan.rows
    return [piece.id for piece in row.input.pieces]


def wide(values: torch.Tensor) -> torch.Tensor:
    """In the dtype that sums are made in."""
    return values if values.dtype == torch.float64 else values.float()


def used(rows: torch.Tensor, count: int = 320) -> torch.Tensor:
    """The rows of the tokens that are neither zero nor not finite."""
    rows = wide(rows[:count])
    norms = rows.norm(dim=1)
    return rows[norms.isfinite() & (norms > 0)]


@pytest.mark.parametrize("dtype", FLOATS)
def test_mean_of_subwords(dtype: str, tmp_path: Path) -> None:
    result, old, new = grow(with_dtype(biased(), dtype), tmp_path, asked("mean-of-subwords"))
    assert len(pieces(result)) > 1
    for name in (EMBED, HEAD, BIAS):
        expected = wide(old[name])[pieces(result)].mean(0).to(TORCH[dtype])
        assert torch.equal(new[name][320], expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_weighted_subwords_prefers_the_last_piece_in_input_rows_and_the_first_in_output_rows(
    dtype: str, tmp_path: Path
) -> None:
    result, old, new = grow(with_dtype(biased(), dtype), tmp_path, asked("weighted-subwords"))
    count = len(pieces(result))
    rising = torch.arange(1, count + 1, dtype=torch.float64)
    rising /= rising.sum()
    for name, shares in ((EMBED, rising), (HEAD, rising.flip(0)), (BIAS, rising.flip(0))):
        expected = shares @ old[name][pieces(result)].double()
        torch.testing.assert_close(new[name][320], expected.to(TORCH[dtype]))


def test_rescaled_rows_have_the_median_norm_of_the_used_rows(tmp_path: Path) -> None:
    result, old, new = grow(biased(), tmp_path, asked("subword-mean-rescaled"))
    for name in (EMBED, HEAD):
        start = old[name][pieces(result)].mean(0)
        expected = start * used(old[name]).norm(dim=1).median() / start.norm()
        torch.testing.assert_close(new[name][320], expected)
    assert torch.equal(new[BIAS][320], old[BIAS][pieces(result)].mean())  # it has no direction to keep


def test_mean_leaves_out_padding_zero_and_broken_rows(tmp_path: Path) -> None:
    fill = {"rows": {"7": "zeros", "9": "nan", "11": "inf", "322-335": {"scale": 100.0}}}
    shape = with_rows(untied(), 336)
    description = changed(shape, {"safetensors": {"model.safetensors": {EMBED: {"fill": fill}}}})
    _, old, new = grow(description, tmp_path, asked("mean"))
    good = used(old[EMBED])
    assert len(good) == 317
    torch.testing.assert_close(new[EMBED][320], good.mean(0).to(torch.bfloat16))
    torch.testing.assert_close(new[HEAD][320], used(old[HEAD]).mean(0).to(torch.bfloat16))


def test_zero_is_a_value_like_any_other_in_a_bias(tmp_path: Path) -> None:
    zeros = {"rows": {"0-159": "zeros"}}
    description = changed(biased(), {"safetensors": {"model.safetensors": {BIAS: {"fill": zeros}}}})
    _, old, new = grow(description, tmp_path, asked("mean"))
    torch.testing.assert_close(new[BIAS][320], old[BIAS].mean())


def test_normal_has_the_covariance_of_the_used_rows_scaled(tmp_path: Path) -> None:
    tokens = tuple(NewToken(f"<{number}>") for number in range(2000))
    _, old, new = grow(biased(), tmp_path, Request(tokens=tokens, init="normal"))
    for name in (EMBED, HEAD):
        samples = new[name][320:].double()
        expected = torch.cov(used(old[name]).double().T) * 1e-3
        torch.testing.assert_close(torch.cov(samples.T), expected, rtol=0, atol=0.15 * float(expected.max()))
        torch.testing.assert_close(samples.mean(0), old[name].double().mean(0), rtol=0, atol=1e-4)


def test_normal_rows_differ_in_bfloat16_and_follow_the_seed(tmp_path: Path) -> None:
    tokens = (NewToken("<a>"), NewToken("<b>"))
    rows = {}
    for seed in (0, 1):
        request = Request(tokens=tokens, init="normal", seed=seed)
        _, _, rows[seed] = grow(untied(), tmp_path / str(seed), request)
    for name in (EMBED, HEAD):
        first, second = rows[0][name][320:]
        assert (first != second).float().mean() > 0.7  # in transformers most coordinates are bit-equal
        assert not torch.equal(rows[0][name][320:], rows[1][name][320:])


def test_zeros(tmp_path: Path) -> None:
    result, _, new = grow(biased(), tmp_path, asked("zeros"))
    assert all(not new[name][320].any() for name in (EMBED, HEAD, BIAS))
    assert any("logit 0" in note for note in result.plan.warnings)


@pytest.mark.parametrize("dtype", FLOATS)
def test_copy_is_exact(dtype: str, tmp_path: Path) -> None:
    _, old, new = grow(with_dtype(biased(), dtype), tmp_path, asked("copy=<|user|>"))
    assert all(torch.equal(new[name][320], old[name][309]) for name in (EMBED, HEAD, BIAS))


def test_means_of_double_precision_are_as_precise(tmp_path: Path) -> None:
    path = build(with_dtype(untied(), "F64"), tmp_path / "source") / "model.safetensors"
    save_file({name: torch.randn(320, 8, dtype=torch.float64) for name in (EMBED, HEAD)}, path)
    resize(tmp_path / "source", tmp_path / "out", asked("mean"))
    old, new = load_file(path), load_file(tmp_path / "out" / path.name)
    for name in (EMBED, HEAD):
        torch.testing.assert_close(new[name][320], old[name].mean(0), rtol=1e-13, atol=1e-15)


def test_zero_rows_without_logits_are_no_worry(tmp_path: Path) -> None:
    config = {"model_type": "bert", "vocab_size": 320, "hidden_size": 8}
    encoder = another("BertModel", config, {"embeddings.word_embeddings.weight": tensor(320, 8)})
    assert plan_resize(build(encoder, tmp_path / "source"), asked("zeros")).warnings == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [("<|nobody|>", "the tokenizer has no such token"), ("<|reserved_6|>", "there is no row 318")],
)
def test_a_copy_of_what_has_no_row_is_refused(content: str, reason: str, tmp_path: Path) -> None:
    source = build(with_rows(untied(), 318), tmp_path / "source")
    with pytest.raises(Refused, match=re.escape(f"copy={content}: {reason}")):
        plan_resize(source, asked(f"copy={content}"))


def test_description_reads_the_pieces_of_another_text(tmp_path: Path) -> None:
    result, old, new = grow(biased(), tmp_path, asked("description=the inner ear"))
    assert "".join(piece.content for piece in result.plan.rows[0].input.pieces) == "theĠinnerĠear"
    assert torch.equal(new[EMBED][320], old[EMBED][pieces(result)].mean(0))


def test_output_rows_can_have_a_method_of_their_own(tmp_path: Path) -> None:
    _, old, new = grow(biased(), tmp_path, asked("copy=<|user|>", "copy=<|system|>"))
    assert torch.equal(new[EMBED][320], old[EMBED][309])
    assert torch.equal(new[HEAD][320], old[HEAD][308])
    assert torch.equal(new[BIAS][320], old[BIAS][308])


def test_a_tokens_own_method_counts_for_both_sides(tmp_path: Path) -> None:
    request = Request(tokens=(NewToken(WORD, init="copy=<|user|>"), NewToken("<b>")), init="zeros")
    _, old, new = grow(biased(), tmp_path, request)
    for name in (EMBED, HEAD):
        assert torch.equal(new[name][320], old[name][309])
        assert not new[name][321].any()


def test_a_tied_table_takes_the_input_method(tmp_path: Path) -> None:
    result, old, new = grow(tied(), tmp_path, asked("weighted-subwords", "zeros"))
    shares = torch.tensor(result.plan.rows[0].input.weights(output_side=False))
    expected = shares @ old[EMBED].float()[pieces(result)]
    torch.testing.assert_close(new[EMBED][320], expected.to(torch.bfloat16))


@pytest.mark.parametrize("init", ["weighted-subwords", "normal", "mean", "copy=a"])
def test_two_stored_copies_of_a_tied_table_stay_equal(init: str, tmp_path: Path) -> None:
    _, _, new = grow(both_copies(), tmp_path, asked(init, "zeros", rows=330))
    assert torch.equal(new[EMBED], new[HEAD])


def test_both_names_of_a_tied_encoders_bias_stay_equal(tmp_path: Path) -> None:
    _, _, new = grow(bert(), tmp_path, asked("mean-of-subwords", rows=330))
    assert torch.equal(new["cls.predictions.bias"], new["cls.predictions.decoder.bias"])


def test_a_bias_of_shape_1_v_follows(tmp_path: Path) -> None:
    result, old, new = grow(bart(), tmp_path, asked("mean-of-subwords", rows=330))
    bias = new["final_logits_bias"]
    assert bias.shape == (1, 330)
    assert torch.equal(bias[0, :320], old["final_logits_bias"][0])
    assert torch.equal(bias[0, 320], old["final_logits_bias"][0, pieces(result)].mean())
    assert torch.equal(bias[0, 321:], torch.full((9,), -1e4))


@pytest.mark.parametrize("dtype", FLOATS)
def test_padding_rows_are_the_mean_and_are_never_chosen_by_a_bias(dtype: str, tmp_path: Path) -> None:
    _, old, new = grow(with_dtype(biased(), dtype), tmp_path, Request(multiple=64, rows=321))
    assert len(new[EMBED]) == 384
    for name in (EMBED, HEAD):
        expected = used(old[name]).double().mean(0).to(TORCH[dtype])
        torch.testing.assert_close(new[name][320:], expected.expand(64, -1))
    assert torch.equal(new[BIAS][320:], torch.full((64,), -1e4, dtype=TORCH[dtype]))


def test_gemma_3n_reads_row_0_for_ids_past_its_per_layer_table_and_goes_on_to(tmp_path: Path) -> None:
    from resizing import another

    text = {"model_type": "gemma3n_text", "vocab_size": 320, "vocab_size_per_layer_input": 312}
    per_layer = "model.language_model.embed_tokens_per_layer.weight"
    tensors = {"model.language_model.embed_tokens.weight": tensor(320, 8), per_layer: tensor(312, 6)}
    config = {"model_type": "gemma3n", "text_config": {**text, "hidden_size": 8}}
    description = another("Gemma3nForConditionalGeneration", config, tensors)
    result, old, new = grow(description, tmp_path, asked("mean-of-subwords", rows=324))
    assert torch.equal(new[per_layer][:312], old[per_layer])
    assert torch.equal(new[per_layer][312:320], old[per_layer][0].expand(8, -1))
    assert torch.equal(new[per_layer][320], old[per_layer][pieces(result)].mean(0))
    edits = {edit.at.pointer: edit.after for edit in result.plan.files}
    assert edits["/text_config/vocab_size_per_layer_input"] == 324


def test_unknown_pieces_and_pieces_without_a_row_are_left_out(tmp_path: Path) -> None:
    description = bert()
    result, old, new = grow(description, tmp_path, Request(tokens=(NewToken("to \u4e2d st"),)))
    contents = [piece.content for piece in result.plan.rows[0].input.pieces]
    assert contents == ["t", "##o", "s", "##t"]
    embed = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(new[embed][320], old[embed][pieces(result)].mean(0))


def test_a_text_without_pieces_falls_back_to_the_mean_and_says_so(tmp_path: Path) -> None:
    result, old, new = grow(bert(), tmp_path, Request(tokens=(NewToken("\u4e2d"),)))
    (row,) = result.plan.rows
    assert "mean of the rows in use" in row.input.note
    embed = "bert.embeddings.word_embeddings.weight"
    torch.testing.assert_close(new[embed][320], used(old[embed]).mean(0))


def test_a_token_that_takes_the_space_in_front_is_decomposed_with_it(tmp_path: Path) -> None:
    source = build(untied(), tmp_path / "source")
    texts = {}
    for lstrip in (False, True):
        plan = plan_resize(source, Request(tokens=(NewToken("ear", lstrip=lstrip),)))
        texts[lstrip] = "".join(piece.content for piece in plan.rows[0].input.pieces)
    assert texts == {False: "ear", True: "Ġear"}


def test_the_mark_of_a_first_word_is_no_piece_of_a_token_in_running_text(tmp_path: Path) -> None:
    from resizing import t5

    plan = plan_resize(build(t5(), tmp_path / "source"), Request(tokens=(NewToken("\u4e2de"),)))
    assert [piece.content for piece in plan.rows[0].input.pieces] == ["e"]


@pytest.mark.parametrize(
    ("fill", "init"),
    [({"rows": {"97": "nan"}}, "mean-of-subwords"), ({"rows": {"309": "inf"}}, "copy=<|user|>")],
)
def test_a_row_made_from_a_broken_one_is_refused(fill: Description, init: str, tmp_path: Path) -> None:
    change = {"safetensors": {"model.safetensors": {EMBED: {"fill": fill}}}}
    source = build(changed(untied(), change), tmp_path / "source")
    with pytest.raises(Refused, match="would not be finite"):
        resize(source, tmp_path / "out", Request(tokens=(NewToken("aaa"),), init=init))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_value_too_large_for_float16_is_refused(tmp_path: Path) -> None:
    source = build(with_dtype(untied(), "F16"), tmp_path / "source")
    tensors = load_file(source / "model.safetensors")
    tensors[EMBED][:] = 60000.0  # the norm of such a row is far above what float16 holds
    tensors[EMBED][97] = 1.0
    tensors[EMBED][97, 0] = 2.0
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    request = Request(tokens=(NewToken("aaa"),), init="subword-mean-rescaled")
    with pytest.raises(Refused, match="would not be finite"):
        resize(source, tmp_path / "out", request)
