"""The catalogue of hostile and damaged directories: what must hold for any input holds for each of them.

`hostile/make_bad.py` writes the directories, `hostile/run_cases.py` runs the command on each and checks: it
ends, is not killed, leaves with 0, 1 or 2 and with one line on standard error for 2, shows no traceback,
stays below 1500 MB, changes and runs nothing, and prints nothing that acts on a terminal or a CI log.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent / "hostile"

# Where the exit code is another one than the catalogue proposes, by its code: what it is and why.
DECIDED = {
    # Damage that a rule reports is a finding, and the rest of the audit goes on (RULES: TA701 to TA711 are
    # errors, exit 1); only what no rule reports leaves no verdict.
    **dict.fromkeys(
        (
            "weights-truncated", "weights-header", "weights-duplicate-key", "weights-offsets",
            "weights-trailing", "weights-shape", "weights-dtype", "weights-metadata", "lfs-pointer",
            "not-safetensors", "index-path", "index-extension", "path-escape", "not-a-regular-file",
        ),
        1,
    ),
    # The same for tokenizer.json (TA405) and for a JSON key that is stated twice (TA411).
    **dict.fromkeys(
        ("tokenizer-malformed", "tokenizer-version", "token-id", "tokenizer-merges", "json-duplicate-key",
         "json-surrogate"),
        1,
    ),
    # TA707 is a note and TA704 and TA709 are warnings: exit 0.
    **dict.fromkeys(("index-total-size", "tensor-unindexed", "weights-ambiguous"), 0),
    # A pickle beside or instead of safetensors is the note TA710; it is never opened.
    "pickle": 0,
    # One side alone is audited; the rules that need the other are skipped.
    "tokenizer-missing": 0,
    # CONFIG.JSON beside config.json: loaders on Linux open the exact name, and so does the audit.
    "name-collision": 0,
    # The added token of the empty text and a piece stated twice are skipped by the library without harm.
    **dict.fromkeys(("added-token", "token-duplicate"), 0),
    # Nothing refers to the added tokens without a row: a warning (TA102).
    **dict.fromkeys(("token-text", "vocab-size"), 0),
}  # fmt: skip

# Single cases that the table above does not decide.
DECIDED_ONE = {
    "ST69": 1,  # a million tensors and no input table among them: TA111
    "TK47": 1,  # loading it takes all memory: TA405
    "TK39": 0,  # the library compiles this pattern in no time
    "TK51": 1,  # the library loads it and panics on a text with special tokens: TA405
    "TK72": 1,  # it panics on every text: TA405
    "TK21": 0,  # the library loads it, and encodes without looping
    "TK22": 0,  # a merge twice: the library takes the last, nothing else depends on it
    "TK76": 0,  # merges.txt with odd lines beside a vocab.json: read as loaders read it
}


@pytest.fixture(scope="session")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hostile")
    subprocess.run([sys.executable, str(HERE / "make_bad.py"), str(out)], check=True, capture_output=True)
    return out


def proposals(catalogue: Path) -> dict[str, dict[str, str]]:
    with (catalogue / "EXPECTED.tsv").open(encoding="utf-8") as file:
        return {row["dir"]: row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}


@pytest.mark.hostile
@pytest.mark.parametrize("group", ["CT", "ST", "IX", "FS", "JS", "TK", "PK", "AD"])
def test_invariants_hold_and_exit_codes_are_as_decided(group: str, catalogue: Path, tmp_path: Path) -> None:
    command = shutil.which("tokaudit", path=str(Path(sys.executable).parent))
    assert command, "the package is not installed"
    results = tmp_path / "results.jsonl"
    run = subprocess.run(
        [
            *(sys.executable, str(HERE / "run_cases.py"), str(catalogue), "--only", group),
            *("--json", str(results), "--", command, "check"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    proposed = proposals(catalogue)
    decided = 0
    for line in results.read_text("utf-8").splitlines():
        result = json.loads(line)
        row = proposed[result["case"]]
        allowed = {int(code) for code in row["exit"].split("|")}
        if row["id"] in DECIDED_ONE:
            allowed = {DECIDED_ONE[row["id"]]}
        elif row["code"] in DECIDED:
            allowed |= {DECIDED[row["code"]]}
        assert result["rc"] in allowed, (result, row["description"])
        decided += 1
    assert decided > 5
