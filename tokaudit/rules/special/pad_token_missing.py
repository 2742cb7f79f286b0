from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Role
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.special._ids import states
from tokaudit.rules.special._kind import is_decoder_classifier, is_static


class PadTokenMissing(Rule):
    """No file names a pad token.

    ## What it finds

    A tokenizer without a pad token, where `config.json` and `generation_config.json` name no pad id either.
    That is a note for most models: released Llama checkpoints ship so. It is an error for a sequence
    classifier on a decoder (`LlamaForSequenceClassification`, `GPT2ForSequenceClassification` ...).

    ## Why it matters

    Batches cannot be padded until somebody chooses a token, and choosing the end-of-sequence token hides the
    stop signal from training (`pad-equals-eos`). A sequence classifier on a decoder reads its answer at the
    last token that is not padding: without a pad id it refuses batches of more than one sequence.

    ## How to fix it

    Declare a token that is never used otherwise (`"pad_token": "<unk>"` or a reserved one) in
    `tokenizer_config.json`, and write its id as `pad_token_id` in `config.json`. To add a new token and its
    row: `tokaudit resize SRC DST --add-token "<pad>"`.
    """

    code = "TA302"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        config, vocabulary = contract.config, contract.vocabulary
        if is_static(contract) or not contract.embeddings.language_model:
            raise FactMissing("the model does not pad token ids")
        fields = contract.fields(Role.PAD)
        declared = any(special.role is Role.PAD for special in contract.special_tokens)
        if declared or any(field.malformed or any(id >= 0 for id in field.ids) for field in fields):
            return
        classifier = is_decoder_classifier(contract)
        claims = [Claim(vocabulary.tables[0].at, "the tokenizer declares no pad token")]
        claims += [states(contract, field) for field in fields]
        if not fields:
            claims.append(Claim(config.at, "pad_token_id is not stated"))
        yield self.finding(
            "no file names a pad token",
            claims,
            why="the classifier cannot find the last real token of a padded sequence"
            if classifier
            else "batches cannot be padded until somebody chooses a token",
            fix="declare `pad_token` in tokenizer_config.json and its id as `pad_token_id` in config.json",
            severity=Severity.ERROR if classifier else Severity.NOTE,
            subject="pad",
        )
