"""What is read off a chat template: control tokens, role variables and what ends an assistant's turn.

The shapes are those of families in use. Each is rendered here, and only here, to compare what stands after
the assistant's text with what was worked out without rendering.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment
from models import FIXTURES

from tokaudit.contract import ChatTemplate, Document, Missing
from tokaudit.findings import Location
from tokaudit.formats import chat_template
from tokaudit.formats.chat_template import LONGEST_MARKER, MOST_CHARACTERS
from tokaudit.formats.chat_templates import FILE, stated_templates, template_files

AT = Location("chat_template.jinja")

# What can end an assistant's turn in each of fixtures/templates, empty where the template does not tell.
SHAPES: dict[str, tuple[str, ...]] = {
    "chatml": ("<|im_end|>",),
    "llama-2": ("eos_token",),
    "llama-3": ("<|eot_id|>",),
    "llama-3.1": ("<|eot_id|>",),
    "gemma-3": ("<end_of_turn>",),
    "gemma-4": ("<turn|>",),
    "mistral": ("eos_token",),
    "deepseek": ("<｜end▁of▁sentence｜>",),
    "gpt-oss": ("<|return|>", "<|call|>"),
    "qwen-3": ("<|im_end|>",),
    "smollm-3": ("<|im_end|>",),
    "zephyr": ("eos_token",),
    "phi-3": ("<|end|>",),
    "phi-4": ("<|end|>",),
    "granite": ("<|end_of_text|>",),
    "command-r7b": ("<|END_RESPONSE|>", "<|END_OF_TURN_TOKEN|>"),
    "kimi": ("<|im_end|>",),
    "nemotron": ("<SPECIAL_12>",),
    "smolvlm": ("<end_of_utterance>",),
    "last-message-left-open": ("<|end|>",),
    "eos-after-the-conversation": ("eos_token",),
    "marker-in-a-variable": ("<|im_end|>",),
    "marker-from-a-macro": ("<|end|>",),
    "sharegpt-roles": ("<|im_end|>",),
    "eos-redefined": ("<|im_end|>",),
    "glm": (),
    "alpaca": (),
    "system-prompt-alone": (),
    "no-loop": (),
    "markers-before-the-text": (),
    "only-user-turns-end": (),
    "quoted-conversation": (),
}
KNOWN = {  # texts of added tokens that no pattern recognises
    "mistral": ["[/INST]", "[INST]", "[TOOL_CALLS]"],
    "qwen-3": ["</think>", "</tool_call>", "<think>", "<tool_call>"],
    "nemotron": ["\n\n", " ", "<SPECIAL_11>", "<SPECIAL_12>"],
    "smolvlm": ["<end_of_utterance>", "<image>"],
    "glm": ["[gMASK]", "<sop>", "<think>", "</think>"],
}
ROLES = {"sharegpt-roles": ("human", "gpt")}


def read(template: str, known: Iterable[str] = ()) -> ChatTemplate:
    return chat_template.read(template, "default", AT, frozenset(known))


def shape(name: str) -> str:
    return (FIXTURES / "templates" / f"{name}.jinja").read_text("utf-8")


@pytest.mark.parametrize("name", SHAPES)
def test_the_end_of_a_turn_is_found_or_not_claimed(name: str) -> None:
    found = read(shape(name), KNOWN.get(name, ()))
    assert found.problem == ""
    assert found.turn_ends == SHAPES[name]


def test_every_template_of_the_fixtures_is_expected() -> None:
    assert {path.stem for path in (FIXTURES / "templates").glob("*.jinja")} == set(SHAPES)


@pytest.mark.parametrize("name", [name for name, ends in SHAPES.items() if ends and name != "gpt-oss"])
def test_what_was_worked_out_is_what_rendering_prints_after_the_answer(name: str) -> None:
    """gpt-oss apart: a turn can also end with <|call|>, which is not printed for an answer."""
    found = read(shape(name), KNOWN.get(name, ()))
    after = rendered_after_answer(
        shape(name),
        *ROLES.get(name, ("user", "assistant")),
        parts=name == "smolvlm",
        more=name == "last-message-left-open",
    )
    ends = [end.replace("eos_token", "[EOS]") for end in found.turn_ends]
    positions = [after.find(end) for end in ends]
    assert -1 not in positions
    assert positions == sorted(positions)
    others = {*found.control, *KNOWN.get(name, ())} - set(ends)
    assert not any(other.strip() and other in after for other in others)


def rendered_after_answer(
    template: str, user: str, assistant: str, *, parts: bool = False, more: bool = False
) -> str:
    """What Jinja2 prints after the answer of a conversation of two messages (or before the next one)."""

    class Marked(jinja2.ext.Extension):
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Marked, "jinja2.ext.loopcontrols"]
    )

    def content(text: str) -> Any:
        return [{"type": "text", "text": text}] if parts else text

    messages = [
        {"role": user, "content": content("QUESTION")},
        {"role": assistant, "content": content("ANSWER")},
    ]
    if more:
        messages.append({"role": user, "content": content("NEXT")})
    text = environment.from_string(template).render(
        messages=messages,
        bos_token="[BOS]",
        eos_token="[EOS]",
        add_generation_prompt=False,
        strftime_now=lambda pattern: "today",
        raise_exception=lambda message: pytest.fail(message),
    )
    return text.partition("ANSWER")[2].partition("NEXT")[0]


CONDITIONS = [
    *["m", "'role' in m", "'content' in m", "'name' in m", "'name' not in m", "m is mapping"],
    *["m.role == 'assistant'", "m['role'] == 'assistant'", "m.get('role') == 'assistant'", "not m.role"],
    *["m.role != 'assistant'", "m.role | upper == 'ASSISTANT'", "m.role is string", "m.role is boolean"],
    *["m.role in ('user', 'assistant')", "m.role in ['user', 'tool']", "m.role not in ['user']"],
    *["m.role is mapping", "m.role is none", "m.role is iterable", "m.role == 'user' or m.role == 'tool'"],
    *[
        "m.content == ''",
        "m.content != ''",
        "m.content | trim",
        "m.content is string",
        "m.content is mapping",
    ],
    *["m.content is iterable", "m.content is sequence", "m.content is defined", "m.content is undefined"],
    *["m.name", "not m.name", "m.name == 'x'", "m.name != 'x'", "m.name is string", "'x' in m.name"],
    *["m.name is defined", "m.name is undefined", "m.name is not defined", "m.get('name') is none"],
    *["m.get('name')", "m.get('name', 'x') == 'x'", "(m.role if m.name else 'tool') == 'tool'"],
    *["m.role and m.name", "m.name and m.role", "m.role or m.name", "m.name or m.role", "x or m.name"],
    *[
        "messages",
        "messages is sequence",
        "messages is iterable",
        "messages is mapping",
        "messages is string",
    ],
    *["'b' in 'abc'", "'x' in 'abc'", "'x' not in 'abc'", "2 in (1, 2)", "3 in (1, 2)", "(1, 2) is sequence"],
    *["none is none", "true is true", "true is false", "false is false", "false is true", "true is boolean"],
    *["''", "'a'", "0", "1", "none", "false", "true", "not false", "1 == 1", "1 == 2", "1 is iterable"],
    *[
        "m.name | default('x') == 'x'",
        "m.name | d('x') == 'y'",
        "m.name | default",
        "m.content | default('')",
    ],
    *["m.role | default('x') == 'assistant'", "m.name | default('x', true)", "'' | default('x', true)"],
    *["'' | default('x')", "'' | default('x', false)"],
    *["loop.last", "loop.index0 == 0", "add_generation_prompt", "add_generation_prompt is defined"],
]
UNTOLD = [
    *["y()", "not y()", "y() == 'a'", "y() in m", "y() is none", "m[y()]", "m[y()] is defined", "'a' in y()"],
    *["m.role[:2] == 'as'", "m.role[1:] == 'assistant'", "m.role[0] == 'a'", "m.role.startswith('as')"],
    *["m.content.startswith('<think>')", "m.content.find('x') == 0", "m.content.strip().endswith('.')"],
    *["m.content == 'ANSWER'", "'A' in m.content", "m.content | length > 1", "m.role is frobnicated"],
    *["y() | default('x')", "y() | default('x', true) == 'x'", "m.role and y() | d('x')"],
    *["y() and m.role", "m.role and y()", "y() or m.name", "loop.first", "1 < 2", "'a' in 1"],
]


def asking(condition: str) -> str:
    return (
        "{% for m in messages %}{{ m.content }}{% if "
        + condition
        + " %}<|yes|>{% else %}<|no|>{% endif %}{% endfor %}"
    )


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_has_the_outcome_that_rendering_gives_it(condition: str) -> None:
    after = rendered_after_answer(asking(condition), "user", "assistant")
    assert read(asking(condition)).turn_ends == (after,)


@pytest.mark.parametrize(
    ("role", "ends"),
    [
        ("turn.role", ("<|end|>",)),
        ("turn['role']", ("<|end|>",)),
        ("turn['from']", ("<|end|>",)),
        ("turn['name']", ()),
        ("turn[role]", ()),
    ],
)
def test_what_is_asked_for_a_role_is_a_message(role: str, ends: tuple[str, ...]) -> None:
    found = read(f"{{% for turn in merged(messages) %}}{{{{ {role} ~ turn.content }}}}<|end|>{{% endfor %}}")
    assert found.turn_ends == ends


@pytest.mark.parametrize(
    ("turn", "ends"),
    [
        # Once words were printed the turn is over; where they may be absent it goes on.
        ("{{ m.content }}<|a|>words{{ eos_token }}", ("<|a|>",)),
        ("{{ m.content }}<|a|>{% if y() %}words{% endif %}{{ eos_token }}", ("<|a|>", "eos_token")),
        ("{% if y() %}{{ m.content }}words{% endif %}<|a|>", ()),
        # Nothing follows an exception, or a step to the next message.
        ("{% if y() %}{{ raise_exception() }}{{ m.content }}<|a|>{% endif %}", ()),
        ("{% if y() %}{% continue %}{{ m.content }}<|a|>{% endif %}", ()),
        # What a function is given with the message, or with its text, holds the text.
        ("<|a|>{{ render(m) }}<|b|>", ("<|b|>",)),
        ("<|a|>{{ render(m.content) }}<|b|>", ("<|b|>",)),
        ("{{ m.content }}<|a|>{{ render(y) }}<|b|>", ("<|a|>", "<|b|>")),
        ("{{ m.content }}<|a|>{{ y.pop() }}<|b|>", ("<|a|>", "<|b|>")),
        ("<|a|>{{ ' '.join(m.content) }}<|b|>", ("<|b|>",)),
        ("{{ m.content }}<|a|>{{ ' '.join(y) }}<|b|>", ("<|a|>", "<|b|>")),
        ("<|a|>{{ m.content.replace('x', 'y') }}<|b|>", ("<|b|>",)),
    ],
)
def test_a_turn_ends_with_the_markers_right_after_its_text(turn: str, ends: tuple[str, ...]) -> None:
    assert read(f"{{% for m in messages %}}{turn}{{% endfor %}}").turn_ends == ends


def test_a_loop_that_prints_no_text_leaves_the_turn_open() -> None:
    loops = "{% for m in messages %}{{ m.content }}{% endfor %}{% for m in messages %}{% endfor %}"
    assert read(f"{loops}<|end|>").turn_ends == ("<|end|>",)


def test_harmony_without_a_turn_claims_no_end() -> None:
    assert read("<|start|>system<|message|>{{ messages | tojson }}<|end|>").turn_ends == ()


@pytest.mark.parametrize(
    "body",
    [
        "{{ x }}<|end|>",
        "{% if y() %}{{ x }}{% endif %}<|end|>",
        "{% for part in x %}{{ part.text }}{% endfor %}<|end|>",
        "{% if x is string %}{{ x }}{% else %}{{ y }}{% endif %}{{ '<|end|>' }}",
    ],
)
def test_what_a_macro_prints_after_the_content_ends_the_turn(body: str) -> None:
    macro = f"{{% macro say(x) %}}{body}{{% endmacro %}}"
    found = read(macro + "{% for m in messages %}<|start|>{{ say(m.content) }}{% endfor %}")
    assert found.turn_ends == ("<|end|>",)


def test_a_macro_that_collects_the_content_prints_it_last() -> None:
    macro = "{% macro say(x) %}<|start|>{% set ns.text = ns.text + x %}{{ ns.text }}{% endmacro %}"
    found = read(macro + "{% for m in messages %}{{ say(m.content) }}<|end|>{% endfor %}")
    assert found.turn_ends == ("<|end|>",)


@pytest.mark.parametrize("condition", UNTOLD)
def test_a_condition_that_cannot_be_told_leaves_both_branches(condition: str) -> None:
    assert read(asking(condition)).turn_ends == ("<|yes|>", "<|no|>")


@pytest.mark.parametrize(
    ("head", "message", "ends"),
    [
        ("for m in messages if m.role == 'assistant'", "m", ("<|end|>",)),
        ("for m in messages if y()", "m", ("<|end|>",)),
        ("for m in messages if m.role == 'user'", "m", ()),
        ("for i in range(messages | length)", "messages[i]", ("<|end|>",)),
        ("for i in range(0, messages | count)", "messages[i]", ("<|end|>",)),
        ("for turn in conversation", "turn", ()),
        ("for i in range(3)", "messages[i]", ()),
    ],
)
def test_turns_are_those_of_the_loop_over_the_messages(
    head: str, message: str, ends: tuple[str, ...]
) -> None:
    found = read(f"{{% {head} %}}{{{{ {message}.content }}}}<|end|>{{% endfor %}}")
    assert (found.turn_ends, found.problem) == (ends, "")


@pytest.mark.parametrize(
    ("template", "ends"),
    [
        # A loop over the messages within a turn is no other turn.
        (
            "{% for m in messages %}{{ m.content }}{% for t in y() %}{% for n in messages %}<|x|>"
            "{{ n.content }}{% endfor %}{% endfor %}<|end|>{% endfor %}",
            ("<|x|>", "<|end|>"),
        ),
        (
            "{% for m in messages %}{{ m.content }}{% set e = '<|a|>' if y() else '<|b|>' %}"
            "{{ e | default('') }}{% endfor %}",
            ("<|a|>", "<|b|>"),
        ),
        ("{% for m in messages %}{{ m.content }}{{ e | default('<|a|>') }}{% endfor %}", ("<|a|>",)),
        # What a name holds after an assignment to several is not known.
        (
            "{% set e = '<|a|>' %}{% set e, f = y %}{% for m in messages %}{{ m.content }}{{ e }}"
            "{% endfor %}",
            (),
        ),
    ],
)
def test_values_are_followed_to_where_they_are_printed(template: str, ends: tuple[str, ...]) -> None:
    assert read(template).turn_ends == ends


def test_more_ends_of_a_turn_than_can_be_followed_are_not_claimed() -> None:
    ends = [f"<|{number}|>" for number in range(500)]
    branches = "".join(f"{{% if y() %}}{end}{{% endif %}}" for end in ends)
    found = read("{% for m in messages %}{{ m.content }}" + branches + "{% endfor %}")
    assert (found.turn_ends, len(found.control)) == ((), 500)


REAL_ENDS = {
    "smollm3": ("<|im_end|>",),
    "qwen3": ("<|im_end|>",),
    "minimind": ("<|im_end|>",),
    "mixtral-dolphin-2.5_cfg": ("<|im_end|>",),
    "phi-4": ("<|end|>",),
    "granite-3.1-1b": ("<|end_of_text|>",),
    "torchtitan-test-tokenizer": ("eos_token",),
    "gpt-oss": ("<|return|>", "<|call|>"),
}


def real_template(folder: Path) -> tuple[str, set[str]]:
    """The published template, and the texts of the added tokens that its configuration lists."""
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    known = {token["content"] for token in config.get("added_tokens_decoder", {}).values()}
    file = folder / "chat_template.jinja"
    return (file.read_text("utf-8") if file.exists() else config["chat_template"]), known


@pytest.mark.real
@pytest.mark.parametrize("name", REAL_ENDS)
def test_published_templates_end_turns_as_their_models_do(real: Path, name: str) -> None:
    template, known = real_template(real / name)
    found = read(template, known)
    assert found.turn_ends == REAL_ENDS[name]
    if name != "gpt-oss":
        after = rendered_after_answer(template, "user", "assistant")
        assert REAL_ENDS[name][0].replace("eos_token", "[EOS]") in after


@pytest.mark.real
@pytest.mark.parametrize("name", [name for name in REAL_ENDS if name != "torchtitan-test-tokenizer"])
def test_published_templates_print_only_control_tokens_of_their_own(real: Path, name: str) -> None:
    template, known = real_template(real / name)
    added = real / name / "added_tokens.json"
    if added.exists():
        known |= set(json.loads(added.read_text("utf-8")))
    assert set(read(template, known).control) <= known


def test_control_tokens_and_role_variables_are_listed_in_order() -> None:
    found = read(
        "{{ bos_token }}<|a|>{% for m in messages %}{{ '<|b|>' + m.content + eos_token }}<|a|>{% endfor %}"
    )
    assert found.control == ("<|a|>", "<|b|>")
    assert found.prints == ("bos_token", "eos_token")


@pytest.mark.parametrize(
    "template",
    [
        "{% if '<|im_end|>' in messages[0].content %}x{% endif %}",
        "{% if message == '<|im_end|>' %}x{% endif %}",
        "{{ content.split('<|im_end|>')[0] }}",
        "{{ content | replace('<|im_end|>', '') }}",
        "{{ content.startswith('<|im_end|>') }}",
        "{{ table['<|im_end|>'] }}",
        "{{ 'a' if x == '<|im_end|>' else 'b' }}",
        "{# <|im_end|> #}",
        "{{ raise_exception('no <|im_end|> here') }}",
    ],
)
def test_texts_that_are_only_looked_for_are_not_printed(template: str) -> None:
    assert read(template).control == ()


@pytest.mark.parametrize(
    "template",
    [
        "<|im_end|>",
        "{{ '<|im_end|>' }}",
        "{{ x or '<|im_end|>' }}",
        "{{ 'a' if x else '<|im_end|>' }}",
        "{{ '<|im_end|>' if x else 'a' }}",
        "{% set end = '<|im_end|>' %}",
        "{% set ns = namespace(end='<|im_end|>') %}",
        "{{ {'user': 'a', 'assistant': '<|im_end|>'}[role] }}",
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ m('<|im_end|>') }}",
        "{{ ('<|im_end|>' ~ x).strip() }}",
        "{{ '\\x3c|im_end|>' }}",
    ],
)
def test_texts_that_can_be_printed_are_found_wherever_they_stand(template: str) -> None:
    assert read(template).control == ("<|im_end|>",)


def test_added_tokens_count_as_control_tokens_whatever_they_look_like() -> None:
    found = read("[INST] hello [/INST]\n\n", {"[INST]", "[/INST]", "\n\n", "h", "absent"})
    assert found.control == ("[INST]", "[/INST]")


@pytest.mark.parametrize("token", ["h", "\n\n", "  ", " o", "d" * (LONGEST_MARKER + 1)])
def test_an_added_token_of_one_character_of_blanks_or_of_great_length_is_text(token: str) -> None:
    assert read(f"hello{token}<|end|>", {token}).control == ("<|end|>",)


def test_an_added_token_of_a_hundred_characters_is_a_marker() -> None:
    assert read("d" * LONGEST_MARKER, {"d" * LONGEST_MARKER}).control == ("d" * LONGEST_MARKER,)


def test_the_longest_of_overlapping_tokens_counts() -> None:
    assert read("<a><b>", {"<a>", "<a><b>"}).control == ("<a><b>",)
    assert read("a[]", {"[]"}).control == ("[]",)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages %}", "Jinja2 does not parse it"),
        ("{{ 'a }}", "Jinja2 does not parse it"),
        ("{% frobnicate %}", "Jinja2 does not parse it"),
        ("{{ " + "1" * 5_000 + " }}", "Jinja2 does not parse it"),
        ("{% " + "x" * 5_000 + " %}", "Jinja2 does not parse it"),
        ("{{" + "(" * 50_000, "nested too deeply"),
        ("{% if x %}" * 20_000, "nested too deeply"),
        ("{{ " + "a + " * 20_000 + "a }}", "nested too deeply"),
    ],
)
def test_a_template_that_cannot_be_followed_says_why(template: str, reason: str) -> None:
    found = read(template)
    assert reason in found.problem
    assert found.broken == ("syntax" if reason.startswith("Jinja2") else "")
    assert "\n" not in found.problem
    assert len(found.problem) < 400
    assert (found.control, found.turn_ends) == ((), ())


def test_templates_are_never_compiled_or_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a template was compiled")

    for name in ("compile", "from_string", "compile_expression", "_generate", "_compile"):
        monkeypatch.setattr(jinja2.Environment, name, refuse)
    found = read(
        "{% for i in range(10**12) %}{{ ''.__class__.__mro__[1].__subclasses__() }}<|x|>{% endfor %}"
    )
    assert found.control == ("<|x|>",)


HOSTILE = {
    "doubling": "{% set a = '<|x|>' %}" + "{% set a = a ~ a %}" * 5000 + "{{ a }}",
    "doubling branches": "{% for m in messages %}{{ m.content }}{% set a = '<|x|>' %}"
    + "{% set a = (a if y() else a) ~ (a if y() else a) %}" * 2000
    + "{{ a }}{% endfor %}",
    "macros that call two others": "".join(
        f"{{% macro m{i}() %}}{{{{ m{i + 1}() }}}}{{{{ m{i + 1}() }}}}{{% endmacro %}}" for i in range(60)
    )
    + "{{ m0() }}",
    "many variables and branches": "".join(f"{{% set v{i} = 1 %}}" for i in range(5000))
    + "{% if y() %}{% endif %}" * 4000,
    "many arguments": "{% macro m("
    + ",".join(f"a{i}" for i in range(3000))
    + ") %}{% endmacro %}"
    + "{{ m() }}" * 5000,
    "nested loops asking": "{% for a in y() %}" * 100 + "{{ a.b }}" * 10_000 + "{% endfor %}" * 100,
    "tags without end": "{%- " * 60_000,
    "prints": "{{ 'a' }}" * 25_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_cost_seconds_and_little_memory(name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    read(HOSTILE[name])
    assert time.process_time() - started < 15
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


def test_two_hundred_thousand_added_tokens_cost_seconds() -> None:
    known = {f"<tok{number}>" for number in range(200_000)}
    started = time.process_time()
    assert read("<tok5> " * 30_000, known).control == ("<tok5>",)
    assert time.process_time() - started < 15


def test_a_template_of_ten_megabytes_is_not_read() -> None:
    (found,) = chat_template.read_all([("default", "x" * 10_000_000, AT)], frozenset())
    assert f"more than {MOST_CHARACTERS:,} characters" in found.problem


def test_the_length_of_all_templates_together_is_limited() -> None:
    half = "x" * (MOST_CHARACTERS // 2)
    found = chat_template.read_all([(name, half, AT) for name in ("a", "b", "c")], frozenset())
    assert [bool(template.problem) for template in found] == [False, False, True]


PIECES = st.sampled_from(
    [
        "{% for m in messages %}",
        "{% endfor %}",
        "{% if m.role == 'assistant' %}",
        "{% elif x is not none %}",
        "{% else %}",
        "{% endif %}",
        "{{ m.content }}",
        "{{ m['content'] | trim + '<|end|>' }}",
        "{{ f(m) if loop.last else eos_token }}",
        "{% set x = m.content %}",
        "{% set ns.x, y = 1, 2 %}",
        "{% macro f(a, b=1) %}",
        "{% endmacro %}",
        "{{ x[1:](y)[0].z }}",
        "{% break %}",
        "{% continue %}",
        "<|im_end|>",
        "{{ -1 if not x and y or z is string else {'a': [1, (2,)]}['a'] }}",
        "{% set z %}{{ m }}{% endset %}",
        "{% call f(1) %}a{% endcall %}",
        "{% filter upper %}a{% endfilter %}",
        "{% with a = m %}{{ a.content }}{% endwith %}",
        "{{ f(*x, **y) ~ range(messages|length) }}",
        "{% for a, b in m.items() if a %}",
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_whatever_the_template_reading_it_ends_without_an_exception(template: str) -> None:
    found = read(template)
    assert found.problem == "" or found.turn_ends == ()


@given(st.text(max_size=60), st.sets(st.text(max_size=6), max_size=4))
def test_any_text_is_read_without_an_exception(template: str, known: set[str]) -> None:
    assert isinstance(read(template, known), ChatTemplate)


def test_the_default_file_of_templates_comes_first_and_others_have_names() -> None:
    names = ["additional_chat_templates/b.jinja", "additional_chat_templates/a.jinja", "other/c.jinja"]
    named = [("a", "additional_chat_templates/a.jinja"), ("b", "additional_chat_templates/b.jinja")]
    assert list(template_files([*names, "additional_chat_templates/README.md", "d.jinja"])) == named
    assert list(template_files([*names, FILE])) == [("default", FILE), *named]


def test_templates_inside_a_file_are_one_or_have_names() -> None:
    def stated(value: object) -> list[tuple[str, str, str]]:
        document = Document(Location("tokenizer_config.json"), {"chat_template": value})
        return [(name, source, str(at)) for name, source, at in stated_templates(document)]

    where = "tokenizer_config.json#/chat_template"
    assert stated("T") == [("default", "T", where)]
    named = [{"name": "tool", "template": "T"}, {"template": "U"}, {"name": "no"}, {"template": 1}, "V"]
    assert stated(named) == [("tool", "T", f"{where}/0/template"), ("1", "U", f"{where}/1/template")]
    assert stated(None) == stated({"template": "T"}) == []
    assert not list(stated_templates(Missing("none")))
