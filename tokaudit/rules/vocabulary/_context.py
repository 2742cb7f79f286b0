"""How long a text may be, by the files that say so."""

from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Document, Fact

# transformers writes int(1e30) where no limit is known, and others write other huge numbers.
UNSET = 10**9
_CONFIG_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")


def model_max_length(tokenizer_config: Document) -> Fact[int] | None:
    """``model_max_length``, or None where it stands for "no limit". Raises FactMissing where it is absent."""
    stated = tokenizer_config.value("model_max_length")
    if not isinstance(stated.value, (int, float)) or isinstance(stated.value, bool) or stated.value >= UNSET:
        return None
    return Fact(int(stated.value), stated.at)


def context_lengths(contract: Contract) -> tuple[Fact[int], ...]:
    """Every stated limit: the tokenizer's, that of a sentence encoder, then the configuration's."""
    return tuple(_lengths(contract))


def _lengths(contract: Contract) -> Iterator[Fact[int]]:
    tokenizer_config, config = contract.tokenizer_config_or, contract.config_or
    if isinstance(tokenizer_config, Document) and tokenizer_config.has("model_max_length"):
        limit = model_max_length(tokenizer_config)
        if limit is not None:
            yield limit
    encoder = contract.encoder_config_or
    if isinstance(encoder, Document) and type(encoder.data.get("max_seq_length")) is int:
        yield encoder.integer("max_seq_length")
    if isinstance(config, Document):
        for document in (config, *(part for name, part in config.sections() if name == "text_config")):
            for field in _CONFIG_FIELDS:
                value = document.data.get(field)
                if type(value) is int:
                    yield Fact(value, document.at.child(field))
