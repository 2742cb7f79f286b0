from __future__ import annotations

import re
from collections.abc import Iterator

from tokaudit.contract import FLAGS, AddedToken, Contract, Missing, TokenTable, Vocabulary, Witness
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.rules.vocabulary._witnesses import TokenFile, moved, renamed, token_files, unknown
from tokaudit.text import counted, listed, named, shown

_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


class TokenizerFilesDisagree(Rule):
    """Two files of one tokenizer give a token different ids, or an id different tokens.

    ## What it finds

    `tokenizer.json` (or the vocabulary file where there is none) against every other file that gives ids:
    `added_tokens_decoder` of `tokenizer_config.json`, `added_tokens.json`, `vocab.json`, `vocab.txt`,
    `tokenizer.model` and its kin, tiktoken files, and `merges.txt`. One text with two ids, one id with two
    texts, and other merges are errors. Warnings are a token of `added_tokens_decoder` that `tokenizer.json`
    lacks, ordinary tokens that only one of two vocabularies has, and matching flags that differ.

    A vocabulary file without the tokens that were added later is fine, and so are a special token that
    `tokenizer.json` puts on a reserved place of the older vocabulary and a left-over entry of
    `added_tokens.json`.

    ## Why it matters

    Which file counts depends on the loader: fast tokenizers read `tokenizer.json`, slow ones the vocabulary
    files, llama.cpp `tokenizer.model`, engines with their own code any of them. The model sees other rows
    depending on who serves it.

    ## How to fix it

    Find out which file the model was trained with, load the tokenizer from it alone in a clean directory,
    and save it again (`save_pretrained`), so that every file comes from one source. Delete the files that
    nothing reads.
    """

    code = "TA401"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        vocabulary = contract.vocabulary
        first, *others = token_files(vocabulary)
        for other in others:
            for table in other.tables:
                yield from self._ids(vocabulary, first, table)
        yield from self._merges(vocabulary)
        yield from self._flags(vocabulary)
        if vocabulary.unread:
            raise FactMissing(vocabulary.unread[0])

    def _ids(self, vocabulary: Vocabulary, first: TokenFile, table: TokenTable) -> Iterator[Finding]:
        elsewhere = list(moved(first, table))
        lacking = unknown(first, table)
        replaced = list(renamed(first, lacking))
        added = {token.content for token in vocabulary.added}
        other_texts = [
            change
            for change in replaced
            if not (table.witness is Witness.COMPANION and change.content in added)
            and not _BYTE_PIECE.fullmatch(change.other)
        ]
        words = [f"{shown(m.content)} is {m.id} and {m.other}" for m in elsewhere]
        words += [f"{r.id} is {shown(r.content)} and {shown(r.other)}" for r in other_texts]
        if words:
            contents = [(m.content, m.content) for m in elsewhere] + [
                (r.content, r.other) for r in other_texts
            ]
            yield self.finding(
                f"{_name(table)} and {first.name} disagree about {counted(len(words), 'token')}: "
                f"{listed(words, 3)}",
                [claim for pair in contents[:2] for claim in _claims(first, table, *pair)],
                why="loaders that read one file or the other feed the model different rows",
                fix="load the tokenizer from the file that the model was trained with and save it again",
                subject=_name(table),
            )
        if first.name != "tokenizer.json":
            return  # what a vocabulary file lacks is what the other files are there for
        taken = {change.other for change in replaced}
        free = {content: id for content, id in lacking.items() if content not in taken}
        if free and table.witness is not Witness.ADDED_FILE:
            yield self._lacking(first.name, _name(table), free, table)
        if table.witness is Witness.COMPANION:
            base = vocabulary.base
            gone = {content: id for content, id in base.ids.items() if content not in table.ids}
            names = {change.content for change in replaced}
            ordinary = {c: id for c, id in gone.items() if c not in added and c not in names}
            if ordinary:
                yield self._lacking(_name(table), first.name, ordinary, base)

    def _lacking(self, poor: str, rich: str, tokens: dict[str, int], table: TokenTable) -> Finding:
        some = [named(id, content) for content, id in tokens.items()]
        return self.finding(
            f"{counted(len(tokens), 'token')} of {rich} not in {poor}: {listed(some, 3)}",
            [
                *(Claim(table.location(c), f"{shown(c)} has id {id}") for c, id in list(tokens.items())[:2]),
                Claim(Location(poor), "has no such token"),
            ],
            why="a loader that reads the other file alone splits the text of the token, or drops it",
            fix=f"save the tokenizer again, so that {poor} has every token",
            severity=Severity.WARNING,
            subject=f"{rich} and {poor}",
        )

    def _merges(self, vocabulary: Vocabulary) -> Iterator[Finding]:
        beside = vocabulary.merges_file
        if beside is None or isinstance(vocabulary.pipeline_or, Missing):
            return
        own = vocabulary.pipeline.merges
        if own == beside.pairs:
            return
        pairs = zip((*own, None), (*beside.pairs, None), strict=False)
        index, (left, right) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        at = vocabulary.pipeline.model.at.child("merges")
        yield self.finding(
            f"merges.txt and tokenizer.json list different merges ({len(beside.pairs)} and {len(own)}): "
            f"number {index} is {_merge(right)} and {_merge(left)}",
            [
                Claim(beside.at, f"number {index} is {_merge(right)}"),
                Claim(at.child(index), f"is {_merge(left)}"),
            ],
            why="the order of the merges decides how text splits: the two give the model other tokens",
            fix="load the tokenizer from the file that the model was trained with and save it again",
            subject="merges.txt",
        )

    def _flags(self, vocabulary: Vocabulary) -> Iterator[Finding]:
        """Flags of tokens that tokenizer.json and added_tokens_decoder both list."""
        lists = {table.witness: table.entries for table in vocabulary.tables}
        own = {token.content: token for token in lists.get(Witness.ADDED, ())}
        unlike = [
            (own[token.content], token)
            for token in lists.get(Witness.DECODER, ())
            if token.content in own and own[token.content].flags != token.flags
        ]
        if unlike:
            left, right = unlike[0]
            yield self.finding(
                f"matching flags of {counted(len(unlike), 'added token')} differ between tokenizer.json and "
                f"tokenizer_config.json: {listed([_flag_words(*pair) for pair in unlike], 3)}",
                [Claim(left.at, _flags_of(left)), Claim(right.at, _flags_of(right))],
                why="loaders strip spaces around the token, or match it inside words, in different ways",
                fix="save the tokenizer again from the file that the model was trained with",
                severity=Severity.WARNING,
                subject="flags",
            )


def _name(table: TokenTable) -> str:
    return "added_tokens_decoder" if table.witness is Witness.DECODER else table.at.file


def _claims(first: TokenFile, table: TokenTable, content: str, other: str) -> Iterator[Claim]:
    own = first.table(content)
    yield Claim(table.location(other), f"{shown(other)} has id {table.ids[other]}")
    yield Claim(own.location(content), f"{shown(content)} has id {own.ids[content]}")


def _merge(pair: tuple[str, str] | None) -> str:
    return "missing" if pair is None else shown(" ".join(pair))


def _flag_words(left: AddedToken, right: AddedToken) -> str:
    differing = [flag for flag, a, b in zip(FLAGS, left.flags, right.flags, strict=True) if a != b]
    return f"{shown(left.content)} ({', '.join(differing)})"


def _flags_of(token: AddedToken) -> str:
    on = [flag for flag, value in zip(FLAGS, token.flags, strict=True) if value]
    return f"{shown(token.content)} is {', '.join(on) or 'plain'}"
