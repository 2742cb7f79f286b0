"""Chat templates: Jinja that is valid, broken, deep or huge."""

from __future__ import annotations

from hypothesis import strategies as st

from fuzz.values import TEXTS, bitten

NAMES = st.sampled_from(
    [
        "messages",
        "message",
        "messages[0]",
        "message['role']",
        "message.content",
        "message['content']",
        "bos_token",
        "eos_token",
        "pad_token",
        "add_generation_prompt",
        "tools",
        "loop.last",
        "loop.index0",
        "ns.found",
        "undefined",
    ]
)
LITERALS = (
    st.sampled_from(
        ["''", "'user'", "'assistant'", "'<|im_end|>'", "'<|im_start|>'", "'</s>\\n'", "1", "0", "-1", "none"]
    )
    | st.sampled_from(["true", "[]", "{}", "'\\x00'", "'\\ud800'", "1.5", "1e400", "9" * 30, "10**9", "()"])
    | TEXTS.map(lambda text: repr(text).replace("{", ""))
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operator = st.sampled_from(
        [
            "+",
            "~",
            "-",
            "*",
            "/",
            "//",
            "%",
            "**",
            "==",
            "!=",
            "<",
            ">=",
            "in",
            "not in",
            "and",
            "or",
            "is",
            "|",
        ]
    )
    filters = st.sampled_from(
        ["trim", "upper", "tojson", "length", "default('x')", "map('a')", "join", "nosuch", "safe"]
    )
    tests = st.sampled_from(["defined", "none", "string", "iterable", "divisibleby(2)", "nosuch"])
    return (
        st.builds("{} {} {}".format, inner, operator, inner)
        | st.builds("({})".format, inner)
        | st.builds("{}|{}".format, inner, filters)
        | st.builds("{} is not {}".format, inner, tests)
        | st.builds("{} if {} else {}".format, inner, inner, inner)
        | st.builds("{}[{}]".format, inner, inner)
        | st.builds("{}[1:{}]".format, inner, inner)
        | st.builds("not {}".format, inner)
        | st.builds("[{}, {}]".format, inner, inner)
        | st.builds("{{'a': {}}}".format, inner)
        | st.builds(
            "{}({})".format,
            st.sampled_from(["raise_exception", "range", "namespace", "strftime_now", "x"]),
            inner,
        )
        | st.builds(
            "{}.{}({})".format,
            inner,
            st.sampled_from(["strip", "split", "items", "startswith", "append"]),
            inner,
        )
    )


EXPRESSIONS = st.recursive(NAMES | LITERALS, _larger, max_leaves=5)


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    dash = st.sampled_from(["", "-", "+"])
    return (
        st.builds("{}{}".format, inner, inner)
        | st.builds(
            "{{%{} if {} %}}{}{{% elif {} %}}{}{{% else %}}{}{{% endif %}}".format,
            dash,
            EXPRESSIONS,
            inner,
            EXPRESSIONS,
            inner,
            inner,
        )
        | st.builds("{{% for message in {} %}}{}{{% endfor %}}".format, EXPRESSIONS, inner)
        | st.builds(
            "{{% for message in messages if {} recursive %}}{}{{% else %}}{}{{% endfor %}}".format,
            EXPRESSIONS,
            inner,
            inner,
        )
        | st.builds(
            "{{% macro x(a, b={}) %}}{}{{% endmacro %}}{{{{ x({}) }}}}".format,
            EXPRESSIONS,
            inner,
            EXPRESSIONS,
        )
        | st.builds("{{% call x() %}}{}{{% endcall %}}".format, inner)
        | st.builds("{{% filter upper %}}{}{{% endfilter %}}".format, inner)
        | st.builds("{{% set content %}}{}{{% endset %}}".format, inner)
        | st.builds("{{% generation %}}{}{{% endgeneration %}}".format, inner)
        | st.builds("{{% with a = {} %}}{}{{% endwith %}}".format, EXPRESSIONS, inner)
        | st.builds("{{% block b %}}{}{{% endblock %}}".format, inner)
        | st.builds("{{% raw %}}{}{{% endraw %}}".format, inner)
        | st.builds("{{% autoescape true %}}{}{{% endautoescape %}}".format, inner)
    )


PLAIN = TEXTS.map(lambda text: text.replace("{", "")) | st.sampled_from(
    ["<|im_start|>", "<|im_end|>\n", "</s>", "<think>"]
)
SMALL = (
    PLAIN
    | st.builds("{{{{ {} }}}}".format, EXPRESSIONS)
    | st.builds("{{{{- {} -}}}}".format, EXPRESSIONS)
    | st.builds(
        "{{% set {} = {} %}}".format,
        st.sampled_from(["x", "ns.found", "message", "messages", "a, b"]),
        EXPRESSIONS,
    )
    | st.builds("{{# {} #}}".format, PLAIN)
    | st.sampled_from(
        ["{% break %}", "{% continue %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}"]
    )
    | st.sampled_from(
        ["{% do x %}", "{% debug %}", "{% trans %}x{% endtrans %}", "{% nosuch %}", "{{", "{%", "#}", "{{}}"]
    )
)
VALID = st.recursive(SMALL, _nested, max_leaves=6)

MANY = st.sampled_from([30, 60, 100, 150, 300, 500, 1000, 2000, 5000, 70_000])


def _repeated(before: str, middle: str, after: str) -> st.SearchStrategy[str]:
    return MANY.map(lambda times: before * times + middle + after * times)


_AROUND = [
    *[
        ("(", ")"),
        ("[", "]"),
        ("{'a':", "}"),
        ("not ", ""),
        ("-", ""),
        ("", ".a"),
        ("", "|trim"),
        ("", " + a"),
    ],
    *[("", "()"), ("", "[0]"), ("x(", ")"), ("a if ", " else b"), ("", " ~ 'x'"), ("", " is none")],
]
DEEP = st.one_of(
    _repeated("{% if messages %}", "x", "{% endif %}"),
    _repeated("{% for message in messages %}", "{{ message.content }}", "{% endfor %}"),
    _repeated("{% if a %}{% elif b %}x{% else %}", "{{ message['content'] }}", "{% endif %}"),
    _repeated("{% macro x() %}", "x", "{% endmacro %}"),
    _repeated("{% set x %}", "x", "{% endset %}"),
    *[
        MANY.map(lambda times, parts=parts: "{{ " + parts[0] * times + "a" + parts[1] * times + " }}")
        for parts in _AROUND
    ],
)
HUGE = st.builds(
    lambda part, times: part * times,
    SMALL | VALID,
    st.sampled_from([10, 30, 100, 300, 1000]),
).map(lambda text: text[:400_000])

TEXT = st.one_of(VALID, VALID, VALID, VALID, DEEP, HUGE)
FILES = TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")) | bitten(
    VALID.map(lambda text: text.encode("utf-8", "surrogatepass"))
)
