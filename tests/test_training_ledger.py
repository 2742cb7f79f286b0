"""`GradientLedger`: what it says of each row, against gradients worked out by hand and by autograd itself."""

from __future__ import annotations

from array import array

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import Model, batch, loss_of, norms, paths, recorded, train
from torch import nn

from tokaudit.contract.ledger import Ledger, Residual
from tokaudit.errors import UsageError
from tokaudit.training import GradientLedger

E = [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]


def near(values: object, abs: float = 1e-6) -> object:
    return pytest.approx(values, rel=1e-4, abs=abs)


class Lookup(nn.Module):
    """Only a table."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 2)
        with torch.no_grad():
            self.embed.weight.copy_(torch.tensor(E))


class Tied(Lookup):
    """Hidden states are the rows themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 4, bias=False)
        self.head.weight = self.embed.weight


def sgd(model: nn.Module, **options: float) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.5, **options)


# --- worked by hand -------------------------------------------------------------------------------------


def test_a_repeated_id_gets_the_sum_of_its_gradients() -> None:
    model = Lookup()
    optimizer = sgd(model)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        found = model.embed(torch.tensor([1, 3, 1]))
        assert found.tolist() == [[1, 0], [1, 1], [1, 0]]
        found.backward(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
        assert model.embed.weight.grad is not None
        assert model.embed.weight.grad.tolist() == [[0, 0], [6, 8], [0, 0], [3, 4]]
        optimizer.step()
    rows = ledger.rows()
    assert [row.visits for row in rows] == [0, 2, 0, 1]
    assert [row.input_gradient for row in rows] == near([0, 10, 0, 5])
    assert [row.output_gradient for row in rows] == [0, 0, 0, 0]
    assert [row.input_update for row in rows] == near([0, 5, 0, 2.5])


def test_printing_the_facts_of_a_large_table_takes_a_few_lines() -> None:
    model = nn.Sequential(nn.Embedding(5000, 2))
    with GradientLedger(model, optimizer=sgd(model)) as ledger:
        pass
    assert len(ledger.facts.visits) == 5000
    assert len(repr(ledger.facts)) < 1000


def test_ids_2_2_3_are_two_visits_and_one() -> None:
    model = Lookup()
    with GradientLedger(model, optimizer=(optimizer := sgd(model))) as ledger:
        model.embed(torch.tensor([2, 2, 3])).sum().backward()
        optimizer.step()
    rows = ledger.rows()
    assert [row.visits for row in rows] == [0, 0, 2, 1]
    assert [row.input_gradient for row in rows] == near([0, 0, 8**0.5, 2**0.5])


def test_a_tied_table_of_4_rows_by_both_paths() -> None:
    """One position: id 1 in, id 2 the answer. h = [1, 0], logits = E h = [0, 1, 0, 1].

    With p the softmax and d = p - onehot(2): the output path gives row r the gradient d[r] h, the input path
    gives row 1 the gradient E^T d.
    """
    model = Tied()
    with GradientLedger(model, optimizer=(optimizer := sgd(model))) as ledger:
        logits = model.head(model.embed(torch.tensor([1])))
        assert logits.tolist() == [[0, 1, 0, 1]]
        nn.functional.cross_entropy(logits, torch.tensor([2])).backward()
        optimizer.step()
    e = 2.718281828459045
    p = [1 / (2 + 2 * e), e / (2 + 2 * e)]
    d = [p[0], p[1], p[0] - 1, p[1]]
    through_input = [d[1] + d[3], 2 * d[2] + d[3]]
    rows = ledger.rows()
    assert [row.output_gradient for row in rows] == near([abs(x) for x in d])
    assert [row.input_gradient for row in rows] == near(
        [0, (through_input[0] ** 2 + through_input[1] ** 2) ** 0.5, 0, 0]
    )
    whole = [[x, 0.0] for x in d]
    whole[1] = [d[1] + through_input[0], through_input[1]]
    assert [row.input_update for row in rows] == near([0.5 * (a * a + b * b) ** 0.5 for a, b in whole])
    assert ledger.facts.tied


# --- against autograd -----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(2, 60),
    hidden=st.integers(1, 24),
    ids=st.lists(st.lists(st.integers(0, 10**6), min_size=2, max_size=9), min_size=1, max_size=4),
    padding=st.booleans(),
    bias=st.booleans(),
)
def test_in_any_tied_model_the_paths_are_autograds_own_and_add_up(
    rows: int, hidden: int, ids: list[list[int]], padding: bool, bias: bool
) -> None:
    model = Model(rows, hidden, bias=bias, padding_idx=rows - 1 if padding else None)
    optimizer = sgd(model)
    inputs = [torch.tensor([[id % rows for id in row]]) for row in ids]
    expected_input = expected_output = torch.zeros(rows, hidden)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        for one in inputs:
            through_input, through_output = paths(model, one)
            expected_input, expected_output = expected_input + through_input, expected_output + through_output
            loss_of(model, one).backward()
        total = model.embed.weight.grad
        assert total is not None
        assert torch.allclose(total, expected_input + expected_output, atol=1e-4)
        optimizer.step()
    table = ledger.facts.tables[0]
    assert list(table.input_gradients) == near(norms(expected_input), abs=1e-4)
    assert list(table.output_gradients) == near(norms(expected_output), abs=1e-4)
    assert isinstance(table.residual_or, Residual)
    assert table.residual_or.rows == 0


def test_an_untied_model_has_a_path_for_each_table() -> None:
    model = Model(tied=False)
    optimizer = sgd(model)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        loss_of(model, batch(0)).backward()
        expected = [norms(table.weight.grad) for table in (model.embed, model.head)]  # type: ignore[arg-type]
        optimizer.step()
    given_table, output_table = ledger.facts.tables
    assert (given_table.name, output_table.name) == ("embed.weight", "head.weight")
    assert list(given_table.input_gradients) == near(expected[0])
    assert list(output_table.output_gradients) == near(expected[1])
    assert not any(given_table.output_gradients)
    assert not any(output_table.input_gradients)
    for table in (given_table, output_table):
        assert isinstance(table.residual_or, Residual)
        assert table.residual_or.rows == 0


def test_norms_are_summed_over_steps_and_gradients_over_the_passes_of_one() -> None:
    model = Model()
    optimizer = sgd(model)
    through_input, through_output = torch.zeros(40), torch.zeros(40)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        for step in range(2):
            both = [paths(model, batch(10 * step + micro)) for micro in range(3)]
            through_input += torch.linalg.vector_norm(sum(one for one, _ in both), dim=1)
            through_output += torch.linalg.vector_norm(sum(two for _, two in both), dim=1)
            train(
                model, optimizer, steps=1, passes=3, batches=lambda micro, step=step: batch(10 * step + micro)
            )  # type: ignore[misc]
    facts = ledger.facts
    assert (facts.steps, facts.passes) == (2, 6)
    assert list(facts.tables[0].input_gradients) == near(through_input.tolist())
    assert list(facts.tables[0].output_gradients) == near(through_output.tolist())


def test_visits_count_positions_by_id() -> None:
    ledger = recorded(Model())
    seen = torch.cat([batch(step).flatten() for step in range(3)])
    assert list(ledger.facts.visits) == torch.bincount(seen, minlength=40).tolist()


def test_a_new_id_past_the_counts_was_not_visited() -> None:
    """As that of an output table with more rows than the input table."""
    ledger = Ledger(1, 1, array("q", [3, 0, 2]), (), new_ids=(1, 2, 3))
    assert (ledger.visited_new, ledger.visited_old) == ((2,), (0,))


def test_the_update_is_how_far_a_row_moved_whoever_moved_it() -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    moved = torch.zeros(40)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        for step in range(3):
            before = model.embed.weight.detach().clone()
            train(model, optimizer, steps=1, batches=lambda _, step=step: batch(step))  # type: ignore[misc]
            moved += torch.linalg.vector_norm(model.embed.weight.detach() - before, dim=1)
    assert list(ledger.facts.tables[0].updates) == near(moved.tolist())


def test_a_row_without_gradient_that_decays_is_untouched_and_moves() -> None:
    model = Model(tied=False, padding_idx=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    with GradientLedger(model, optimizer=optimizer, pad_id=0) as ledger:
        train(model, optimizer)
    table = ledger.facts.tables[0]
    assert table.weight_decay == 0.1
    assert table.optimizer == "AdamW"
    assert table.updates[0] == table.untouched[0] > 0
    assert table.input_gradients[0] == 0


def test_a_step_without_an_optimizer_is_noted_by_hand() -> None:
    model = Model()
    optimizer = sgd(model)
    with GradientLedger(model) as ledger:
        loss_of(model, batch(0)).backward()
        optimizer.step()
        ledger.step()
        optimizer.zero_grad()
        with pytest.raises(UsageError, match="after the gradients were cleared"):
            ledger.step()
    assert list(ledger.facts.tables[0].input_gradients) == list(
        recorded_once(Model()).facts.tables[0].input_gradients
    )
    with pytest.raises(UsageError, match="not open"):
        ledger.step()


def recorded_once(model: Model) -> GradientLedger:
    with GradientLedger(model, optimizer=(optimizer := sgd(model))) as ledger:
        train(model, optimizer, steps=1)
    return ledger


def test_a_window_can_be_opened_again_and_leaves_nothing_behind() -> None:
    model = Model()
    optimizer = sgd(model)
    ledger = GradientLedger(model, optimizer=optimizer)
    with ledger:
        train(model, optimizer)
        with pytest.raises(UsageError, match="open already"), ledger:
            pass
    train(model, optimizer)
    assert ledger.facts.steps == 3
    with ledger:
        train(model, optimizer, steps=1)
    assert ledger.facts.steps == 4
    assert not model.embed._forward_hooks
    assert not model.head._forward_hooks
    assert not model.embed.weight._post_accumulate_grad_hooks  # type: ignore[attr-defined]
    assert not optimizer._optimizer_step_post_hooks  # type: ignore[attr-defined]


def test_training_is_the_same_bit_for_bit_with_a_ledger() -> None:
    plain, watched = Model(), Model()
    train(plain, torch.optim.AdamW(plain.parameters(), lr=0.01), passes=2)
    optimizer = torch.optim.AdamW(watched.parameters(), lr=0.01)
    state = torch.get_rng_state()
    with GradientLedger(watched, optimizer=optimizer):
        train(watched, optimizer, passes=2)
    assert torch.equal(torch.get_rng_state(), state)
    for left, right in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(left, right)


def test_passes_that_no_step_follows_do_not_count() -> None:
    model = Model()
    optimizer = sgd(model)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        loss_of(model, batch(7)).backward()
        optimizer.zero_grad()  # a step that GradScaler or the loop skips
        train(model, optimizer, steps=1)
        loss_of(model, batch(8)).backward()
    assert list(ledger.facts.tables[0].input_gradients) == list(
        recorded_once(Model()).facts.tables[0].input_gradients
    )


def test_gradients_cleared_to_zeros_count_as_cleared() -> None:
    model = Model()
    optimizer = sgd(model)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        loss_of(model, batch(7)).backward()
        optimizer.zero_grad(set_to_none=False)
        train(model, optimizer, steps=1)
    assert list(ledger.facts.tables[0].input_gradients) == list(
        recorded_once(Model()).facts.tables[0].input_gradients
    )


def test_the_table_for_people_shows_new_rows_the_pad_row_and_medians() -> None:
    class Tokenizer:
        pad_token_id = 0

        def get_vocab(self) -> dict[str, int]:
            return {"<pad>": 0, "\x1b[31mnew": 39, **{f"w{id}": id for id in range(1, 39)}}

    text = str(recorded(Model(), tokenizer=Tokenizer(), new_ids=[39]))
    lines = text.splitlines()
    assert "3 steps" in lines[0]
    assert any(line.split()[:3] == ["0", '"<pad>"', "pad"] for line in lines)
    assert any(line.split()[0:1] == ["39"] and " new " in line for line in lines)
    assert "median of old" in lines[-1]
    assert "\x1b" not in text


# --- what adds nothing up, or cannot be followed --------------------------------------------------------


def test_a_third_use_of_the_table_is_found() -> None:
    model = Model()
    optimizer = sgd(model)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        for step in range(3):
            (loss_of(model, batch(step)) + 0.1 * model.embed.weight[5].pow(2).sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    residual = ledger.facts.tables[0].residual_or
    assert isinstance(residual, Residual)
    assert (residual.id, residual.rows) == (5, 1)
    assert [finding.rule for finding in ledger.report().findings if finding.severity.word == "error"] == [
        "TA933"
    ]


def test_a_lookup_that_goes_past_the_module_is_found() -> None:
    class Past(Model):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(torch.tanh(self.body(nn.functional.embedding(ids, self.embed.weight))))

    residual = recorded(Past()).facts.tables[0].residual_or
    assert isinstance(residual, Residual)
    assert residual.rows > 0


def test_logits_without_a_module_are_told_and_not_verified() -> None:
    class Functional(Model):
        def __init__(self) -> None:
            super().__init__()
            del self.head

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.body(self.embed(ids))) @ self.embed.weight.T

    ledger, usual = recorded(Functional()), recorded(Model())
    table = ledger.facts.tables[0]
    assert list(table.output_gradients) == near(list(usual.facts.tables[0].output_gradients))
    (skipped,) = [skip for skip in ledger.report().skipped if skip.rule.code == "TA933"]
    assert "no output module is known" in skipped.reason


def why_not_verified(model: nn.Module, **options: object) -> str:
    """The reason for which TA933 is skipped; the output path is what it is in the usual model."""
    ledger, usual = recorded(model, **options), recorded(Model())
    found, expected = ledger.facts.tables[0], usual.facts.tables[0]
    assert list(found.output_gradients) == near(list(expected.output_gradients), abs=1e-4)
    (skipped,) = [skip for skip in ledger.report().skipped if skip.rule.code == "TA933"]
    return skipped.reason


def test_a_loss_that_goes_past_the_output_module_is_told_and_not_verified() -> None:
    class Fused(Model):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(torch.tanh(self.body(self.embed(ids))), self.head.weight)

    assert "the output module is not called" in why_not_verified(Fused())


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_an_output_module_of_another_kind_is_verified_where_it_is_a_plain_product(scale: float) -> None:
    class Head(nn.Module):
        def __init__(self, weight: nn.Parameter) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return scale * (hidden @ self.weight.T)

    model = Model()
    model.head = Head(model.embed.weight)  # type: ignore[assignment]
    ledger = recorded(model, input="embed", output="head")
    skipped = [skip.reason for skip in ledger.report().skipped if skip.rule.code == "TA933"]
    assert skipped == ([] if scale == 1.0 else ["the output module is a Head, not an nn.Linear"])


def test_a_model_without_a_trained_table_is_refused() -> None:
    model = Model()
    model.embed.weight.requires_grad_(False)
    with pytest.raises(UsageError, match="none of the tables takes a gradient"):
        GradientLedger(model)


def test_a_computed_table_is_refused() -> None:
    model = Model(tied=False)
    nn.utils.parametrizations.weight_norm(model.embed, "weight")
    with pytest.raises(UsageError, match="a parametrization"):
        GradientLedger(model)


def test_data_parallel_is_refused() -> None:
    with pytest.raises(UsageError, match="DataParallel"):
        GradientLedger(nn.DataParallel(Model()))


def test_an_optimizer_that_does_not_hold_the_table_is_refused() -> None:
    model = Model()
    stale = sgd(model)
    model.embed.weight = nn.Parameter(model.embed.weight.detach().clone())
    model.head.weight = model.embed.weight
    with pytest.raises(UsageError, match=r"does not hold embed\.weight"):
        GradientLedger(model, optimizer=stale)


def test_new_ids_must_have_a_row() -> None:
    with pytest.raises(UsageError, match="there is no row 40"):
        GradientLedger(Model(), new_ids=[40])
