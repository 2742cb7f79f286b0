"""Reports made by hand: a clean one, a broken one with texts from a hostile model, an absent one."""

from __future__ import annotations

import dataclasses
import datetime
import re

from tokaudit.contract import Role, Token
from tokaudit.errors import Unreadable
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.report import Report, RuleRef, Skipped, Summary, Suppressed, TableFacts, UnusedEntry

HOSTILE = (
    "x\x1b[31m\r\n::error file=a::forged\n##[error]forged "  # terminals, GitHub's log
    '[red]hi[/nope] :smile: \u202eabc\u2066 \x00\x7f\x9b\ud800 "'  # Rich, bidi, what no encoding takes
)


def rule(code: str, slug: str, area: str) -> RuleRef:
    return RuleRef(code, slug, area)


TA101 = rule("TA101", "token-id-out-of-range", "rows")
TA105 = rule("TA105", "output-rows-mismatch", "rows")
TA108 = rule("TA108", "padding-rows", "rows")
TA201 = rule("TA201", "tied-tables-differ", "tie")
TA304 = rule("TA304", "pad-missing", "special")
TA305 = rule("TA305", "special-id-disagree", "special")
TA306 = rule("TA306", "special-token-not-in-vocabulary", "special")
TA309 = rule("TA309", "double-bos", "special")
TA402 = rule("TA402", "duplicate-token-id", "vocabulary")
TA701 = rule("TA701", "shard-missing", "storage")
RULES = (TA101, TA105, TA108, TA201, TA304, TA305, TA306, TA309, TA402, TA701)


def finding(ref: RuleRef, severity: Severity, message: str, *claims: Claim, **texts: str) -> Finding:
    return Finding(
        ref.code,
        ref.slug,
        severity,
        message,
        claims,
        why=texts.get("why", "Batches need one."),
        fix=texts.get("fix", 'set "pad_token" in tokenizer_config.json'),
        subject=texts.get("subject", ""),
    )


def token(id: int, content: str) -> Token:
    return Token(id, content, Location("tokenizer.json"))


CLEAN = Report(
    target="tinylm",
    summary=Summary(
        architecture="LlamaForCausalLM",
        model_type="llama",
        tables_found_by="record of LlamaForCausalLM",
        tokenizer_kind="byte-level BPE",
        base_tokens=509,
        added_tokens=3,
        required_rows=512,
        vocab_size=512,
        input=TableFacts("model.embed_tokens.weight", 512, 64, "F32", "model.safetensors"),
        tied=True,
        weights_bytes=1_100_000,
        weights_files=1,
        roles=((Role.BOS, token(509, "<s>")), (Role.EOS, token(510, "</s>"))),
        stop_ids=((510, "</s>"),),
    ),
    findings=(
        finding(
            TA304,
            Severity.NOTE,
            "the tokenizer declares no pad token",
            Claim(Location("tokenizer_config.json"), "no pad_token"),
        ),
    ),
    suppressed=(),
    checked=tuple(ref for ref in RULES if ref not in (TA105, TA309)),
    skipped=(
        Skipped(TA105, "no output embeddings are stored"),
        Skipped(TA309, "no file holds a chat template"),
    ),
    unreadable=(),
)

BROKEN = Report(
    target="broken",
    summary=dataclasses.replace(
        CLEAN.summary,
        output=TableFacts("lm_head.weight", None, None, "U32", "model-00002-of-00002.safetensors"),
        tied=False,
        tables_found_by="name and shape",
        roles=((Role.EOS, token(510, "</s>")), (Role.PAD, token(514, HOSTILE))),
        stop_ids=((510, "</s>"), (900, None)),
    ),
    findings=(
        finding(
            TA101,
            Severity.ERROR,
            "3 token ids have no row in the input embeddings: "
            '512 "<|im_start|>", 513 "<|im_end|>" and 514 "[PAD]"',
            Claim(Location("tokenizer.json", "/added_tokens/0"), 'id 512 "<|im_start|>"'),
            Claim(Location("generation_config.json", "/eos_token_id"), '513 "<|im_end|>"'),
            Claim(
                Location("model.safetensors", tensor="model.embed_tokens.weight"),
                "512 rows, so the largest valid id is 511",
            ),
            why="Looking such an id up is an IndexError on CPU and a device-side assert on CUDA.",
            fix="tokaudit resize DIR OUT --to-tokenizer DIR",
            subject="model.embed_tokens.weight",
        ),
        finding(
            TA201,
            Severity.ERROR,
            "tie_word_embeddings is true, and the stored output embeddings differ in 512 rows",
            Claim(Location("config.json", "/tie_word_embeddings"), "true"),
            Claim(
                Location(
                    "model-00002-of-00002.safetensors",
                    tensor="language_model.model.decoder.output_projection.lm_head.weight",
                    rows=(3, 4),
                ),
                "512 rows differ; the first one is 3",
            ),
            why="Loaders keep one of the two tables; which one depends on their version.",
            fix='set "tie_word_embeddings": false in config.json',
            subject="lm_head.weight",
        ),
        finding(
            TA306,
            Severity.ERROR,
            f"no id for {HOSTILE}",
            Claim(Location(HOSTILE, f"/{HOSTILE}/::x"), HOSTILE),
            why=":: " * 40 + HOSTILE,
            fix=HOSTILE + "語" * 100 + "A" * 300,
            subject=HOSTILE,
        ),
        finding(
            TA305,
            Severity.WARNING,
            'pad is 0 "<unk>" in config.json and 514 "[PAD]" in the tokenizer',
            Claim(Location("config.json", "/pad_token_id"), '0 "<unk>"'),
            Claim(Location("tokenizer_config.json", "/pad_token"), '"[PAD]"'),
            why="The attention mask hides the wrong tokens.",
            fix='set "pad_token_id": 514 in config.json',
            subject="pad",
        ),
        finding(
            TA108,
            Severity.NOTE,
            "the input embeddings have 64 rows more than the tokenizer needs, "
            "which makes them a multiple of 64",
            Claim(
                Location("model.safetensors", tensor="model.embed_tokens.weight", rows=(512, 576)), "padding"
            ),
        ),
    ),
    suppressed=(Suppressed(CLEAN.findings[0], "tokaudit.toml", f"accepted {HOSTILE}"),),
    checked=CLEAN.checked,
    skipped=(*CLEAN.skipped, Skipped(TA701, HOSTILE)),
    unreadable=(),
    unused=(
        UnusedEntry("tokaudit.toml", TA108.code, TA108.slug, "", "for speed", datetime.date(2026, 1, 31)),
        UnusedEntry(HOSTILE, TA305.code, TA305.slug, HOSTILE, HOSTILE),
    ),
    settings="tokaudit.toml",
)

DAMAGED = dataclasses.replace(
    CLEAN,
    target="damaged",
    unreadable=(
        Unreadable("json-syntax", "config.json", "expected ',' at line 3, column 9", hint="restore the file"),
        Unreadable("weights-truncated", HOSTILE, HOSTILE),
    ),
)

ABSENT = Report(
    "absent",
    Summary(),
    (),
    (),
    (),
    (),
    (Unreadable("not-a-directory", "", "there is no directory 'absent'", hint="check the path"),),
)

REPORTS = {"clean": CLEAN, "broken": BROKEN, "damaged": DAMAGED, "absent": ABSENT}

ACTIVE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff\ud800-\udfff]"
)

# The whole grammar of what the github format may say to the runner. No text has a "::" in it.
_VALUE = r"(?:(?!::)[^:,\n])*"
_COMMAND = re.compile(
    r"::stop-commands::[0-9a-f]{32}\n|::[0-9a-f]{32}::\n"
    rf"|::(?:error|warning|notice) file={_VALUE},line=\d+,"
    rf"endLine=\d+,col=\d+,endColumn=\d+,title={_VALUE}::(?P<message>.*)\n"
)


def without_commands(text: str) -> str:
    """The output of any format without the lines that are commands of our own; their messages stay."""
    lines = text.splitlines(keepends=True)
    found = [_COMMAND.fullmatch(line) for line in lines]
    return "".join(
        (match["message"] or "") if match else line for match, line in zip(found, lines, strict=True)
    )
