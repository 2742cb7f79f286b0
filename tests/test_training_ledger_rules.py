"""The rules about training steps (TA93x): each breached in a small run, silent in one that looks alike."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest
import torch
from ledgers import Model, batch, loss_of, recorded, train
from torch import nn

import tokaudit
from tokaudit.contract import Missing
from tokaudit.contract.ledger import Ledger, Residual, TableLedger
from tokaudit.findings import Finding, Severity
from tokaudit.report import Report, Verdict
from tokaudit.reporters import View, names, reporter
from tokaudit.training import GradientLedger
from tokaudit.training.ledger import report

ROWS = 12


def table(**changes: Any) -> TableLedger:
    """A tied table in which every row got a gradient through the output path, and rows 1 to 9 input ones."""
    given = array("d", [0.0, *[2.0] * 9, 0.0, 0.0])
    plain = TableLedger(
        name="embed.weight",
        looked_up=True,
        gives_logits=True,
        trained=True,
        input_gradients=given,
        output_gradients=array("d", [1.0] * ROWS),
        updates=array("d", [0.5] * ROWS),
        untouched=array("d", [0.0] * ROWS),
        residual_or=Residual(3, 1e-6, 1e-3, 0),
        optimizer="AdamW",
    )
    return replace(plain, **changes)


def ledger(*tables: TableLedger, **changes: Any) -> Ledger:
    visits = array("q", [0, *[4] * 9, 0, 0])
    plain = Ledger(steps=5, passes=10, visits=visits, tables=tables or (table(),))
    return replace(plain, **changes)


def changed(values: array[Any], **at: float) -> array[Any]:
    """``changed(values, _3=7.0)``: the values with another one at 3."""
    values = values[:]
    for name, value in at.items():
        values[int(name[1:])] = value
    return values


def found(held: Ledger, code: str) -> list[Finding]:
    """The findings of one rule, which must have been decided."""
    made = report(held, "Model")
    assert code in {ref.code for ref in made.checked}, [s.reason for s in made.skipped]
    return [finding for finding in made.findings if finding.rule == code]


def skipped(held: Ledger, code: str) -> str:
    (reason,) = [skip.reason for skip in report(held, "Model").skipped if skip.rule.code == code]
    return reason


# --- TA931 ----------------------------------------------------------------------------------------------


def test_new_tokens_that_no_input_held_are_named() -> None:
    held = ledger(new_ids=(9, 10, 11), contents={10: "<new>", 11: "\x1b[2J"})
    (finding,) = found(held, "TA931")
    assert finding.severity is Severity.WARNING
    assert '2 of 3 new tokens were not visited in 5 steps: 10 "<new>", 11 "\\x1b[2J"' in finding.message


def test_new_tokens_that_were_visited_are_fine() -> None:
    assert found(ledger(new_ids=(8, 9)), "TA931") == []
    assert "no new ids" in skipped(ledger(), "TA931")


# --- TA932 ----------------------------------------------------------------------------------------------


def test_a_pad_row_that_the_output_path_moves_is_a_note() -> None:
    (finding,) = found(ledger(pad_id=0, contents={0: "<pad>"}), "TA932")
    assert finding.severity is Severity.NOTE
    assert '0 "<pad>"' in finding.message
    assert "through the output path (gradient 1)" in finding.message
    assert "input path" not in finding.message


def test_a_pad_row_that_the_input_path_moves_is_a_warning() -> None:
    (finding,) = found(ledger(pad_id=3), "TA932")
    assert finding.severity is Severity.WARNING
    assert "through the input path (gradient 2), and through the output path" in finding.message


def test_a_pad_row_that_decays_says_so() -> None:
    untouched = array("d", [0.5, *[0.0] * 11])
    silent = table(
        gives_logits=False,
        output_gradients=array("d", [0.0] * ROWS),
        untouched=untouched,
        weight_decay=0.1,
    )
    (finding,) = found(ledger(silent, pad_id=0), "TA932")
    assert finding.severity is Severity.NOTE
    assert "without a gradient (0.5, by weight decay 0.1)" in finding.message


def test_a_pad_row_that_only_the_input_path_moves_says_nothing_of_another_path() -> None:
    silent = table(gives_logits=False, output_gradients=array("d", [0.0] * ROWS))
    (finding,) = found(ledger(silent, pad_id=3), "TA932")
    assert finding.message.endswith(": through the input path (gradient 2)")


def test_a_pad_row_that_an_optimizer_moves_for_next_to_no_gradient_is_a_note_that_says_so() -> None:
    """Adam's steps are of one size, however small the gradient."""
    given = changed(table().input_gradients, _0=1e-9)
    silent = table(gives_logits=False, output_gradients=array("d", [0.0] * ROWS), input_gradients=given)
    (finding,) = found(ledger(silent, pad_id=0), "TA932")
    assert finding.severity is Severity.NOTE
    assert finding.message.endswith(": through the input path (gradient 1e-09)")


def test_a_pad_row_that_rests_is_fine() -> None:
    resting = table(updates=array("d", [0.0, *[0.5] * 11]))
    assert found(ledger(resting, pad_id=0), "TA932") == []
    assert found(ledger(pad_id=ROWS + 7), "TA932") == []
    assert "no pad id" in skipped(ledger(), "TA932")


# --- TA933 ----------------------------------------------------------------------------------------------


def test_a_residual_beyond_rounding_is_an_error() -> None:
    (finding,) = found(ledger(table(residual_or=Residual(7, 0.4, 1e-3, 2))), "TA933")
    assert finding.severity is Severity.ERROR
    assert "2 rows of embed.weight is not what came through the input and the output path" in finding.message
    assert str(finding.claims[0].at) == "ledger#embed.weight[7]"
    assert "off by 0.4" in finding.claims[0].says


def test_a_residual_within_rounding_is_fine() -> None:
    assert found(ledger(table(residual_or=Residual(7, 9e-4, 1e-3, 0))), "TA933") == []


def test_a_table_that_was_not_verified_is_skipped_and_the_other_one_is_judged() -> None:
    given = table(gives_logits=False, residual_or=Residual(7, 0.4, 1e-3, 1))
    output = table(name="head.weight", looked_up=False, residual_or=Missing("the head is odd"))
    held = ledger(given, output)
    assert [finding.subject for finding in found(held, "TA933")] == ["embed.weight"]
    assert skipped(held, "TA933") == "the head is odd"


# --- TA934 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "words"), [(80.0, "1 above, 0 below"), (0.02, "0 above, 1 below")])
def test_new_tokens_with_gradients_of_another_size_are_noted(size: float, words: str) -> None:
    given = changed(table().input_gradients, _9=size)
    (finding,) = found(ledger(table(input_gradients=given), new_ids=(8, 9, 10)), "TA934")
    assert finding.severity is Severity.NOTE
    assert "1 of 2 visited new tokens" in finding.message
    assert words in finding.message
    assert f"{size / 2:.3g} times the median" in finding.claims[0].says


def test_gradients_are_compared_per_visit() -> None:
    often = changed(ledger().visits, _9=400)
    given = changed(table().input_gradients, _9=200.0)
    held = ledger(table(input_gradients=given), visits=often, new_ids=(9,))
    assert found(held, "TA934") == []
    assert held.ratio() == 1.0


def test_there_is_no_ratio_without_visited_new_rows_or_gradients_of_old_ones() -> None:
    assert ledger(new_ids=(10, 11)).ratio() is None
    silent = table(input_gradients=array("d", [*[0.0] * 9, 2.0, 0.0, 0.0]))
    assert ledger(silent, new_ids=(9,)).ratio() is None


def test_the_ratio_of_a_path_is_that_of_its_own_gradients() -> None:
    held = ledger(table(output_gradients=changed(table().output_gradients, _9=5.0)), new_ids=(9,))
    assert (held.ratio(), held.ratio(output=True)) == (1.0, 5.0)


def test_tables_are_tied_where_one_record_is_of_both() -> None:
    assert ledger(table()).tied
    assert not ledger(table(gives_logits=False), table(looked_up=False)).tied
    assert not ledger(table(looked_up=False)).tied


def test_rows_are_those_of_the_longer_table_and_a_table_that_is_not_known_says_nothing() -> None:
    short = table(name="short", looked_up=False, updates=array("d", [0.5] * 9), input_gradients=array("d"))
    held = ledger(table(gives_logits=False), replace(short, output_gradients=array("d", [1.0] * 9)))
    assert held.ids == range(ROWS)
    assert [row.output_update for row in held.rows()] == [*[0.5] * 9, None, None, None]
    assert {row.input_update for row in ledger(short).rows()} == {None}
    assert {row.output_update for row in ledger(table(gives_logits=False)).rows()} == {None}


def test_without_rows_to_compare_the_rule_is_skipped() -> None:
    assert "no new ids" in skipped(ledger(), "TA934")
    assert "too few visited rows" in skipped(ledger(new_ids=(10, 11)), "TA934")
    assert "too few visited rows" in skipped(ledger(new_ids=tuple(range(1, 8))), "TA934")


# --- TA935 ----------------------------------------------------------------------------------------------


def test_rows_that_move_without_a_gradient_are_noted_new_ones_first() -> None:
    still = table(output_gradients=array("d", [0.0] * ROWS), weight_decay=0.01)
    (finding,) = found(ledger(still, new_ids=(11,)), "TA935")
    assert finding.severity is Severity.NOTE
    assert "3 rows of embed.weight moved without a gradient in 5 steps" in finding.message
    assert "weight decay 0.01 of AdamW): 11, 0, 10" in finding.message


def test_rows_that_rest_or_have_a_gradient_are_fine() -> None:
    assert found(ledger(), "TA935") == []
    resting = table(
        output_gradients=array("d", [0.0] * ROWS), updates=array("d", [0.0, *[0.5] * 9, 0.0, 0.0])
    )
    assert found(ledger(resting), "TA935") == []


# --- in runs --------------------------------------------------------------------------------------------


def causes(made: Report) -> dict[str, str]:
    return {finding.rule: finding.severity.word for finding in made.findings}


def test_a_right_run_has_only_the_note_about_its_pad_row() -> None:
    ledger = recorded(Model(padding_idx=0), pad_id=0, new_ids=sorted(set(batch(0).flatten().tolist()))[-2:])
    assert causes(ledger.report()) == {"TA932": "note"}
    assert ledger.report().verdict() is Verdict.PASS


def test_new_tokens_that_the_data_splits_are_found_in_a_run() -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with GradientLedger(model, new_ids=[38, 39], optimizer=optimizer) as ledger:
        train(model, optimizer, batches=lambda step: batch(step, rows=38))
    assert causes(ledger.report()) == {"TA931": "warning"}


def test_padding_that_is_not_masked_is_found_in_a_run() -> None:
    """The body mixes positions, and no mask keeps padding out: the pad row gets an input gradient."""

    class Mixing(Model):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            embedded = self.embed(ids)
            return self.head(torch.tanh(self.body(embedded + embedded.mean(1, keepdim=True))))

    def padded(step: int) -> torch.Tensor:
        ids = batch(step).clamp(min=1)
        ids[:, -2:] = 0
        return ids

    def run(model: nn.Module) -> dict[str, str]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with GradientLedger(model, pad_id=0, optimizer=optimizer) as ledger:
            for step in range(3):
                ids = padded(step)
                labels = ids[:, 1:].masked_fill(ids[:, 1:] == 0, -100)
                logits = model(ids)[:, :-1]
                nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
                optimizer.step()
                optimizer.zero_grad()
        return causes(ledger.report())

    assert run(Mixing()) == {"TA932": "warning"}
    assert run(Model()) == {"TA932": "note"}


def test_weight_decay_on_rows_without_gradient_is_found_in_a_run() -> None:
    def run(weight_decay: float) -> dict[str, str]:
        model = Model(tied=False)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=weight_decay)
        with GradientLedger(model, optimizer=optimizer) as ledger:
            train(model, optimizer, batches=lambda step: batch(step, rows=20))
        return causes(ledger.report())

    assert run(0.1) == {"TA935": "note"}
    assert run(0.0) == {}


def test_new_rows_that_start_far_too_long_are_found_in_a_run() -> None:
    def run(scale: float) -> dict[str, str]:
        model = Model(tied=False)
        with torch.no_grad():
            model.embed.weight[38:] *= scale
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with GradientLedger(model, new_ids=[38, 39], optimizer=optimizer) as ledger:
            for step in range(4):
                ids = batch(step, rows=38)
                ids[:, :2] = torch.tensor([38, 39])
                loss_of(model, ids).backward()
                optimizer.step()
                optimizer.zero_grad()
        return causes(ledger.report())

    assert run(1.0) == {}
    assert run(60.0) == {"TA934": "note"}  # tanh saturates: nothing comes back


# --- the report -----------------------------------------------------------------------------------------


def test_a_ledger_without_steps_decides_nothing() -> None:
    made = GradientLedger(Model()).report()
    assert made.checked == ()
    assert {skip.reason for skip in made.skipped} == {"no optimizer step was recorded"}
    assert made.target == "Model"


@pytest.mark.parametrize("format", names())
def test_every_reporter_takes_the_report(format: str) -> None:
    made = report(
        ledger(table(residual_or=Residual(7, 0.4, 1e-3, 2)), new_ids=(11,), contents={11: "\x1b::"}), "Model"
    )
    text = reporter(format).render([made], View())
    assert "TA933" in text
    assert "\x1b" not in text


def test_an_audit_of_files_does_not_ask_for_a_ledger() -> None:
    from models import FIXTURES

    made = tokaudit.check(FIXTURES / "tinylm")
    assert not any(skip.rule.code.startswith("TA93") for skip in made.skipped)
