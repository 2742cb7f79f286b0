from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule


class TemplateDrift(Rule):
    """The chat template is not the one in the lock.

    ## What it finds

    A chat template whose text differs, or that was added or removed, by name. Where it is kept
    (`chat_template.jinja`, `tokenizer_config.json`, `additional_chat_templates/`) does not matter, nor do
    line ends and one line end at the end of the file, which rendering drops.

    ## Why it matters

    The template decides what the model really reads for a list of messages. A changed default system
    prompt, a lost tool section or another end of turn changes answers without an error. It is a warning
    because templates are also mended on purpose.

    ## How to fix it

    Compare both with `tokaudit diff OLD NEW`, which shows the first line that differs. If the change is
    meant, make the lock again: `tokaudit lock PATH`.
    """

    code = "TA503"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        lock = contract.lock
        from tokaudit.diffs import drift

        drift.required(lock.templates, "chat templates")
        contract.vocabulary  # noqa: B018  (raises where there is no tokenizer that could have one)
        changes = drift.template_changes(contract)
        if changes:
            yield self.finding(
                f"{drift.said(changes)}, which is not the lock's",
                drift.claims(contract, changes),
                why="the model reads another text for the same messages",
                fix=f"deploy the template that the lock was made of; {drift.MAKE_AGAIN}",
                subject=", ".join(change.path[0] for change in changes),
            )
