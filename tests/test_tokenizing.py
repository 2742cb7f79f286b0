"""The isolated process: what it answers, what it survives, and that nothing of it stays behind."""

from __future__ import annotations

import ast
import base64
import contextlib
import itertools
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tokaudit.errors import FactMissing, Unreadable, UsageError
from tokaudit.isolation import process as isolation
from tokaudit.isolation.process import patience
from tokaudit.tokenizing import (
    Limits,
    NotAsked,
    TokenizerFailure,
    TokenizerProcess,
    effective_ids,
    process,
    start,
)

Document = dict[str, Any]

LETTERS: Document = {
    "type": "BPE",
    "vocab": {"<unk>": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "abc": 5},
    "merges": [["a", "b"], ["ab", "c"]],
    "unk_token": "<unk>",
}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def added(content: str, id: int = 99, *, special: bool = True, normalized: bool = False) -> Document:
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    return {"id": id, "content": content, "special": special, "normalized": normalized, **flags}


def document(model: Document = LETTERS, **parts: Any) -> bytes:
    empty = dict.fromkeys(
        ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    )
    return json.dumps({"version": "1.0", **empty, "added_tokens": [], **parts, "model": model}).encode()


@contextlib.contextmanager
def running(data: bytes, **limits: Any) -> Iterator[TokenizerProcess]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        child = start(file, limits=Limits(**limits))
    with child:
        yield child


def doubling(times: int) -> Document:
    """A normalizer that makes 2**times characters of each "a"."""
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return {"type": "Sequence", "normalizers": [step] * times}


# Each is under a few kilobytes, and each kills or blocks the process that loads it.
ABORTS_ON_LOADING = document(
    {
        "type": "BPE",
        "vocab": {"a": 1, "\u00e9": 2, "a\u00a9": 3},
        "merges": [["a", "\u00e9"]],
        "continuing_subword_prefix": "#",  # its length cuts the two-byte character in half
    }
)
PANICS_ON_LOADING = document({**LETTERS, "vocab": {"aaaa": 0, "bbbb": 1}, "merges": [["aaaa", "bbbb"]]})
ALLOCATES_8_GB = document(
    normalizer={
        "type": "Precompiled",
        "precompiled_charsmap": base64.b64encode(b"\xff\xff\xff\xff" + bytes(64)).decode(),
    }
)
NEVER_LOADS = document(added_tokens=[added("a", special=False, normalized=True)], normalizer=doubling(40))
NEVER_ENCODES = document(normalizer=doubling(40))


# What it answers


def test_added_tokens_have_the_ids_that_the_library_gives_not_those_they_declare() -> None:
    with running(document(added_tokens=[added("<x>", 1000), added("abc", 7), added("<y>", 8)])) as child:
        result = child.loaded()
    assert result.effective == {"<x>": 6, "abc": 5, "<y>": 7}
    assert (result.base_tokens, result.tokens) == (6, 8)
    assert result.version == tokenizers.__version__


def test_added_tokens_that_land_on_one_id_are_all_told() -> None:
    model = {"type": "WordLevel", "vocab": {"u": 0, "a": 3, "b": 9}, "unk_token": "u"}
    with running(document(model, added_tokens=[added("<x>"), added("a"), added("<y>")])) as child:
        assert child.loaded().effective == {"<x>": 3, "a": 3, "<y>": 4}


def test_encoding_ignores_saved_padding_truncation_and_post_processor() -> None:
    data = document(
        added_tokens=[added("<s>")],
        padding={
            "strategy": {"Fixed": 10**12},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<unk>",
        },
        truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        post_processor=template("<s>"),
    )
    with running(data) as child:
        assert child.encode(["abc<s>aa", "b"]) == {"abc<s>aa": (5, 6, 1, 1), "b": (2,)}


def template(token: str) -> Document:
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {token: {"id": token, "ids": [6], "tokens": [token]}},
    }


@pytest.mark.parametrize(
    ("post_processor", "with_special"),
    [
        (None, (5,)),
        (BYTE_LEVEL, (5,)),
        (template("<s>"), (6, 5)),
        ({"type": "BertProcessing", "sep": ["</s>", 7], "cls": ["<s>", 6]}, (6, 5, 7)),
        (
            {
                "type": "RobertaProcessing",
                "sep": ["</s>", 7],
                "cls": ["<s>", 6],
                "trim_offsets": True,
                "add_prefix_space": True,
            },
            (6, 5, 7),
        ),
    ],
    ids=["none", "ByteLevel", "Template", "Bert", "Roberta"],
)
def test_each_post_processor_acts_only_where_it_is_asked_for(
    post_processor: Document | None, with_special: tuple[int, ...]
) -> None:
    data = document(added_tokens=[added("<s>"), added("</s>")], post_processor=post_processor)
    with running(data) as child:
        assert child.encode(["abc"]) == {"abc": (5,)}
        assert child.encode_with_special(["abc"]) == {"abc": with_special}
        assert child.encode(["abc"]) == {"abc": (5,)}


def test_a_text_that_the_library_refuses_is_missing_and_the_others_are_answered() -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "gone"}
    with running(document(model)) as child:
        assert child.encode(["a", "unheard of", "\ud800", "b", "a"]) == {"a": (0,), "b": (1,)}


def test_random_dropout_is_off() -> None:
    with running(document({**LETTERS, "dropout": 0.9})) as child:
        assert {child.encode(["abc"])["abc"] for _ in range(20)} == {(5,)}


def test_another_document_answers_one_question_and_is_not_kept() -> None:
    lower = document(normalizer={"type": "Lowercase"})
    with running(document()) as child:
        assert child.rebuild(lower, ["ABC"]) == {"ABC": (5,)}
        assert child.encode(["ABC"]) == {"ABC": (0, 0, 0)}


def test_another_document_that_is_rejected_leaves_the_child_as_it_was() -> None:
    with running(document()) as child:
        for other, words in ((b'{"version": "1.0"}', "Model missing"), (b"", "EOF while parsing")):
            with pytest.raises(TokenizerFailure, match=f"rejects it: {words}") as caught:
                child.rebuild(other, ["abc"])
            assert caught.value.kind == "rejected"
        assert child.encode(["abc"]) == {"abc": (5,)}


def test_another_document_that_panics_is_the_end_of_the_child() -> None:
    with running(document()) as child:
        for ask in (lambda: child.rebuild(PANICS_ON_LOADING, ["abc"]), lambda: child.encode(["abc"])):
            with pytest.raises(TokenizerFailure) as caught:
                ask()
            assert caught.value.kind == "panicked"
        assert ended(child)


def test_questions_and_answers_may_be_larger_than_a_pipe_holds() -> None:
    texts = ["abc" * 1000 + "b" * n for n in range(300)]
    with running(document()) as child:
        answer = child.encode(texts)
    assert answer == {text: (5,) * 1000 + (2,) * n for n, text in enumerate(texts)}


def test_the_offset_of_the_file_is_left_alone_and_the_file_may_be_closed(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(document())
    fd = os.open(path, os.O_RDONLY)
    os.lseek(fd, 7, os.SEEK_SET)
    with start(fd) as child:
        path.unlink()
        child.loaded()
        assert os.lseek(fd, 0, os.SEEK_CUR) == 7
        os.close(fd)
        assert child.encode(["ab"]) == {"ab": (4,)}


def test_larger_files_get_more_time_and_memory_up_to_fourfold() -> None:
    limits = Limits()
    assert limits.scaled(4_000_000) == limits
    assert limits.scaled(2**27).memory_bytes == 2 * limits.memory_bytes
    assert limits.scaled(2**40).load_seconds == 4 * limits.load_seconds
    assert limits.scaled(2**40).reply_bytes == limits.reply_bytes


def test_patience_allows_more_and_nothing_but_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKAUDIT_PATIENCE", "2.5")
    assert Limits().times(patience()).load_seconds == 2.5 * Limits().load_seconds
    for wrong in ("0", "-1", "nan", "inf", "1e9", "much\x1b[31m"):
        monkeypatch.setenv("TOKAUDIT_PATIENCE", wrong)
        with pytest.raises(UsageError, match="TOKAUDIT_PATIENCE is"):
            patience()


# Unreachable tokens


def tokens_unreachable(data: bytes) -> set[str]:
    with running(data) as child:
        ids = child.unreachable(most_tokens=1000)
    whole = Tokenizer.from_buffer(data)
    return {whole.id_to_token(id) for id in ids}


def test_a_merge_that_an_earlier_merge_always_prevents_makes_its_token_unreachable() -> None:
    vocab = {text: id for id, text in enumerate(["a", "b", "c", "ab", "bc", "abc"])}
    model = {"type": "BPE", "vocab": vocab, "merges": [["a", "b"], ["b", "c"], ["a", "bc"]]}
    assert tokens_unreachable(document(model)) == {"abc"}


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_no_text_yields_a_token_that_is_called_unreachable(random: random.Random) -> None:
    tokens = ["a", "b", "c"]
    merges: list[tuple[str, str]] = []
    for _ in range(random.randint(1, 8)):
        left, right = random.choice(tokens), random.choice(tokens)
        if left + right not in tokens and len(left + right) <= 4:
            tokens.append(left + right)
            merges.append((left, right))
    random.shuffle(merges)
    data = document({"type": "BPE", "vocab": {text: id for id, text in enumerate(tokens)}, "merges": merges})
    whole = Tokenizer.from_buffer(data)
    texts = ["".join(letters) for n in range(1, 7) for letters in itertools.product("abc", repeat=n)]
    yielded = {token for found in whole.encode_batch(texts) for token in found.tokens}
    assert tokens_unreachable(data) == set(tokens) - yielded


def test_inner_pieces_are_tried_inside_a_word() -> None:
    pieces = ["[UNK]", "play", "x", "##ing", "##ed", "##!", "Upper", "##\u4eba", "\u4eba", "!"]
    data = document(
        {
            "type": "WordPiece",
            "vocab": {text: id for id, text in enumerate(pieces)},
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        },
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )
    # "##!" is a single byte, which is left out; BERT sets Chinese characters and capitals apart.
    assert tokens_unreachable(data) == {"Upper", "##\u4eba"}


@pytest.mark.parametrize("decoder", ["Metaspace", "WordPiece"], ids=["own decoder", "foreign decoder"])
def test_pieces_without_the_word_mark_are_tried_behind_another_piece(decoder: str) -> None:
    pieces = ["<unk>", "\u2581", "\u2581play", "ing", "\u2581in", "in", "g", "x", "zz", "z", "q"]
    scores = dict.fromkeys(pieces, -2.0) | {"zz": -9.0}
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    data = document(
        {"type": "Unigram", "unk_id": 0, "vocab": list(scores.items()), "byte_fallback": False},
        pre_tokenizer=metaspace,
        decoder=metaspace if decoder == "Metaspace" else {"type": decoder, "prefix": "##", "cleanup": True},
    )
    assert tokens_unreachable(data) == {"zz"}


def test_pieces_that_do_not_end_a_word_are_tried_before_another_piece() -> None:
    vocab = {text: id for id, text in enumerate(["a", "b", "a</w>", "b</w>", "ab", "ab</w>", "ba</w>"])}
    merges = [["a", "b"], ["a", "b</w>"]]
    model = {"type": "BPE", "vocab": vocab, "merges": merges, "end_of_word_suffix": "</w>"}
    data = document(model, pre_tokenizer={"type": "Whitespace"})
    assert tokens_unreachable(data) == {"ba</w>"}


def test_byte_tokens_parts_of_characters_and_added_tokens_are_left_out() -> None:
    vocab = {
        text: id for id, text in enumerate(["a", "Ã", "©", "Ã©", "<0x0A>", "Ġ", "<|end|>", "never", "č"])
    }
    data = document(
        {"type": "BPE", "vocab": vocab, "merges": [["Ã", "©"]]},
        added_tokens=[added("<|end|>")],
        pre_tokenizer=BYTE_LEVEL | {"add_prefix_space": False},
    )
    assert tokens_unreachable(data) == {"never"}


def test_a_token_of_megabytes_costs_no_time() -> None:
    model = {**LETTERS, "vocab": {**LETTERS["vocab"], "a" * 5_000_000: 6}}
    with running(document(model), answer_seconds=5) as child:
        assert child.unreachable(most_tokens=10) == ()


def test_a_vocabulary_above_the_cap_is_not_tried() -> None:
    with running(document()) as child:
        with pytest.raises(NotAsked, match="6 tokens are too many") as caught:
            child.unreachable(most_tokens=5)
        assert isinstance(caught.value, FactMissing)
        assert child.unreachable(most_tokens=6) == ()


# What it survives


def ended(child: TokenizerProcess) -> bool:
    """Whether the child is gone and reaped: its id belongs to no process."""
    try:
        os.kill(child._process.pid, 0)
    except ProcessLookupError:
        return True
    return False


def failure_of(data: bytes, ask: Callable[[TokenizerProcess], object], **limits: Any) -> TokenizerFailure:
    with running(data, **limits) as child:
        with pytest.raises(TokenizerFailure) as caught:
            ask(child)
        if caught.value.kind != "rejected":
            assert ended(child), "lost children are reaped at once"
    assert ended(child)
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (ABORTS_ON_LOADING, "aborted", "SIGABRT"),
        (PANICS_ON_LOADING, "panicked", "out of range"),
        (ALLOCATES_8_GB, "memory", "memory allocation of 8589934584 bytes failed"),
        (b"\xff\xfe{", "rejected", "rejects it: "),
        (b"", "rejected", "EOF while parsing"),
        (b"[" * 100_000, "rejected", "recursion limit exceeded|invalid type"),
        (document(LETTERS, post_processor={"type": "Nonsense"}), "rejected", "did not match any variant"),
    ],
    ids=["abort", "panic", "8 GB", "no UTF-8", "empty", "deep", "unknown type"],
)
def test_a_file_that_breaks_the_library_is_one_failure_and_the_terminal_stays_clean(
    data: bytes, kind: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    failure = failure_of(data, TokenizerProcess.loaded)
    assert time.monotonic() - began < 10
    assert failure.kind == kind
    assert re.search(words, failure.message)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("data", "text", "kind"),
    [
        (document(pre_tokenizer={"type": "FixedLength", "length": 0}), "abc", "panicked"),
        (
            document(
                pre_tokenizer={
                    "type": "Split",
                    "pattern": {"Regex": "(a+)+$"},
                    "behavior": "Isolated",
                    "invert": False,
                }
            ),
            "a" * 40 + "!",
            "panicked",
        ),
    ],
    ids=["pieces of no length", "catastrophic regular expression"],
)
def test_a_text_that_breaks_the_library_ends_the_child_after_it_has_loaded(
    data: bytes, text: str, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with running(data) as child:
        assert child.loaded().base_tokens == 6
        with pytest.raises(TokenizerFailure) as caught:
            child.encode([text])
        assert caught.value.kind == kind
        with pytest.raises(TokenizerFailure) as later:
            child.encode_with_special(["abc"])
        assert later.value is caught.value
        assert child.loaded().base_tokens == 6
        assert ended(child)
    assert capfd.readouterr() == ("", "")


def test_a_post_processor_that_panics_does_so_only_where_it_is_asked_for() -> None:
    broken = template("<s>") | {"special_tokens": {}}
    with running(document(post_processor=broken)) as child:
        assert child.encode(["abc"]) == {"abc": (5,)}
        with pytest.raises(TokenizerFailure, match="no entry found for key"):
            child.encode_with_special(["abc"])


def test_loading_without_end_is_stopped_by_the_clock() -> None:
    assert failure_of(NEVER_LOADS, TokenizerProcess.loaded, load_seconds=0.5).kind == "timeout"


def test_encoding_without_end_is_stopped_by_the_clock() -> None:
    failure = failure_of(NEVER_ENCODES, lambda child: child.encode(["a"]), answer_seconds=0.5)
    assert failure.kind == "timeout"


def test_loading_without_end_is_stopped_by_the_limit_on_processor_time() -> None:
    failure = failure_of(NEVER_LOADS, TokenizerProcess.loaded, cpu_seconds=1, memory_bytes=2**33)
    assert failure.kind == "timeout"
    assert "processor time" in failure.message


def test_memory_without_end_is_stopped_by_the_limit_on_memory() -> None:
    failure = failure_of(NEVER_LOADS, TokenizerProcess.loaded, memory_bytes=2**28)
    assert failure.kind == "memory"


@pytest.mark.skipif(not os.path.exists("/bin/ps"), reason="needs /bin/ps, which every macOS has")
def test_memory_is_watched_from_outside_where_the_kernel_does_not_limit_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "_KERNEL_LIMITS_MEMORY", False)
    monkeypatch.setattr(isolation, "_SECONDS_BETWEEN_WATCHES", 0.05)
    failure = failure_of(NEVER_LOADS, TokenizerProcess.loaded, memory_bytes=2**26)
    assert failure.kind == "memory"
    assert "more than 64.0 MiB" in failure.message


def test_the_words_of_the_library_are_shortened_and_cannot_act_on_a_terminal() -> None:
    token = "\x1b[31m\n::error::" + "x" * 5_000_000
    data = document({**LETTERS, "merges": [["a", token]]})
    failure = failure_of(data, TokenizerProcess.loaded)
    assert failure.kind == "rejected"
    assert "\x1b" not in failure.message
    assert "::" not in failure.message
    assert len(failure.message) < 300


FAKES = {
    "ends at once": ("raise SystemExit(3)", "died", "exit status 3"),
    "finds no library": ("import no_such_library", "died", "No module named 'no_such_library'"),
    "is killed": ("os.kill(os.getpid(), 9)", "died", "killed"),
    "says no JSON": ("say(b'{{{')", "died", "malformed"),
    "says something else": ("say(b'[]')", "died", "malformed"),
    "says deep JSON": ("say(b'[' * 200_000)", "died", "malformed"),
    "gives ids that are none": (
        'say(b\'{"answer": {"version": "1", "base_tokens": 1, "tokens": 1, \'b\'"added": [["a", 1.5]]}}\')',
        "died",
        "malformed",
    ),
    "fails in an unknown way": ('say(b\'{"failure": ["bored", ""]}\')', "died", "malformed"),
    "announces a terabyte": ("os.write(1, (2**40).to_bytes(8, 'big'))", "died", "1099511627776 bytes"),
    "stops in the middle": ("os.write(1, (9).to_bytes(8, 'big') + b'{')", "died", "exit status 0"),
    "says nothing": ("time.sleep(60)", "timeout", "wall time"),
    "closes its answers": ("os.close(1); time.sleep(60)", "died", "closed its answers"),
    "talks on stderr for ever": ("while True: os.write(2, b'x' * 65536)", "timeout", "wall time"),
    "talks on stdout for ever": ("while True: os.write(1, bytes(8))", "died", "malformed"),
}


@pytest.mark.parametrize(("code", "kind", "words"), FAKES.values(), ids=FAKES)
def test_a_child_that_breaks_the_protocol_is_one_failure(
    code: str,
    kind: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import os, time\n"
        "def say(data): os.write(1, len(data).to_bytes(8, 'big')); open(1, 'wb').write(data)\n" + code
    )
    monkeypatch.setattr(process, "_WORKER", str(worker))
    monkeypatch.setattr(isolation, "_SECONDS_TO_DIE", 1.0)
    failure = failure_of(document(), TokenizerProcess.loaded, load_seconds=2)
    assert failure.kind == kind
    assert words in failure.message
    assert capfd.readouterr() == ("", "")


def test_an_answer_is_taken_though_the_parent_comes_long_after_the_time_limit() -> None:
    with running(document(), load_seconds=0.1) as child:
        select.select([child._answers], [], [], 20)
        time.sleep(0.2)
        assert child.loaded().base_tokens == 6


def test_a_system_that_starts_no_process_makes_the_file_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    before = open_files()
    with pytest.raises(Unreadable, match="no process can be started"), running(document()):
        pass
    assert open_files() == before


# Nothing stays behind


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def test_closing_ends_a_child_that_is_idle_or_busy_and_frees_every_descriptor() -> None:
    before = open_files()
    for data in (document(), NEVER_LOADS):
        with running(data) as child:
            assert not ended(child)
        assert ended(child)
        child.close()
        with pytest.raises(TokenizerFailure, match="it was ended"):
            child.loaded()
    assert open_files() == before


def test_a_child_outlives_the_thread_that_started_it() -> None:
    children: list[TokenizerProcess] = []
    with tempfile.TemporaryFile() as file:
        file.write(document())
        file.flush()
        thread = threading.Thread(target=lambda: children.append(start(file)))
        thread.start()
        thread.join()
    with children[0] as child:
        assert child.encode(["abc"]) == {"abc": (5,)}


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody reaps does not."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(shown.stdout.strip()) and not shown.stdout.strip().startswith("Z")


def run_parent(tmp_path: Path, data: bytes, then: str) -> tuple[subprocess.Popen[str], int]:
    """A parent in a process of its own that starts a child, prints its id and goes on as told."""
    (tmp_path / "tokenizer.json").write_bytes(data)
    script = f"""
        import sys, time
        sys.path.insert(0, {str(Path(process.__file__).parents[2])!r})
        from tokaudit.tokenizing import start
        with open("tokenizer.json", "rb") as file:
            child = start(file)
        with child:
            {then}
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


TELL = "print(child._process.pid, flush=True)"


@pytest.mark.parametrize(
    ("data", "then"),
    [
        (NEVER_LOADS, f"{TELL}; child.loaded()"),
        (document(), f"child.loaded(); {TELL}; time.sleep(60)"),
        (document(), f"{TELL}; time.sleep(60)"),
    ],
    ids=["busy in the library", "idle", "just started"],
)
def test_the_child_dies_with_a_parent_that_is_killed(tmp_path: Path, data: bytes, then: str) -> None:
    parent, pid = run_parent(tmp_path, data, then)
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 5
    while alive(pid):
        assert time.monotonic() < deadline, "the child lives on without its parent"
        time.sleep(0.02)


def test_ctrl_c_reaches_the_parent_which_ends_the_child(tmp_path: Path) -> None:
    parent, pid = run_parent(tmp_path, NEVER_LOADS, f"{TELL}; child.loaded()")
    assert os.getpgid(pid) == pid
    time.sleep(0.3)
    parent.send_signal(signal.SIGINT)
    stderr = parent.communicate()[1]
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    assert not alive(pid)


def test_a_parent_without_stdin_stdout_and_stderr_can_ask(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(document())
    script = f"""
        import os, sys
        sys.path.insert(0, {str(Path(process.__file__).parents[2])!r})
        os.closerange(0, 3)
        from tokaudit.tokenizing import start
        fd = os.open("tokenizer.json", os.O_RDONLY)
        assert fd == 0
        with start(fd) as child:
            ids = child.encode(["abc"])["abc"]
        open("answer", "w").write(str(ids))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, check=True)
    assert (tmp_path / "answer").read_text() == "(5,)"


def test_a_directory_full_of_modules_is_not_imported_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "tokenizers", "re", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with running(document()) as child:
        assert child.encode(["abc"]) == {"abc": (5,)}


@pytest.mark.parametrize(
    ("file", "imports"),
    [
        (process._WORKER, {"tokenizers", "tokaudit.isolation.child"}),
        (isolation.__file__.replace("process.py", "child.py"), set()),
    ],
)
def test_the_worker_imports_little_of_tokaudit(file: str, imports: set[str]) -> None:
    worker = ast.parse(Path(file).read_text(encoding="utf-8"))
    names = {
        name
        for node in ast.walk(worker)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert {name for name in names if name.split(".")[0] not in sys.stdlib_module_names} == imports


# The library's numbering


@st.composite
def vocabularies(draw: st.DrawFn) -> tuple[str, list[str], list[int], list[str]]:
    """A model type, base tokens, an id for each, and the contents of added tokens."""
    texts = st.sampled_from("abcdefgh")
    kind = draw(st.sampled_from(["BPE", "WordLevel", "WordPiece", "Unigram"]))
    base = ["u", *draw(st.lists(texts, unique=kind != "Unigram", max_size=6))]
    ids = draw(st.lists(st.integers(0, 12), min_size=len(base), max_size=len(base)))
    contents = draw(st.lists(st.sampled_from(["", *"abcdefghijklmnu"]), max_size=8))
    return kind, base, list(range(len(base))) if kind == "Unigram" else ids, contents


def model_of(kind: str, base: list[str], ids: list[int]) -> Document:
    if kind == "Unigram":
        return {"type": kind, "unk_id": 0, "vocab": [[text, -1.0] for text in base]}
    model: Document = {"type": kind, "vocab": dict(zip(base, ids, strict=True)), "unk_token": "u"}
    if kind == "WordPiece":
        model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    return model | ({"merges": []} if kind == "BPE" else {})


numbering_of_today = pytest.mark.skipif(
    tuple(map(int, tokenizers.__version__.split(".")[:3])) < (0, 22, 2),
    reason="tokenizers 0.22.1 and earlier number added tokens otherwise",
)


@numbering_of_today
@settings(max_examples=500, deadline=None)
@given(vocabularies(), st.randoms(use_true_random=False))
def test_effective_ids_are_those_of_the_library_whatever_the_file_declares(
    vocabulary: tuple[str, list[str], list[int], list[str]], random: random.Random
) -> None:
    kind, base, ids, contents = vocabulary
    tokens = [
        added(text, random.randrange(50), special=random.random() < 0.5, normalized=random.random() < 0.5)
        for text in contents
    ]
    library = Tokenizer.from_buffer(document(model_of(kind, base, ids), added_tokens=tokens))
    declared = dict(zip(base, ids, strict=True))
    effective = effective_ids(declared, contents, base_tokens=len(base))
    assert library.get_vocab(with_added_tokens=False) == declared
    assert library.get_vocab(with_added_tokens=True) == declared | effective
    assert set(effective) == set(contents) - {""}


@settings(max_examples=30, deadline=None)
@given(vocabularies())
def test_the_child_tells_of_every_id_that_the_base_vocabulary_does_not(
    vocabulary: tuple[str, list[str], list[int], list[str]],
) -> None:
    kind, base, ids, contents = vocabulary
    data = document(model_of(kind, base, ids), added_tokens=[added(text) for text in contents])
    with running(data) as child:
        effective: Mapping[str, int] = child.loaded().effective
    library = Tokenizer.from_buffer(data)
    assert library.get_vocab() == library.get_vocab(with_added_tokens=False) | effective


def test_added_tokens_are_numbered_from_the_count_and_meet_live_ids_in_holes() -> None:
    assert effective_ids({"a": 0, "b": 1, "c": 5}, ["x", "c", "y", "", "x", "z"]) == {
        "x": 3,
        "c": 5,
        "y": 4,
        "z": 5,
    }


# Tokenizers as others published them


UNREACHABLE = {
    "clip-vit": 0,
    "deepseek-litellm": 0,
    "falcon": 0,
    "focus-de-xlmr-unigram-30k": 2,  # "▁Bild." and "▁bin.": their two parts score higher
    "gpt-neox-20b-pii": 221,  # runs of blanks, which its added tokens take first
    "granite-3.1-1b": 0,
    "minimind": 0,
    "model2vec-float16": 305,  # "##人": BERT sets Chinese characters and punctuation apart
    "model2vec-vocab-quantized": 244,  # the same, in a Unigram that was made of a WordPiece
    "nepali-wordpiece": 0,
    "olmo-test-model": 0,
    "pgn-tokenizer": 0,
    "phi-2": 0,
    "roberta-base": 4,  # "madeupword0000" to 2, and "<|endoftext|>", which is no added token there
    "stories260K-hf": 0,
    "t5-small": 2,  # "▁mes" and "▁Its"
    "torchtitan-test-tokenizer": 1892,  # byte-level, but its vocabulary is not in the byte alphabet
    "whisper-tiny": 5,  # "'S": its pattern splits capital contractions
}


@pytest.mark.real
@pytest.mark.parametrize("name", UNREACHABLE)
def test_published_tokenizers_load_and_their_unreachable_tokens_are_known(real: Path, name: str) -> None:
    path = real / name / "tokenizer.json"
    library = Tokenizer.from_file(str(path))
    decoder = library.get_added_tokens_decoder()
    with path.open("rb") as file, start(file) as child:
        result = child.loaded()
        assert result.effective == {token.content: id for id, token in decoder.items()}
        assert result.tokens == library.get_vocab_size()
        assert len(child.unreachable(most_tokens=200_000)) == UNREACHABLE[name]
