"""Audits the contract between a tokenizer and a checkpoint.

    >>> report = tokaudit.check("path/to/model")
    >>> report.verdict()
    <Verdict.PASS: 'pass'>
    >>> [finding.rule for finding in report.findings]
    ['TA108']

    >>> tokaudit.lock("path/to/model").mapping.digest
    'sha256:c32d09b6c584523908b7164e3305d8747824f9294d2b5dd15b70b96328a61ffe'
    >>> tokaudit.diff("path/to/target", "path/to/draft", use="speculative").answer
    <Answer.SAME: 'same'>

`check`, `check_data`, `lock` with `lock_text`, and `diff` are the whole API; the other names are the types of
what they take, return and raise.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from tokaudit.contract import Lock
    from tokaudit.contract.data import DataOptions
    from tokaudit.diffs.run import Answer, Diff
    from tokaudit.errors import TokauditError, Unreadable, UsageError
    from tokaudit.findings import Claim, Finding, Location, Severity
    from tokaudit.report import Report, Verdict

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Claim",
    "Diff",
    "Finding",
    "Location",
    "Lock",
    "Report",
    "Severity",
    "TokauditError",
    "Unreadable",
    "UsageError",
    "Verdict",
    "__version__",
    "check",
    "check_data",
    "diff",
    "lock",
    "lock_text",
]

_HOME = {
    "Answer": "tokaudit.diffs.run",
    "Diff": "tokaudit.diffs.run",
    "Lock": "tokaudit.contract",
    "Claim": "tokaudit.findings",
    "Finding": "tokaudit.findings",
    "Location": "tokaudit.findings",
    "Report": "tokaudit.report",
    "Severity": "tokaudit.findings",
    "TokauditError": "tokaudit.errors",
    "Unreadable": "tokaudit.errors",
    "UsageError": "tokaudit.errors",
    "Verdict": "tokaudit.report",
}


def check(
    path: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    select: str | Iterable[str] = (),
    ignore: str | Iterable[str] = (),
    read_weights: bool = True,
    tensor_parallel: int | None = None,
    deep: bool = False,
    lock: str | os.PathLike[str] | None = None,
    base: str | os.PathLike[str] | None = None,
    optimizer: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    dtype: str | None = None,
    engine: str = "local",
) -> Report:
    """Audit one model directory.

    ``tokenizer`` takes the tokenizer from another directory. ``select`` and ``ignore`` name rules, one or
    several, by code, slug or the beginning of a code ("TA2"). Without ``read_weights`` no weights file is
    opened. ``tensor_parallel`` is the number of devices that the rows are to be divided among. ``deep`` reads
    the values of the tables. ``lock`` is the file of a lock to compare with. ``base`` is the directory of the
    model that an adapter is for, ``optimizer`` a file or directory with the state of the optimizer.
    ``data`` names token data: files, directories or patterns; ``dtype`` is that of raw files ("uint16"), and
    ``engine`` counts it: "local" or "ray".

    Raises UsageError for a rule that does not exist or where none is left, and UsageError or Unreadable where
    nothing can be audited. Parts that cannot be read are listed in ``Report.unreadable``.
    """
    import os
    from dataclasses import replace

    from tokaudit.audit import run, select_rules
    from tokaudit.contract import Options
    from tokaudit.load import load

    rules = select_rules(_names(select), _names(ignore))
    options = Options(tensor_parallel=tensor_parallel, read_weights=read_weights, deep=deep)
    options = replace(
        options,
        base=None if base is None else os.fspath(base),
        optimizer=None if optimizer is None else os.fspath(optimizer),
        data=_data_options(data, dtype, engine),
    )
    if lock is not None:
        from tokaudit.locks.read import read

        options = replace(options, lock=read(lock))
    return run(load(path, tokenizer=tokenizer, options=options), rules)


def _names(rules: str | Iterable[str]) -> tuple[str, ...]:
    """A text is one name, and not a list of its letters."""
    return (rules,) if isinstance(rules, str) else tuple(rules)


def check_data(
    data: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    tokenizer: str | os.PathLike[str],
    dtype: str | None = None,
    engine: str = "local",
) -> Report:
    """Audit token data against a tokenizer's directory; no checkpoint is needed, and none is opened.

    The arguments are those of `check`. Raises UsageError, and Unreadable where there is no tokenizer.
    """
    from tokaudit.audit import run, select_rules
    from tokaudit.contract import Options
    from tokaudit.data.rules import CODES
    from tokaudit.load import load

    options = Options(read_weights=False, data=_data_options(data, dtype, engine))
    return run(load(tokenizer, options=options), select_rules(CODES))


def _data_options(
    data: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], dtype: str | None, engine: str
) -> DataOptions | None:
    """None where no data is named."""
    import os

    from tokaudit.choices import choices
    from tokaudit.contract.data import DataOptions

    stated = {"dtype": dtype, "engine": engine}
    choices({key: value for key, value in stated.items() if value is not None}, lambda key: key)
    paths = [data] if isinstance(data, (str, os.PathLike)) else data
    names = tuple(os.fspath(path) for path in paths)
    return DataOptions(names, dtype, engine) if names else None


def lock(
    path: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    deep: bool = False,
    read_weights: bool = True,
) -> Lock:
    """The lock of a model directory: fingerprints of its contract by layer.

    ``tokenizer`` takes the tokenizer from another directory. With ``deep`` the bytes of the tables are
    digested, too; without ``read_weights`` the lock holds no tables.

    Raises Unreadable and TokauditError where a part of the model cannot be read: nothing is locked by halves.
    """
    from tokaudit.locks.run import lock

    return lock(path, tokenizer=tokenizer, deep=deep, read_weights=read_weights)


def lock_text(lock: Lock) -> str:
    """The text of a lock's file: ASCII, and the same byte for byte for the same contract."""
    from tokaudit.locks.write import to_text

    return to_text(lock)


def diff(
    left: str | os.PathLike[str],
    right: str | os.PathLike[str],
    *,
    use: str = "drop-in",
    deep: bool = False,
    read_weights: bool = True,
) -> Diff:
    """What differs between two model directories, two locks' files, or one of each.

    ``use`` is "drop-in" (right in the place of left), "speculative" (right drafts for left) or "merge": the
    ``answer`` of the diff and its ``reasons`` are for that use. ``deep`` compares the rows of the tokens that
    both have.

    Raises UsageError for another use, and Unreadable where a side cannot be read at all.
    """
    from tokaudit.diffs.run import diff
    from tokaudit.diffs.uses import use_named

    return diff(left, right, use=use_named(use), deep=deep, read_weights=read_weights)


def __getattr__(name: str) -> object:
    # `import tokaudit` stays free of imports: `python -m tokaudit` runs this file while the current
    # directory, which may be a stranger's model with a json.py in it, still comes first on sys.path.
    from tokaudit.lazily import found

    return found(__name__, _HOME, name)


def __dir__() -> list[str]:
    return sorted(__all__)
