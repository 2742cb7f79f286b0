from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import ChatTemplate, Contract
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule

# The templates that `apply_chat_template` takes by itself; any other one is taken where it is named.
_TAKEN = frozenset({"default", "tool_use"})


class TemplateBroken(Rule):
    """A chat template cannot be used: its file is not UTF-8, or Jinja2 does not parse it.

    ## What it finds

    Template files (`chat_template.jinja`, `additional_chat_templates/*.jinja`) with bytes that are not UTF-8,
    and templates that Jinja2 does not parse with the tags that transformers knows (`generation`, `break` and
    `continue` are among them). A template is parsed and never compiled or rendered: an unknown filter, or
    what goes wrong with some messages only, is not found. It is a warning for a template that does not parse
    and has a name of its own, which is only taken by those who ask for it. `default` and `tool_use`
    (`additional_chat_templates/tool_use.jinja`) are taken unasked: they are errors.

    ## Why it matters

    `AutoTokenizer` raises `UnicodeDecodeError` where a template's file is not UTF-8, whether the template is
    used or not. One that does not parse makes `apply_chat_template` raise `TemplateSyntaxError`, and a server
    fail at its start or at the first chat.

    ## How to fix it

    Save the file as UTF-8 (`iconv -f latin1 -t utf-8`), or mend the line that is named; a tag that is not
    closed is reported at the end. Otherwise take the template from its source again.
    """

    code = "TA315"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        if not contract.templates:
            raise FactMissing("there is no chat template")
        for template in contract.templates:
            if template.broken:
                yield self._finding(template)

    def _finding(self, template: ChatTemplate) -> Finding:
        if template.broken == "encoding":
            why = "AutoTokenizer of transformers raises UnicodeDecodeError, even if no chat is made"
            fix = "save the file as UTF-8"
        else:
            why = "apply_chat_template of transformers raises TemplateSyntaxError"
            fix = "mend that line, or take the template from its source again"
        loud = template.broken == "encoding" or template.name in _TAKEN
        return self.finding(
            template.problem,
            [Claim(template.at, "is not UTF-8" if template.broken == "encoding" else "does not parse")],
            why=why,
            fix=fix,
            severity=Severity.ERROR if loud else Severity.WARNING,
            subject=template.title,
        )
