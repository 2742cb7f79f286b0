"""The file of a lock: what is written, what is read and what is refused; and the commands on it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from locked import edit, one_shard_for_each_tensor, put, set_token, text_of
from models import FIXTURES, base, build

import tokaudit
from tokaudit.errors import Unreadable
from tokaudit.locks.read import parse
from tokaudit.locks.read import read as read_lock
from tokaudit.locks.write import LAYERS, LISTS, VERSION, digests_of, layers_of, to_text

PROJECT = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((PROJECT / "tokaudit" / "reporters" / "lock.schema.json").read_text(encoding="utf-8"))

# --- the file ---------------------------------------------------------------------------------------------


def test_a_lock_is_ascii_sorted_and_knows_no_place_or_time(tmp_path: Path) -> None:
    one = shutil.copytree(FIXTURES / "tinylm", tmp_path / "one")
    other = shutil.copytree(FIXTURES / "tinylm", tmp_path / "somewhere-else")
    text = text_of(one)
    assert text == text_of(other)
    assert text.isascii()
    assert "\r" not in text
    assert text.endswith("}\n")
    assert str(tmp_path) not in text
    assert tokaudit.__version__ not in text

    def sorted_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        assert keys == sorted(keys)
        return dict(pairs)

    json.loads(text, object_pairs_hook=sorted_keys)
    indents = {len(line) - len(line.lstrip(" ")) for line in text.splitlines()}
    assert all(indent % 2 == 0 for indent in indents)
    assert max(len(line) for line in text.splitlines() if "[" not in line) <= 110


@pytest.mark.parametrize("name", ["llama", "bert", "t5"])
def test_what_is_written_is_read_back(name: str, tmp_path: Path) -> None:
    lock = tokaudit.lock(build(base(name), tmp_path / "model"), deep=True)
    text = to_text(lock)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(text))
    assert dataclasses.replace(parse(text.encode(), "a lock"), name=lock.name) == lock


def test_the_schema_knows_the_layers() -> None:
    assert set(SCHEMA["properties"]["layers"]["properties"]) == set(LAYERS)


RELEASED = sorted((FIXTURES / "locks").glob("version-*.lock"))


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.stem)
def test_a_lock_of_every_released_version_is_still_read(path: Path, tmp_path: Path) -> None:
    """The files are kept for ever. Nothing of the model that each is of has drifted from it."""
    description = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    report = tokaudit.check(build(description, tmp_path / "model"), lock=path, deep=True, select=["TA5"])
    assert [finding.message for finding in report.findings] == []
    assert [skipped.rule.code for skipped in report.skipped] == []
    assert len(report.checked) == 6


def test_the_current_version_is_among_the_released_ones(tmp_path: Path) -> None:
    path = FIXTURES / "locks" / f"version-{VERSION}.lock"
    description = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert text_of(build(description, tmp_path / "model")) == path.read_text(encoding="ascii")


def tinylm_document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text_of(FIXTURES / "tinylm"))
    return document


def refused(document: object) -> Unreadable:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(Unreadable) as caught:
        parse(data, "some.lock")
    assert caught.value.file == "some.lock"
    return caught.value


def test_a_lock_of_a_newer_version_is_refused() -> None:
    error = refused({**tinylm_document(), "lockVersion": VERSION + 1})
    assert error.code == "lock-version"
    assert error.message == f"lockVersion is {VERSION + 1}: written by a newer tokaudit"


@pytest.mark.parametrize("version", [None, 0, "1", 1.5, True, [1]])
def test_a_version_that_is_none_is_refused(version: object) -> None:
    assert refused({**tinylm_document(), "lockVersion": version}).code == "lock-malformed"


def test_unknown_keys_are_passed_over_and_named() -> None:
    document = tinylm_document()
    document["signature"] = "x"
    document["layers"]["adapters"] = []
    document["digests"]["adapters"] = "sha256:" + "0" * 64
    lock = parse(json.dumps(document).encode(), "some.lock")
    assert lock.ignored == ("/signature", "/layers/adapters")
    assert lock.mapping is not None


def test_an_unknown_key_within_a_layer_is_passed_over() -> None:
    document = tinylm_document()
    document["layers"]["tables"][0]["order"] = "row"
    document["digests"]["tables"] = (
        "sha256:" + hashlib.sha256(rfc8785.dumps(document["layers"]["tables"])).hexdigest()
    )
    lock = parse(json.dumps(document).encode(), "some.lock")
    assert lock.ignored == ("/layers/tables/0/order",)


def test_a_lock_that_was_edited_is_refused() -> None:
    document = tinylm_document()
    document["layers"]["roles"]["pad"]["id"] += 1
    error = refused(document)
    assert error.code == "lock-edited"
    assert "roles" in error.message


def test_a_key_that_stands_twice_is_refused() -> None:
    text = json.dumps(tinylm_document())
    error = refused(text.replace('"tied":', '"tied": false, "tied":', 1).encode())
    assert error.code == "lock-malformed"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("layers",), []),
        (("digests",), None),
        (("digests", "tied"), "sha256:abc"),
        (("layers", "added_tokens"), {}),
        (("layers", "added_tokens", 0), "<s>"),
        (("layers", "added_tokens", 0, "id"), "1"),
        (("layers", "added_tokens", 0, "id"), 2**32),
        (("layers", "added_tokens", 0, "content"), 5),
        (("layers", "added_tokens", 0, "special"), 1),
        (("layers", "mapping", "count"), -1),
        (("layers", "mapping", "blocks"), {"x": "0" * 16}),
        (("layers", "mapping", "blocks"), {"0": "xyz"}),
        (("layers", "templates"), {"default": "md5:1"}),
        (("layers", "roles"), {"pad": {"id": 1}}),
        (("layers", "ids"), {"pad_token_id": 5}),
        (("layers", "expected_rows"), 1.5),
        (("layers", "tables", 0, "rows"), "many"),
        (("layers", "tied"), "yes"),
        (("layers", "contents"), {"a": "b"}),
        (("layers", "probes", 0, "ids"), [1.0]),
        (("layers", "probes", 0, "text"), None),
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_refused_at_its_place(place: tuple[Any, ...], value: object) -> None:
    document = tinylm_document()
    here: Any = document
    for step in place[:-1]:
        here = here[step]
    here[place[-1]] = value
    layer = place[1] if len(place) > 1 else ""
    if place[0] == "layers" and layer and layer not in LISTS:
        canonical = rfc8785.dumps(document["layers"][layer])
        document["digests"][layer] = "sha256:" + hashlib.sha256(canonical).hexdigest()
    error = refused(document)
    assert error.code == "lock-malformed"
    assert "/" + "/".join(map(str, place[:2])) in error.message


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff\xfe", b"null", b'{"lockVersion": 1}'])
def test_what_is_no_lock_is_refused(data: bytes) -> None:
    assert refused(data).code in ("json-syntax", "json-type", "json-encoding", "lock-malformed")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(layer=st.sampled_from(LAYERS), value=JSON)
@settings(max_examples=300, deadline=None)
def test_no_value_of_a_layer_is_more_than_unreadable(layer: str, value: object) -> None:
    try:
        digest = "sha256:" + hashlib.sha256(rfc8785.dumps(value)).hexdigest()  # type: ignore[arg-type]
    except ValueError:
        digest = "sha256:" + "0" * 64
    document = {"lockVersion": 1, "layers": {layer: value}, "digests": {layer: digest}}
    try:
        lock = parse(json.dumps(document).encode("utf-8", "surrogatepass"), "some.lock")
    except Unreadable:
        return
    assert json.loads(to_text(lock))["lockVersion"] == 1


def test_a_lock_that_is_not_there_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="there is no such file"):
        read_lock(tmp_path / "absent.lock")


def test_a_lock_may_be_a_link_to_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.lock").write_text(text_of(FIXTURES / "tinylm"), encoding="ascii")
    (tmp_path / "x.lock").symlink_to(tmp_path / "real" / "x.lock")
    assert read_lock(tmp_path / "x.lock").tied is True


def test_a_pipe_in_the_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.lock")
    with pytest.raises(Unreadable, match="expected a regular file"):
        read_lock(tmp_path / "x.lock")


# --- what cannot be locked --------------------------------------------------------------------------------


def test_a_tokenizer_that_does_not_load_is_not_locked(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    edit(model, "tokenizer.json", put("pre_tokenizer", value={"type": "Nonsense"}))
    with pytest.raises(Unreadable, match="the tokenizers library rejects it"):
        tokaudit.lock(model)


def test_a_checkpoint_with_a_missing_shard_is_not_locked(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    one_shard_for_each_tensor(model)
    (model / "model-00001-of-00003.safetensors").unlink()
    with pytest.raises(Unreadable) as raised:
        tokaudit.lock(model)
    assert raised.value.file == "model-00001-of-00003.safetensors"


def test_a_file_that_lies_outside_is_not_locked(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    (model / "generation_config.json").rename(tmp_path / "elsewhere.json")
    (model / "generation_config.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(Unreadable, match="outside") as raised:
        tokaudit.lock(model)
    assert raised.value.file == "generation_config.json"


def test_a_file_that_cannot_be_read_is_not_locked(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    (model / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(Unreadable, match="line 1"):
        tokaudit.lock(model)


def test_one_side_of_a_model_is_locked_without_the_other(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    (model / "model.safetensors").unlink()
    alone = tokaudit.lock(model)
    assert alone.tables is None
    assert alone.mapping is not None
    for path in model.glob("tokenizer*"):
        path.unlink()
    build({"json": {}, "safetensors": base("llama")["safetensors"]}, model)
    weights = tokaudit.lock(model)
    assert weights.mapping is None
    assert weights.tables is not None
    assert layers_of(weights)["expected_rows"] == 320


# --- the rules, on what one side lacks --------------------------------------------------------------------


def lock_file(model: Path, **options: Any) -> Path:
    path = model.with_name("tokaudit.lock")
    path.write_text(tokaudit.lock_text(tokaudit.lock(model, **options)), encoding="ascii")
    return path


def skipped_reasons(report: tokaudit.Report) -> dict[str, str]:
    return {skipped.rule.code: skipped.reason for skipped in report.skipped}


def test_without_a_lock_its_rules_are_skipped_and_say_so() -> None:
    report = tokaudit.check(FIXTURES / "tinylm", select=["TA5"])
    assert set(skipped_reasons(report).values()) == {"no --lock was given"}
    assert report.checked == ()


def test_a_layer_that_the_lock_does_not_hold_is_skipped(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    lock = lock_file(model, read_weights=False)
    report = tokaudit.check(model, lock=lock, select=["TA5"])
    assert skipped_reasons(report) == {"TA505": "the lock holds no tables"}


def test_without_weights_tables_are_skipped(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    report = tokaudit.check(model, lock=lock_file(model), read_weights=False, select=["TA5"])
    assert skipped_reasons(report) == {"TA505": "--no-weights was given"}


def test_without_a_tokenizer_or_a_configuration_special_ids_are_not_compared(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    lock = lock_file(model)
    (model / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    report = tokaudit.check(model, lock=lock, select=["TA504"])
    assert (report.findings, report.checked) == ((), ())
    assert "tokenizer" in skipped_reasons(report)["TA504"]
    (tmp_path / "tokenizer.json").rename(model / "tokenizer.json")
    (model / "config.json").unlink()
    report = tokaudit.check(model, lock=lock, select=["TA504"])
    assert (report.findings, report.checked) == ((), ())
    assert "config.json" in skipped_reasons(report)["TA504"]


def test_contents_are_compared_with_deep_and_not_passed_over_without(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    lock = lock_file(model, deep=True)
    report = tokaudit.check(model, lock=lock, select=["TA505"])
    assert skipped_reasons(report) == {"TA505": "the bytes of the tables are compared with --deep"}
    report = tokaudit.check(model, lock=lock, select=["TA505"], deep=True)
    assert [ref.code for ref in report.checked] == ["TA505"]


def test_deep_without_contents_in_the_lock_says_so(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    report = tokaudit.check(model, lock=lock_file(model), deep=True, select=["TA505"])
    assert "made without --deep" in skipped_reasons(report)["TA505"]


def test_a_declared_id_that_the_library_does_not_follow_moves_no_token(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    lock = lock_file(model)
    edit(model, "tokenizer.json", lambda document: document["added_tokens"][-1].update(id=330))
    report = tokaudit.check(model, lock=lock, select=["TA501", "TA403"])
    assert [finding.rule for finding in report.findings] == ["TA403"]
    assert "TA501" in {ref.code for ref in report.checked}


def test_a_tokenizer_that_no_longer_loads_is_skipped_and_reported_by_its_own_rule(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    lock = lock_file(model)
    edit(model, "tokenizer.json", put("pre_tokenizer", value={"type": "Nonsense"}))
    report = tokaudit.check(model, lock=lock, select=["TA5", "TA405"])
    own = ("TA405", "TA501", "TA506")
    assert [finding.rule for finding in report.findings if finding.rule in own] == ["TA405"]
    assert "cannot use" in skipped_reasons(report)["TA501"]
    assert "cannot use" in skipped_reasons(report)["TA506"]


# --- the commands -----------------------------------------------------------------------------------------


class Run:
    """The command line in a process of its own, in a directory of its own."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd

    def __call__(self, *arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "tokaudit", *map(str, arguments)],
            cwd=self.cwd,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "NO_COLOR": "1", "COLUMNS": "100"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done


@pytest.fixture
def run(tmp_path: Path) -> Run:
    shutil.copytree(FIXTURES / "tinylm", tmp_path / "tinylm")
    return Run(tmp_path)


def test_lock_writes_the_file_and_check_compares_with_it(run: Run) -> None:
    assert run("lock", "tinylm").stdout == "tokaudit.lock: 19 layers of tinylm\n"
    assert (run.cwd / "tokaudit.lock").read_text(encoding="ascii") == text_of(run.cwd / "tinylm", deep=False)
    assert run("lock", "tinylm", "--check").stdout == "tokaudit.lock: up to date\n"
    run("check", "tinylm", "--lock", "tokaudit.lock")
    edit(run.cwd / "tinylm", "config.json", put("eos_token_id", value=3))
    report = run("check", "tinylm", "--lock", "tokaudit.lock", "--select", "TA5", code=1).stdout
    assert "error TA504 special-ids-drift" in report
    assert 'config.json eos_token_id: 2 "</s>" -> 3 "<unk>"' in report
    stale = run("lock", "tinylm", "--check", code=1).stdout
    assert "tokaudit.lock is not up to date with tinylm" in stale
    assert 'config.json eos_token_id  2 "</s>" -> 3 "<unk>"' in stale


def test_check_of_a_lock_that_holds_contents_reads_them(run: Run) -> None:
    run("lock", "tinylm", "--deep")
    assert run("lock", "tinylm", "--check").stdout == "tokaudit.lock: up to date\n"


def test_a_lock_that_is_only_written_differently_is_not_up_to_date(run: Run) -> None:
    run("lock", "tinylm")
    path = run.cwd / "tokaudit.lock"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="ascii"))), encoding="ascii")
    assert "no layer differs" in run("lock", "tinylm", "--check", code=1).stdout
    run("check", "tinylm", "--lock", "tokaudit.lock")


def test_lock_prints_to_standard_output(run: Run) -> None:
    assert run("lock", "tinylm", "-o", "-").stdout == text_of(run.cwd / "tinylm", deep=False)
    assert not (run.cwd / "-").exists()


@pytest.mark.parametrize("file", ["tinylm/tokaudit.lock", "tinylm/../tinylm/x", "link/x"])
def test_nothing_is_written_into_the_model(run: Run, file: str) -> None:
    (run.cwd / "link").symlink_to("tinylm")
    before = sorted(path.name for path in (run.cwd / "tinylm").iterdir())
    assert "which is audited" in run("lock", "tinylm", "-o", file, code=2).stderr
    assert sorted(path.name for path in (run.cwd / "tinylm").iterdir()) == before


def test_a_lock_is_replaced_whole_or_not_at_all(run: Run) -> None:
    run("lock", "tinylm")
    before = (run.cwd / "tokaudit.lock").read_bytes()
    (run.cwd / "tinylm" / "config.json").write_text("{", encoding="utf-8")
    run("lock", "tinylm", code=2)
    assert (run.cwd / "tokaudit.lock").read_bytes() == before
    assert sorted(path.name for path in run.cwd.iterdir()) == ["tinylm", "tokaudit.lock"]


def test_hash_prints_one_digest_a_line_for_a_model_and_for_its_lock(run: Run) -> None:
    of_model = run("hash", "tinylm").stdout
    run("lock", "tinylm")
    assert run("hash", "tokaudit.lock").stdout == of_model
    lines = dict(line.split(" ") for line in of_model.splitlines())
    assert lines == digests_of(tokaudit.lock(run.cwd / "tinylm"))


def test_a_served_tokenizer_is_checked_alone(run: Run) -> None:
    run("lock", "tinylm")
    served = run.cwd / "served"
    served.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(run.cwd / "tinylm" / file, served / file)
    done = run("check", "--lock", "tokaudit.lock", "--tokenizer", "served", "--select", "TA5")
    assert "✓ lock" in done.stdout
    edit(served, "tokenizer.json", set_token("<|user|>", content="<|usr|>"))
    done = run("check", "--lock", "tokaudit.lock", "--tokenizer", "served", "--select", "TA5", code=1)
    assert '1 added: 500 "<|usr|>"' in " ".join(done.stdout.split())


@pytest.mark.parametrize("arguments", [[], ["--lock", "x"], ["--tokenizer", "tinylm"]], ids=str)
def test_check_without_a_path_needs_both_a_lock_and_a_tokenizer(run: Run, arguments: list[str]) -> None:
    assert "missing argument 'PATH'" in run("check", *arguments, code=2).stderr


def test_a_lock_from_the_future_is_no_verdict(run: Run) -> None:
    (run.cwd / "new.lock").write_text('{"lockVersion": 2}', encoding="ascii")
    for arguments in ("check tinylm --lock new.lock", "hash new.lock", "diff tinylm new.lock"):
        error = run(*arguments.split(), code=2).stderr
        assert error.startswith("tokaudit: error[lock-version]: new.lock: lockVersion is 2: written by a")


def test_keys_of_a_newer_lock_are_noted(run: Run) -> None:
    run("lock", "tinylm")
    edit(run.cwd, "tokaudit.lock", put("signature", value="\x1b[31m"))
    done = run("check", "tinylm", "--lock", "tokaudit.lock")
    assert done.stderr == "tokaudit: note: tokaudit.lock: ignored /signature, which a newer tokaudit wrote\n"


def test_a_check_without_a_lock_imports_nothing_of_it(run: Run) -> None:
    code = (
        "import sys; from tokaudit.cli import main; main(sys.argv[1:]); "
        "print(sorted(name for name in sys.modules if name.startswith(('tokaudit.locks', 'tokaudit.diffs'))"
        " or name == 'rfc8785'))"
    )

    def loaded(*arguments: str) -> str:
        command = [sys.executable, "-c", code, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        done = subprocess.run(command, cwd=run.cwd, env=environment, capture_output=True, text=True)
        return done.stdout.splitlines()[-1]

    run("lock", "tinylm")
    assert loaded("check", "tinylm") == "[]"
    assert "tokaudit.locks.read" in loaded("check", "tinylm", "--lock", "tokaudit.lock")


@pytest.mark.parametrize("name", ["absent.lock", "README.md"])
def test_what_is_no_lock_leads_to_the_command_that_writes_one(name: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# A model\n", encoding="utf-8")
    with pytest.raises(Unreadable) as refused:
        read_lock(tmp_path / name)
    assert "`tokaudit lock`" in refused.value.hint


def test_a_stream_in_the_place_of_the_file_leads_to_the_way_to_print_a_lock(run: Run) -> None:
    result = run("lock", "tinylm", "-o", "/dev/stdout", code=2)
    assert "hint: `-o -` prints the lock" in result.stderr
