"""From what was asked to the columns of the answer: one for each vocabulary that is compared."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tokaudit.contract import Contract, Missing, Options, RowCount, Tie, Vocabulary
from tokaudit.cost.corpus import Encoded, Text, encode_all, read_text
from tokaudit.cost.model import Model, model_tables
from tokaudit.cost.tables import Positions, Tables, plain_tables, rounded_up
from tokaudit.errors import FactMissing, TokauditError, UsageError
from tokaudit.formats.vocabulary_files import is_tokenizer_file
from tokaudit.load import load
from tokaudit.progress import Progress
from tokaudit.text import counted

NO_CORPUS = Missing("no --corpus was given")
NO_TOKENIZER = Missing("a number has no tokenizer")
NOT_KNOWN_YET = Missing("what new tokens shorten shows only once they exist")
DTYPE = "bfloat16"


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for: a model directory, ``vocab_sizes``, ``tokenizers``, or several of them.

    ``hidden``, ``tied`` and ``dtype`` describe a model whose weights do not: without ``path``, or without
    weights in it.
    """

    path: str | None = None
    vocab_sizes: tuple[int, ...] = ()
    hidden: int | None = None
    tied: bool | None = None
    dtype: str | None = None
    add: int | None = None
    multiple: int | None = None
    positions: Positions = field(default_factory=Positions)
    corpus: str | None = None
    tokenizers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """One vocabulary.

    ``kind`` is "model" (as it stands), "vocab-size", "tokenizer", "add", "pad" or "add-pad". ``tokenizer``
    is the directory whose tokenizer encodes the corpus, ``encoded`` what comes of it.
    """

    title: str
    kind: str
    tables: Tables
    tokenizer: str | Missing
    encoded: Encoded | Missing = NO_CORPUS


@dataclass(frozen=True, slots=True)
class Costs:
    """``target`` is the model directory, "" without one. ``errors`` are what could not be read or encoded."""

    target: str
    columns: tuple[Column, ...]
    positions: Positions
    text: Text | None
    remarks: tuple[str, ...]
    errors: tuple[TokauditError, ...]

    def stretch(self, column: Column) -> float | Missing:
        """How many times as many tokens the column's tokenizer makes of the corpus as the first one does."""
        if isinstance(column.encoded, Missing):
            return column.encoded
        encoded = (each.encoded for each in self.columns if isinstance(each.encoded, Encoded))
        return column.encoded.tokens / max(1, next(encoded).tokens)


def costs(request: Request, progress: Progress) -> Costs:
    """Raises UsageError, FactMissing where no tables are found, and Unreadable where nothing can be read."""
    errors: list[TokauditError] = []
    remarks: list[str] = []
    columns: list[Column] = []
    base: Tables | None = None
    if request.path is not None:
        contract = load(request.path)
        errors += _damage(contract, request)
        model = _model(contract, request, errors)
        base = model.tables
        remarks += model.remarks
        first = Column("now", "model", base, _own_tokenizer(contract, request.path))
        columns += _variants(first, request, _required_rows(contract), remarks)
    for rows in request.vocab_sizes:
        tables = _plain(rows, request)
        columns += _variants(Column(f"{rows:,}", "vocab-size", tables, NO_TOKENIZER), request, rows, remarks)
    for title, path in zip(_titles(request.tokenizers), request.tokenizers, strict=True):
        contract = load(path, options=Options(read_weights=False))
        errors += contract.damage
        rows = rounded_up(contract.vocabulary.required_rows.value, request.multiple)
        tables = _plain(rows, request) if base is None else base.with_rows(rows)
        columns.append(Column(title, "tokenizer", tables, _own_tokenizer(contract, path)))
    text = None
    if request.corpus is not None:
        text = read_text(request.corpus)
        columns = _encoded(columns, text, progress, errors)
    return Costs(
        request.path or "",
        tuple(columns),
        request.positions,
        text,
        tuple(dict.fromkeys(remarks)),
        tuple(errors),
    )


def _damage(contract: Contract, request: Request) -> Iterator[TokauditError]:
    """What could not be read and the numbers rest on.

    The tokenizer is needed for the corpus, and for the rows that are left for new tokens.
    """
    needs_tokenizer = request.add is not None or request.corpus is not None
    for part in contract.damage:
        beside = not needs_tokenizer and is_tokenizer_file(part.file)
        if not beside and part.file != "generation_config.json":
            yield part


def _model(contract: Contract, request: Request, errors: Sequence[TokauditError]) -> Model:
    """The tables of the files; where there are no weights, those that the configuration asks for.

    Raises the first of the errors where they may be why no table is found.
    """
    described = request.hidden, request.tied, request.dtype
    if not isinstance(contract.checkpoint_or, Missing):
        if any(value is not None for value in described):
            raise UsageError("--hidden, --tied and --dtype are for a model without weights: these tell")
        try:
            return model_tables(contract)
        except FactMissing:
            if errors:
                raise errors[0] from None
            raise
    if request.hidden is None:
        if errors:
            raise errors[0]
        raise UsageError(
            f"the width of the tables is not known: {contract.checkpoint_or.reason}", hint="give --hidden"
        )
    expected = contract.embeddings.expected_input_or
    rows = expected.value if isinstance(expected, RowCount) else contract.vocabulary.required_rows.value
    source = expected.formula if isinstance(expected, RowCount) else "the tokenizer's largest id"
    tie = contract.embeddings.tie_or
    tied = tie.tied if request.tied is None and isinstance(tie, Tie) else bool(request.tied)
    tables = plain_tables(rows, request.hidden, request.dtype or DTYPE, tied=tied)
    return Model(tables, (f"there are no weights: the rows follow from {source}",))


def _plain(rows: int, request: Request) -> Tables:
    if request.hidden is None:
        raise UsageError("how wide the tables are is not known", hint="give --hidden, or a model directory")
    return plain_tables(rows, request.hidden, request.dtype or DTYPE, tied=bool(request.tied))


def _required_rows(contract: Contract) -> int | Missing:
    try:
        return contract.vocabulary.required_rows.value
    except FactMissing as missing:
        return Missing(missing.reason)


def _own_tokenizer(contract: Contract, path: str) -> str | Missing:
    vocabulary = contract.vocabulary_or
    if isinstance(vocabulary, Vocabulary) and not isinstance(vocabulary.pipeline_or, Missing):
        return path
    return Missing(f"there is no tokenizer.json in {path} that can be read")


def _variants(
    first: Column, request: Request, required: int | Missing, remarks: list[str]
) -> Iterable[Column]:
    """The vocabulary as it is, and with what is added to it or rounded up.

    ``required`` rows are those that tokens have: new tokens take the rows behind them first.
    """
    yield first
    rows = first.tables.rows
    if isinstance(rows, Missing):
        if request.add or request.multiple:
            remarks.append(f"what more rows cost is not known: {rows.reason}")
        return
    grown = rows
    if request.add is not None:
        grown = rows + request.add
        if isinstance(required, int):
            spare = min(request.add, max(0, rows - required))
            grown -= spare
            if spare:
                remarks.append(f"{counted(spare, 'new token')} of {request.add:,} fit into padding rows")
        yield _variant(first, f"+{request.add:,}", "add", grown, NOT_KNOWN_YET)
    if request.multiple is not None:
        multiple = request.multiple
        padded = rounded_up(rows, multiple)
        yield _variant(first, f"to {multiple:,}", "pad", padded, first.tokenizer)
        if request.add is not None:
            padded = rounded_up(grown, multiple)
            yield _variant(first, f"+{request.add:,}, to {multiple:,}", "add-pad", padded, NOT_KNOWN_YET)


def _variant(first: Column, title: str, kind: str, rows: int, tokenizer: str | Missing) -> Column:
    if first.kind == "vocab-size":
        title = f"{first.title} {title}"
    return replace(first, title=title, kind=kind, tables=first.tables.with_rows(rows), tokenizer=tokenizer)


def _titles(paths: Sequence[str]) -> list[str]:
    """The last part of each path; the whole path where two have the same."""
    short = [os.path.basename(os.path.normpath(path)) or path for path in paths]
    uses = Counter(short)
    return [path if uses[name] > 1 else name for name, path in zip(short, paths, strict=True)]


def _encoded(
    columns: list[Column], text: Text, progress: Progress, errors: list[TokauditError]
) -> list[Column]:
    """The columns with what their tokenizers make of the text, each tokenizer asked once."""
    paths = list(dict.fromkeys(c.tokenizer for c in columns if isinstance(c.tokenizer, str)))
    found: dict[str, Encoded | Missing] = {}
    for path, answer in zip(paths, encode_all(text, paths, progress), strict=True):
        if isinstance(answer, TokauditError):
            errors.append(TokauditError(f"{path}: {answer.message}", hint=answer.hint))
            found[path] = Missing(answer.message)
        else:
            found[path] = answer
    return [
        replace(c, encoded=found[c.tokenizer] if isinstance(c.tokenizer, str) else c.tokenizer)
        for c in columns
    ]
