"""Which tensors the resolver takes for tables of token rows, against what each class really stores.

The truth is the record itself: names on disk, row counts as arithmetic over config fields, worked out here
with Python's own eval and never by the code under test.
"""

from __future__ import annotations

import importlib.util
import json
import re
import struct
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tokaudit
from tokaudit.contract import Checkpoint, Document, Embeddings, Missing, RowCount, Table, Tensor, Tie
from tokaudit.families import id_defaults, records, resolve
from tokaudit.findings import Location

PROJECT = Path(__file__).resolve().parents[1]
FAMILIES = PROJECT.parent / "shared" / "knowledge" / "families.json"
DATA = Path(tokaudit.__file__).parent / "families" / "data" / "families.jsonl"
LINES = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
WITH_TABLES = [line for line in LINES if "input" in line or "output" in line or "others" in line]

PRIMES = [401, 409, 419, 421, 431, 433, 439, 443, 449, 457, 461, 463, 467, 479, 487, 491, 499, 503, 509, 521]
COUNTED = 4  # tables made for a name with a number in it
WIDTH = 7

Config = dict[str, Any]


# --- building models -----------------------------------------------------------------------------------


def document(config: Config) -> Document:
    return Document(Location("config.json"), config)


def tensor(name: str, *shape: int, dtype: str = "F32") -> Tensor:
    return Tensor(name, dtype, shape, "model.safetensors", 0, 0)


def checkpoint(*tensors: Tensor) -> Checkpoint:
    return Checkpoint("single", (), {each.name: each for each in tensors}, Missing("there is no index"))


def resolved(config: Config, *tensors: Tensor) -> Embeddings:
    return resolve(document(config), checkpoint(*tensors))


def name_of(table: Table | Missing) -> str | None:
    return table.name if isinstance(table, Table) else None


def put(config: Config, path: str, value: object) -> None:
    """Set a field of a nested configuration; a number in the path is a place in a list."""
    here: Any = config
    *steps, last = path.split(".")
    for step, following in zip(steps, (*steps, last)[1:], strict=True):
        if isinstance(here, list):
            while len(here) <= int(step):
                here.append({})
            here = here[int(step)]
        else:
            here = here.setdefault(step, [] if following.isdigit() else {})
    here[last] = value


def rows_of(entry: Config) -> str:
    rows = entry.get("rows", "")
    return str(rows[0] if isinstance(rows, list) else rows)


def fields_of(expression: str) -> list[str]:
    return [field for field in re.findall(r"[A-Za-z_][\w.]*", expression) if field not in ("or", "len")]


def value_of(expression: str, values: dict[str, int]) -> int:
    """The expression's value by Python: its first alternative with numbers in place of fields."""
    arithmetic = re.sub(r"len\(([\w.]+)\)", r"\1", expression.split(" or ")[0])
    return int(eval(re.sub(r"[A-Za-z_][\w.]*", lambda found: str(values[found[0]]), arithmetic)))


class Model:
    """A made-up checkpoint of one class: every table of its record, each size field a prime of its own."""

    def __init__(self, line: Config) -> None:
        self.line = line
        self.config: Config = {
            "architectures": [line["class"]],
            "model_type": line["type"],
            **line.get("if", {}),
        }
        kinds = ("input", "output", "bias", "others", "extra_inputs")
        entries = [(kind, entry) for kind in kinds for entry in line.get(kind, [])]
        used = dict.fromkeys(field for _, entry in entries for field in fields_of(rows_of(entry)))
        self.values = dict(zip(used, PRIMES, strict=False))
        counted = re.findall(r"len\(([\w.]+)\)", " ".join(rows_of(entry) for _, entry in entries))
        for field, value in self.values.items():
            if field in counted:
                self.values[field] = 3
            put(self.config, field, [1, 2, 3] if field in counted else value)
        self.stored: dict[str, Tensor] = {}
        self.truth: dict[str, tuple[str, int, int]] = {}  # name -> kind, rows, axis
        for kind, entry in entries:
            self.add(kind, entry)

    def add(self, kind: str, entry: Config) -> None:
        rows = value_of(rows_of(entry), self.values) if rows_of(entry) else 83
        if kind == "input" and "extra_inputs" in self.line and not rows_of(self.line["extra_inputs"][0]):
            rows -= 83  # the continuation, which has no size of its own, takes the rest
        axis, ndim = entry.get("axis", 0), entry.get("ndim", 2)
        name = entry["names"][0]
        for number in range(COUNTED if "{i}" in name else 1):
            shape = [WIDTH] * ndim
            shape[axis] = rows
            each = name.replace("{i}", str(number))
            self.stored[each] = tensor(each, *shape, dtype="I64" if each.endswith("tid2eid") else "F32")
            self.truth[each] = (kind, rows, axis)

    def first(self, kind: str) -> str | None:
        return next((name for name, (each, _, _) in self.truth.items() if each == kind), None)

    def embeddings(self, config: Config | None = None) -> Embeddings:
        return resolve(document(config or self.config), checkpoint(*self.stored.values()))

    def mistakes(self, found: Embeddings) -> list[str]:
        """What differs from the record: tables that are absent, too many, of other rows or another kind."""
        tables = {table.name: table for table in found.tables}
        wrong = [f"{name} was taken" for name in tables.keys() - self.truth.keys()]
        for name, (_, rows, axis) in self.truth.items():
            table = tables.get(name)
            if table is None:
                wrong.append(f"{name} was not found")
            elif (table.rows_or, table.axis) != (rows, axis):
                wrong.append(f"{name} has {rows} rows on axis {axis}, found {table.rows_or} on {table.axis}")
            elif isinstance(table.expected, RowCount) and table.expected.value != rows:
                wrong.append(f"{name} should have {rows} rows, expected {table.expected.value}")
        for kind, side in (("input", found.input_or), ("output", found.output_or)):
            if name_of(side) != self.first(kind):
                wrong.append(f"{kind} is {self.first(kind)}, found {name_of(side)}")
        return wrong


# --- every record --------------------------------------------------------------------------------------


def test_every_record_of_the_package_resolves_to_its_own_tables() -> None:
    wrong = {}
    for line in WITH_TABLES:
        model = Model(line)
        if mistakes := model.mistakes(model.embeddings()):
            wrong[line["class"], line["type"]] = mistakes
    assert wrong == {}
    assert len(WITH_TABLES) == 901


def test_every_record_tells_how_many_rows_its_input_table_has() -> None:
    without = [line["class"] for line in WITH_TABLES if "input" in line and not rows_of(line["input"][0])]
    assert without == ["MambaLMHeadModel", "StaticModel"]


def test_every_table_is_found_under_each_of_its_names() -> None:
    tried = 0
    for line in WITH_TABLES:
        for kind in ("input", "output"):
            for entry in line.get(kind, [])[:1]:
                for name in entry["names"]:
                    model = Model(line)
                    for other in (*entry["names"], *entry.get("aliases", ())):
                        for number in range(COUNTED):
                            model.stored.pop(other.replace("{i}", str(number)), None)
                    renamed = name.replace("{i}", "0")
                    model.stored[renamed] = tensor(renamed, 83, WIDTH)
                    found = model.embeddings()
                    assert name_of(found.input_or if kind == "input" else found.output_or) == renamed, line
                    tried += 1
    assert tried == 3029


def test_an_input_table_stored_only_under_a_shared_name_is_found_there() -> None:
    tried = 0
    for line in WITH_TABLES:
        for alias in line.get("input", [{}])[0].get("aliases", []):
            model = Model(line)
            for other in {*model.line["input"][0]["names"], *model.line["input"][0]["aliases"]} - {alias}:
                model.stored.pop(other.replace("{i}", "0"), None)
            model.stored[alias] = tensor(alias, 83, WIDTH)
            found = model.embeddings()
            assert name_of(found.input_or) == alias
            assert alias not in [table.name for table in found.secondary]
            tried += 1
    assert tried == 108


def test_classes_without_token_tables_are_no_language_models() -> None:
    without = [line for line in LINES if "like" not in line and "input" not in line]
    for line in without:
        found = resolved({"architectures": [line["class"]], "model_type": line["type"]}, tensor("w", 8, 8))
        assert not found.language_model, line
        assert found.known
        assert isinstance(found.input_or, Missing)
    assert len(without) == 251


# --- against the measurements --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """tools/make_families.py as a module."""
    spec = importlib.util.spec_from_file_location("make_families", PROJECT / "tools" / "make_families.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def families(generator: ModuleType) -> Config:
    """The measurements, with the tokenizer's table as CSM's input table."""
    if not FAMILIES.is_file():
        pytest.skip("../shared/knowledge/families.json is not here")
    loaded: Config = json.loads(FAMILIES.read_text(encoding="utf-8"))
    loaded["families"] = [generator.text_table_first(record) for record in loaded["families"]]
    return loaded


def test_the_data_of_the_package_is_what_the_generator_makes_of_the_measurements(
    families: Config, generator: ModuleType
) -> None:
    assert sorted(generator.lines(families), key=generator.rank) == LINES


class Measured:
    """A record of families.json as a checkpoint: the names on disk and the rows that were measured."""

    def __init__(self, record: Config) -> None:
        self.record = record
        self.config: Config = {"architectures": [record["architecture"]], "model_type": record["model_type"]}
        self.values = dict(zip(record.get("vocab_configs", {}), PRIMES, strict=False))
        for field, value in self.values.items():
            put(self.config, field, value)
        self.stored: dict[str, Tensor] = {}
        self.truth: dict[str, tuple[str, int, int]] = {}
        for kind, side in (("input", "input"), ("output", "head")):
            self.add_side(kind, record[side])
        for entry in record.get("other_vocab_tensors", ()):
            self.add("other", entry, entry.get("disk") or [entry["key"]])

    def add_side(self, kind: str, side: Config | None) -> None:
        for entry in (side or {}).get("list", [side]):
            if not entry or "rows" not in entry:
                continue
            names = entry.get("disk") or [entry["key"]]
            spare = next((self.values[field] for field in self.values if "additional" in field), 0)
            self.add(kind, entry, names[:1], spare=spare if len(names) > 1 else 0)
            if len(names) > 1:
                self.truth[names[1]] = ("continuation", spare, 0)
                self.stored[names[1]] = tensor(names[1], spare, WIDTH)
            if "bias" in entry:
                bias = entry["bias"]
                flat = entry | {"vocab_axis": 0, "ndim": 1}
                self.add("bias", flat, bias.get("disk") or [bias["key"]])

    def add(self, kind: str, entry: Config, names: list[str], spare: int = 0) -> None:
        rows = self.measured(entry["rows"]) - spare
        for name in names:
            shape = [WIDTH] * entry["ndim"]
            shape[entry["vocab_axis"]] = rows
            each = name.replace("{i}", "0")
            dtype = "I64" if entry.get("dtype") == "int64" else "F32"
            self.stored[each] = tensor(each, *shape, dtype=dtype)
            self.truth[each] = (kind, rows, entry["vocab_axis"])

    def measured(self, rows: Config) -> int:
        if "sum" not in rows:
            return int(rows["mult"] * self.values[rows["config"]] + rows["plus"])
        names = self.values | {"num_codebooks": 32}
        return sum(
            int(eval(str(term), {}, {key.replace(".", "_"): value for key, value in names.items()}))
            if "." not in str(term)
            else names[term]
            for term in rows["sum"]
        )

    def first(self, kind: str) -> str | None:
        return next((name for name, (each, _, _) in self.truth.items() if each == kind), None)

    def embeddings(self, config: Config | None = None) -> Embeddings:
        return resolve(document(config or self.config), checkpoint(*self.stored.values()))

    def tables_differ(self, found: Embeddings) -> bool:
        """Whether the tables, their rows, their axes or the rows they should have are not the record's."""
        tables = {
            table.name: (
                table.rows_or,
                table.axis,
                table.expected.value if isinstance(table.expected, RowCount) else 0,
            )
            for table in found.tables
        }
        return tables != {name: (rows, axis, rows) for name, (_, rows, axis) in self.truth.items()}


# Records whose tables the package describes otherwise, and why.
DIFFERENT = {
    "MarianMTModel": "measured with two sizes for one shared table, which no checkpoint has",
    "MarianModel": "measured with two sizes for one shared table, which no checkpoint has",
    "Molmo2ForConditionalGeneration": "the second half of the cut table has no size of its own",
    "Molmo2Model": "the second half of the cut table has no size of its own",
    "Molmo2TextModel": "the second half of the cut table has no size of its own",
}


def test_the_tables_of_869_of_874_measured_classes_are_found_with_their_rows(families: Config) -> None:
    measured = families["families"]
    different: Counter[str] = Counter()
    chosen: Counter[str] = Counter()
    for record in measured:
        model = Measured(record)
        found = model.embeddings()
        different[record["architecture"]] += model.tables_differ(found)
        for kind, table in (("input", found.input_or), ("output", found.output_or)):
            if model.first(kind):
                assert name_of(table) == model.first(kind), record["architecture"]
            elif isinstance(table, Table):  # the record names none: one of its other tables is taken
                assert model.truth[table.name][0] == "other"
                chosen[kind] += 1
    assert len(measured) == 874
    assert +different == Counter(DIFFERENT.keys())
    assert chosen == {"input": 34, "output": 27}


def test_the_guess_by_name_and_shape_is_right_for_847_of_874_classes_with_their_names_taken_away(
    families: Config,
) -> None:
    right: Counter[str] = Counter()
    for record in families["families"]:
        model = Measured(record)
        for other in record.get("other_embeddings", ()):
            if other["key"] not in model.stored:
                model.stored[other["key"]] = tensor(other["key"], min(other["rows"], 4099), WIDTH)
        known = model.embeddings()
        unnamed = model.config | {"architectures": ["NeverSeenModel"], "model_type": "never_seen"}
        found = model.embeddings(unnamed)
        assert not found.known
        parts = {
            "input": name_of(found.input_or) == name_of(known.input_or),
            "output": name_of(found.output_or) == name_of(known.output_or),
            "biases": {table.name for table in found.biases} == {table.name for table in known.biases},
        }
        right.update(part for part, same in parts.items() if same)
        right["all"] += all(parts.values())
    assert right == {"input": 855, "output": 867, "biases": 869, "all": 847}


# Readings that were measured otherwise or could not be measured, and how the package reads them.
TIES_APART = {
    ("DbrxForCausalLM", "transformers 4"): "fails without the flag; read as untied",
    (
        "FSMTForConditionalGeneration",
        "transformers 4",
    ): "its output table is the decoder's and never the input's",
    ("FSMTModel", "transformers 4"): "its output table is the decoder's and never the input's",
    ("Idefics3ForConditionalGeneration", "transformers 4"): "could not be measured; read from text_config",
    ("SmolVLMForConditionalGeneration", "transformers 4"): "could not be measured; read from text_config",
    ("ZambaForCausalLM", "transformers 5"): "could not be measured; read from the flag",
}


def test_tie_flags_are_read_as_measured_on_both_generations_of_transformers(families: Config) -> None:
    compared = 0
    apart = set()
    for record in families["families"]:
        for key, loader in (("tie_v5", "transformers 5"), ("tie_v4", "transformers 4")):
            reading = record.get(key)
            if reading is None or not record["input"] or not record["head"]:
                continue
            below = next((flag for flag in reading["flags"] if "." in flag), None)
            wanted: dict[bool | None, bool] = {None: reading["when_absent"]}
            if below:
                wanted |= {True: reading["sub_only_true"], False: reading["sub_only_false"]}
            for value, tied in wanted.items():
                model = Measured(record)
                for name, (kind, _, _) in model.truth.items():
                    if kind == "output":
                        del model.stored[name]
                if below:
                    put(model.config, below, value)
                tie = model.embeddings().tie
                found = {each.loader: each.tied for each in tie.readings}
                compared += 1
                if found[loader] is not tied:
                    apart.add((record["architecture"], loader))
    assert compared == 1005
    assert apart == set(TIES_APART)


def test_default_ids_are_those_that_were_measured(families: Config) -> None:
    special = re.compile(r"(bos|eos|pad|unk|sep|cls|mask|decoder_start|forced_bos|forced_eos)_token_id")
    compared = 0
    for record in families["families"]:
        config = {"architectures": [record["architecture"]], "model_type": record["model_type"]}
        measured = {
            path: value
            for path, value in (record.get("token_id_defaults") or {}).items()
            if special.fullmatch(path) and type(value) is not bool
        }
        found = {
            each.path: list(each.ids) if len(each.ids) > 1 else each.ids[0]
            for each in id_defaults(document(config))
        }
        assert found == measured, record["architecture"]
        compared += len(measured)
    assert compared == 1388


# --- names in the wild ---------------------------------------------------------------------------------


LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 320, "hidden_size": 8}


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "base_model.model.", "_fsdp_wrapped_module."])
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "NeverSeenForCausalLM"])
def test_a_training_wrappers_prefix_is_no_name_of_the_input_table(prefix: str, name: str) -> None:
    config = LLAMA | {"architectures": [name], "model_type": name.lower()}
    found = resolved(
        config,
        tensor(f"{prefix}model.embed_tokens.weight", 320, 8),
        tensor(f"{prefix}lm_head.weight", 320, 8),
    )
    assert isinstance(found.input_or, Missing)
    assert [each.name for each in found.candidates] == [
        f"{prefix}model.embed_tokens.weight",
        f"{prefix}lm_head.weight",
    ]


def test_a_table_one_letter_off_is_a_candidate_and_not_the_input_table() -> None:
    config = LLAMA | {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h"}
    found = resolved(config, tensor("backbone.embedding.weight", 320, 8), tensor("backbone.norm.weight", 8))
    assert found.input_or == Missing("no tensor is NemotronHForCausalLM's backbone.embeddings.weight")
    assert [each.name for each in found.candidates] == ["backbone.embedding.weight"]


def test_other_tables_are_found_under_the_prefix_of_the_input_table() -> None:
    config = {
        "architectures": ["Gemma3nForConditionalGeneration"],
        "model_type": "gemma3n",
        "text_config": {"vocab_size": 320, "vocab_size_per_layer_input": 256, "hidden_size": 8},
    }
    for prefix in ("model.language_model.", "language_model."):
        found = resolved(
            config,
            tensor(f"{prefix}embed_tokens.weight", 320, 8),
            tensor(f"{prefix}embed_tokens_per_layer.weight", 256, 24),
        )
        assert [table.name for table in found.secondary] == [f"{prefix}embed_tokens_per_layer.weight"]
        assert found.secondary[0].group == "per_layer"  # ids past it are looked up as 0


def test_a_classifier_shares_the_tables_of_its_base_and_generates_nothing() -> None:
    config = LLAMA | {"architectures": ["LlamaForSequenceClassification"]}
    found = resolved(config, tensor("model.embed_tokens.weight", 320, 8), tensor("score.weight", 2, 8))
    assert (found.known, found.source, found.generates) == (True, "record of LlamaModel", False)
    assert found.input.rows == 320
    assert isinstance(found.output_or, Missing)


def test_a_configuration_that_names_no_class_is_known_by_its_model_type() -> None:
    config = {"model_type": "llama", "vocab_size": 320}
    with_output = resolved(
        config, tensor("model.embed_tokens.weight", 320, 8), tensor("lm_head.weight", 320, 8)
    )
    assert (with_output.known, name_of(with_output.output_or)) == (True, "lm_head.weight")
    base = resolved(config, tensor("embed_tokens.weight", 320, 8))
    assert (base.known, base.source, base.generates) == (True, "record of LlamaModel", False)


def test_the_model_type_tells_classes_of_one_name_apart() -> None:
    exaone = LLAMA | {"model_type": "exaone"}
    assert resolved(exaone, tensor("transformer.wte.weight", 320, 8)).input.name == "transformer.wte.weight"
    assert isinstance(resolved(LLAMA, tensor("transformer.wte.weight", 320, 8)).input_or, Missing)


def test_configurations_of_older_versions_have_no_sections() -> None:
    config = {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "vocab_size": 320,
        "hidden_size": 8,
        "tie_word_embeddings": True,
    }
    found = resolved(config, tensor("model.embed_tokens.weight", 320, 8))
    assert found.input.expected == RowCount(320, "text_config.vocab_size", (found.vocab_sizes[0],))
    assert [fact.at.pointer for fact in found.vocab_sizes] == ["/vocab_size"]
    assert [reading.tied for reading in found.tie.readings] == [True, True]


# --- families with something of their own --------------------------------------------------------------


def test_a_vision_towers_vocab_size_describes_no_table_and_a_copy_at_the_top_does() -> None:
    config = {
        "architectures": ["PaliGemmaForConditionalGeneration"],
        "model_type": "paligemma",
        "vocab_size": 300,
        "text_config": {"vocab_size": 328},
        "vision_config": {"vocab_size": 999},
    }
    found = resolved(config, tensor("language_model.model.embed_tokens.weight", 328, 8))
    assert [(fact.at.pointer, fact.value) for fact in found.vocab_sizes] == [
        ("/text_config/vocab_size", 328),
        ("/vocab_size", 300),
    ]


def test_both_sides_of_a_pair_with_one_tokenizer_are_of_one_group() -> None:
    config = {
        "architectures": ["T5GemmaForConditionalGeneration"],
        "model_type": "t5gemma",
        "encoder": {"vocab_size": 330},
        "decoder": {"vocab_size": 320},
    }
    found = resolved(
        config,
        tensor("model.encoder.embed_tokens.weight", 330, 8),
        tensor("model.decoder.embed_tokens.weight", 320, 8),
    )
    assert [(table.group, table.expected.value) for table in found.secondary] == [("", 320)]  # type: ignore[union-attr]
    assert found.tie_partner.name == "model.decoder.embed_tokens.weight"
    assert [fact.value for fact in found.vocab_sizes] == [330, 320]


@pytest.mark.parametrize("share", [True, False])
def test_marian_has_one_vocabulary_or_two_as_its_flag_says(share: bool) -> None:
    config = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": 301,
        "decoder_vocab_size": 301 if share else 352,
        "share_encoder_decoder_embeddings": share,
    }
    if share:
        found = resolved(config, tensor("model.shared.weight", 301, 8), tensor("final_logits_bias", 1, 301))
        assert (found.input.name, found.biases[0].group) == ("model.shared.weight", "")
        return
    found = resolved(
        config,
        tensor("model.encoder.embed_tokens.weight", 301, 8),
        tensor("model.decoder.embed_tokens.weight", 352, 8),
        tensor("lm_head.weight", 352, 8),
        tensor("final_logits_bias", 1, 352),
    )
    groups = {table.name: table.group for table in found.tables}
    assert groups == {
        "model.encoder.embed_tokens.weight": "",
        "model.decoder.embed_tokens.weight": "decoder",
        "lm_head.weight": "decoder",
        "final_logits_bias": "decoder",
    }
    assert found.tie_partner.name == "model.decoder.embed_tokens.weight"
    assert not any(table.copy for table in found.tables)


@pytest.mark.parametrize("cut", [384, 193])
def test_molmo_2_may_cut_its_input_table_anywhere(cut: int) -> None:
    config = {
        "architectures": ["Molmo2ForConditionalGeneration"],
        "model_type": "molmo2",
        "text_config": {"vocab_size": 384, "additional_vocab_size": 2},
    }
    found = resolved(
        config,
        tensor("model.transformer.wte.embedding", cut, 8),
        tensor("model.transformer.wte.new_embedding", 386 - cut, 8),
    )
    assert isinstance(found.input.expected, RowCount)
    assert found.input.expected.value == found.input.rows == cut
    assert found.input_rows.value == found.expected_input.value == 386


def test_idefics_keeps_additional_ids_in_tables_of_their_own() -> None:
    config = {
        "architectures": ["IdeficsForVisionText2Text"],
        "model_type": "idefics",
        "vocab_size": 384,
        "additional_vocab_size": 2,
    }
    found = resolved(
        config,
        tensor("model.embed_tokens.weight", 384, 8),
        tensor("model.embed_tokens.additional_embedding.weight", 2, 8),
        tensor("lm_head.weight", 384, 8),
        tensor("lm_head.additional_fc.weight", 2, 8),
    )
    assert found.input_rows.value == found.expected_input.value == 386
    assert found.output.rows == 384
    assert [table.name for table in found.secondary] == ["lm_head.additional_fc.weight"]


def test_a_draft_may_borrow_the_input_table_of_its_target() -> None:
    config = LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 128}
    found = resolved(
        config,
        tensor("lm_head.weight", 128, 8),
        tensor("d2t", 128, dtype="I64"),
        tensor("t2d", 320, dtype="BOOL"),
    )
    assert found.input_or == Missing("LlamaForCausalLMEagle3 uses the input table of the target model")
    assert not found.language_model
    assert [table.rows for table in (found.output, *found.secondary)] == [128, 128, 320]
    new = LLAMA | {"architectures": ["Eagle3NeverSeenForCausalLM"]}
    assert resolved(new, tensor("embed_tokens.weight", 320, 8)).input.rows == 320


def test_copies_in_layers_past_the_last_are_secondary_tables() -> None:
    config = LLAMA | {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_hidden_layers": 2,
        "num_nextn_predict_layers": 1,
    }
    found = resolved(
        config,
        tensor("model.embed_tokens.weight", 320, 8),
        tensor("lm_head.weight", 320, 8),
        tensor("model.layers.2.embed_tokens.weight", 320, 8),
        tensor("model.layers.2.shared_head.head.weight", 320, 8),
    )
    assert [(table.name, table.group) for table in found.secondary] == [
        ("model.layers.2.embed_tokens.weight", ""),
        ("model.layers.2.shared_head.head.weight", ""),
    ]


@pytest.mark.parametrize(
    ("architecture", "sizes", "rows"),
    [
        ("OLMoForCausalLM", {"embedding_size": 384, "vocab_size": 360}, 384),
        ("OLMoForCausalLM", {"embedding_size": None, "vocab_size": 360}, 360),
        ("ChatGLMModel", {"padded_vocab_size": 448}, 448),
        ("CpmAntForCausalLM", {"vocab_size": 320, "prompt_types": 4, "prompt_length": 16}, 384),
        ("CpmAntForCausalLM", {"vocab_size": 320}, 1344),
        ("ParakeetForTDT", {"vocab_size": 320}, None),
    ],
)
def test_rows_follow_the_fields_that_the_class_reads(
    architecture: str, sizes: Config, rows: int | None
) -> None:
    line = next(line for line in LINES if line["class"] == architecture)
    found = resolve(
        document({"architectures": [architecture], "model_type": line["type"]} | sizes),
        Missing("--no-weights was given"),
    )
    assert (found.expected_input.value if rows else found.expected_input_or) == (
        rows or Missing("ParakeetForTDT has no input embeddings")
    )


def test_a_silent_section_has_the_size_of_the_model_type_that_it_names() -> None:
    config = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": {"model_type": "qwen2"},
    }
    found = resolve(document(config), Missing("--no-weights was given"))
    assert found.expected_input.value == 151936
    assert found.expected_input.by_default
    assert found.vocab_sizes == ()


def test_without_weights_the_configuration_still_tells_sizes_and_ties() -> None:
    found = resolve(document(LLAMA | {"tie_word_embeddings": True}), Missing("--no-weights was given"))
    assert found.input_or == found.output_or == Missing("--no-weights was given")
    assert (found.expected_input.value, found.tie.tied, found.inverted) == (320, True, False)


# --- widths --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "name", "width"),
    [
        (
            {"architectures": ["OPTForCausalLM"], "model_type": "opt", "word_embed_proj_dim": 4},
            "model.decoder.embed_tokens.weight",
            4,
        ),
        (
            {"architectures": ["AlbertModel"], "model_type": "albert", "embedding_size": 4},
            "embeddings.word_embeddings.weight",
            4,
        ),
        (
            {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 8},
            "transformer.wte.weight",
            8,
        ),
    ],
)
def test_a_table_of_another_width_than_its_own_field_says_is_malformed(
    config: Config, name: str, width: int
) -> None:
    config = config | {"vocab_size": 320, "hidden_size": 8}
    right, wrong = resolved(config, tensor(name, 320, width)), resolved(config, tensor(name, 320, 5))
    assert right.input.malformed == ""
    assert right.input.expected_hidden.value == width  # type: ignore[union-attr]
    assert wrong.input.malformed.startswith("it is 5 wide, and ")
    assert wrong.input.rows == 320


def test_reformers_output_table_joins_two_streams() -> None:
    config = {"architectures": ["ReformerModelWithLMHead"], "model_type": "reformer", "vocab_size": 320}
    found = resolved(
        config | {"hidden_size": 8},
        tensor("reformer.embeddings.word_embeddings.weight", 320, 8),
        tensor("lm_head.decoder.weight", 320, 16),
    )
    assert found.input.malformed == found.output.malformed == ""


def test_the_width_of_most_tables_is_known() -> None:
    entries = [entry for line in WITH_TABLES for kind in ("input", "output") for entry in line.get(kind, [])]
    assert sum("width" in entry for entry in entries) == 1215
    assert len(entries) == 1340


@pytest.mark.parametrize(
    ("shape", "words"),
    [((0,), "it is empty"), ((2560,), "it has 1 dimensions and should have 2"), ((0, 8), "it is empty")],
)
def test_an_empty_or_flat_table_is_malformed_and_has_no_rows(shape: tuple[int, ...], words: str) -> None:
    found = resolved(LLAMA, tensor("model.embed_tokens.weight", *shape))
    assert found.input.malformed == words
    assert found.input.rows_or == Missing("model.embed_tokens.weight is malformed")


# --- packed tables -------------------------------------------------------------------------------------


PACKED: dict[str, tuple[list[tuple[str, str, tuple[int, ...]]], int | None, str]] = {
    "plain": ([("weight", "BF16", (320, 64))], 320, ""),
    "compressed-tensors": (
        [
            ("weight_packed", "I32", (320, 8)),
            ("weight_scale", "BF16", (320, 1)),
            ("weight_shape", "I64", (2,)),
        ],
        320,
        "compressed-tensors",
    ),
    "GPTQ": (
        [
            ("qweight", "I32", (8, 320)),
            ("qzeros", "I32", (2, 40)),
            ("scales", "F16", (2, 320)),
            ("g_idx", "I32", (64,)),
        ],
        320,
        "GPTQ",
    ),
    "AWQ": (
        [("qweight", "I32", (64, 40)), ("qzeros", "I32", (2, 40)), ("scales", "F16", (2, 320))],
        320,
        "AWQ",
    ),
    "AWQ for vectors": ([("qweight", "I32", (320, 8)), ("scales", "F16", (320, 2))], 320, "AWQ"),
    "bitsandbytes 4": (
        [("weight", "U8", (10240, 1)), ("weight.absmax", "U8", (320,)), ("weight.quant_map", "F32", (16,))],
        None,
        "bitsandbytes, 4 bits",
    ),
    "bitsandbytes 8": ([("weight", "I8", (320, 64)), ("SCB", "F32", (320,))], 320, "bitsandbytes, 8 bits"),
    "fp8": ([("weight", "F8_E4M3", (320, 64)), ("weight_scale_inv", "F32", (3, 1))], 320, "8-bit floats"),
    "torchao": ([("_weight_qdata", "I8", (320, 64)), ("_weight_scale", "F32", (320, 1))], 320, "torchao"),
    "torchao tiles": ([("_weight_qdata", "I32", (40, 4, 32, 4))], None, "torchao"),
    "Gemma": (
        [("embedding_quantized", "U8", (320, 16)), ("embedding_scale", "F32", (320, 1))],
        320,
        "scaled integers",
    ),
    "MLX": (
        [("weight", "U32", (320, 8)), ("scales", "BF16", (320, 1)), ("biases", "BF16", (320, 1))],
        320,
        "MLX affine",
    ),
    "ModelOpt": (
        [("weight", "U8", (320, 32)), ("weight_scale", "F8_E4M3", (320, 4))],
        320,
        "scaled integers",
    ),
    "MXFP4": ([("weight_blocks", "U8", (320, 2, 16)), ("weight_scales", "U8", (320, 2))], None, "MXFP4"),
    "HQQ": ([("W_q", "U8", (160, 64)), ("scale", "F16", (320, 1))], None, "HQQ"),
    "unknown": ([("weight", "U8", (160, 64))], None, "U8 values of an unknown layout"),
}


# MXFP4 is left out of the guess: only experts have it.
@pytest.mark.parametrize(
    ("architecture", "layout"),
    [("LlamaForCausalLM", layout) for layout in PACKED]
    + [("NeverSeenForCausalLM", layout) for layout in PACKED if layout != "MXFP4"],
)
def test_the_rows_of_a_packed_table_come_from_what_its_format_keeps(layout: str, architecture: str) -> None:
    parts, rows, packed = PACKED[layout]
    stored = [tensor(f"lm_head.{name}", *shape, dtype=dtype) for name, dtype, shape in parts]
    config = LLAMA | {"hidden_size": 64, "architectures": [architecture], "model_type": architecture.lower()}
    found = resolved(config, tensor("model.embed_tokens.weight", 320, 64), *stored)
    assert found.output.packed == packed
    assert found.output.malformed == ""
    if rows is None:
        assert isinstance(found.output.rows_or, Missing)
        assert "does not tell the rows" in found.output.rows_or.reason
    else:
        assert found.output.rows == rows


def test_a_transposed_layout_is_told_by_the_stated_method() -> None:
    config = LLAMA | {"quantization_config": {"quant_method": "eetq"}}
    found = resolved(
        config, tensor("model.embed_tokens.weight", 320, 8), tensor("lm_head.weight", 8, 320, dtype="I8")
    )
    assert (found.output.rows, found.output.axis) == (320, 1)


def test_static_embeddings_may_share_rows_through_a_map() -> None:
    config = {"architectures": ["StaticModel"], "model_type": "model2vec"}
    plain = resolved(config, tensor("embeddings", 320, 8, dtype="F16"))
    mapped = resolved(config, tensor("embeddings", 64, 8), tensor("mapping", 320, dtype="I64"))
    assert (plain.input.rows, plain.input.packed) == (320, "")
    assert (mapped.input.rows, mapped.input.packed) == (320, "rows shared through mapping")


# --- ties ----------------------------------------------------------------------------------------------


T5 = {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "vocab_size": 384, "d_model": 8}


def test_only_the_output_table_of_a_tie_is_an_inverted_tie_and_still_tells_the_rows() -> None:
    found = resolved(LLAMA | {"tie_word_embeddings": True}, tensor("lm_head.weight", 320, 8))
    assert found.inverted
    assert found.input_or == Missing("only the output embeddings lm_head.weight are stored")
    assert found.input_rows.value == 320
    untied = resolved(LLAMA, tensor("lm_head.weight", 320, 8))
    assert not untied.inverted


@pytest.mark.parametrize(
    ("change", "stores_output", "tied"),
    [
        ({"tie_word_embeddings": False}, True, [False, False]),
        ({"tie_word_embeddings": False}, False, [True, False]),
        ({"tie_word_embeddings": True}, True, [True, True]),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, True, [False, True]),
        ({}, False, [True, True]),
    ],
)
def test_t5_ties_unless_it_stores_another_output_table(
    change: Config, stores_output: bool, tied: list[bool]
) -> None:
    stored = [tensor("shared.weight", 384, 8)]
    stored += [tensor("lm_head.weight", 384, 8)] if stores_output else []
    tie = resolved(T5 | change, *stored).tie
    assert tie.always
    assert [reading.tied for reading in tie.readings] == tied


def test_a_flag_that_a_section_leaves_out_counts_as_its_model_types_default() -> None:
    def readings(text: Config) -> dict[str, bool]:
        config = {
            "architectures": ["LlavaForConditionalGeneration"],
            "model_type": "llava",
            "text_config": text,
        }
        return {each.loader: each.tied for each in resolve(document(config), Missing("")).tie.readings}

    assert readings({"model_type": "llama"}) == {"transformers 5": False, "transformers 4": False}
    assert readings({"model_type": "gemma2"}) == {"transformers 5": True, "transformers 4": True}
    assert readings({"model_type": "gemma2", "tie_word_embeddings": False})["transformers 4"] is False


@pytest.mark.parametrize(
    ("config", "flag"),
    [
        (
            {"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "tie_embedding": False},
            "tie_embedding",
        ),
        (
            {"architectures": ["OLMoForCausalLM"], "model_type": "hf_olmo", "weight_tying": False},
            "weight_tying",
        ),
        (
            {
                "architectures": ["OpenELMForCausalLM"],
                "model_type": "openelm",
                "share_input_output_layers": False,
            },
            "share_input_output_layers",
        ),
        (
            {"architectures": ["NeverSeenForCausalLM"], "model_type": "x", "weight_tying": False},
            "weight_tying",
        ),
    ],
)
def test_families_read_tie_flags_of_their_own_names(config: Config, flag: str) -> None:
    tie = resolve(document(config | {"vocab_size": 320}), Missing("")).tie
    assert [*tie.flags] == [flag]
    assert not tie.tied


def test_flags_are_kept_by_their_path() -> None:
    config = {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "model_type": "mistral3",
        "tie_word_embeddings": False,
        "text_config": {"model_type": "mistral", "vocab_size": 320, "tie_word_embeddings": True},
        "vision_config": {"tie_word_embeddings": True},
    }
    tie = resolve(document(config), Missing("")).tie
    assert {path: fact.value for path, fact in tie.flags.items()} == {
        "tie_word_embeddings": False,
        "text_config.tie_word_embeddings": True,
    }
    assert {each.loader: (each.tied, each.why) for each in tie.readings} == {
        "transformers 5": (False, "tie_word_embeddings is false"),
        "transformers 4": (True, "text_config.tie_word_embeddings is true"),
    }


def test_an_unknown_class_without_a_flag_has_no_tie_that_can_be_told() -> None:
    found = resolved(LLAMA | {"architectures": ["NeverSeenForCausalLM"], "model_type": "x"})
    assert isinstance(found.tie_or, Missing)
    known = resolved(LLAMA | {"architectures": ["MiniCPMForCausalLM"], "model_type": "minicpm"})
    assert (known.known, isinstance(known.tie_or, Missing)) == (True, True)


# --- unknown architectures -----------------------------------------------------------------------------


NEW = {
    "architectures": ["NeverSeenForCausalLM"],
    "model_type": "never_seen",
    "vocab_size": 320,
    "hidden_size": 8,
}


def test_tables_of_other_things_are_not_taken_for_the_input_table() -> None:
    found = resolved(
        NEW,
        tensor("model.vision_tower.embed_tokens.weight", 320, 8),
        tensor("model.layers.0.mlp.experts.0.embeddings.weight", 320, 8),
        tensor("model.position_embeddings.weight", 320, 8),
        tensor("model.token_type_embeddings.weight", 320, 8),
        tensor("model.embed_tokens_per_layer.weight", 320, 8),
        tensor("model.ngram_embedding.shard_0.weight", 320, 8),
        tensor("talker.model.embed_tokens.weight", 320, 8),
        tensor("model.embed_tokens.weight", 320, 8),
        tensor("output.weight", 320, 8),
        tensor("model.layers.0.attention.output.weight", 320, 8),
    )
    assert (found.known, found.source) == (False, "name and shape")
    assert (found.input.name, found.output.name) == ("model.embed_tokens.weight", "output.weight")
    assert found.secondary == ()


def test_the_stated_size_decides_between_two_names() -> None:
    found = resolved(NEW, tensor("a.embed_tokens.weight", 64, 8), tensor("b.wte.weight", 320, 8))
    assert found.input.name == "b.wte.weight"


def test_a_table_of_other_rows_than_stated_keeps_the_stated_size_as_expected() -> None:
    found = resolved(NEW, tensor("model.embed_tokens.weight", 384, 8), tensor("lm_head.weight", 320, 8))
    assert (found.input.rows, found.input.expected.value) == (384, 320)  # type: ignore[union-attr]
    assert found.output.rows == 320


def test_weights_alone_are_resolved_by_their_names() -> None:
    found = resolve(
        Missing("there is no config.json"),
        checkpoint(
            tensor("bert.embeddings.word_embeddings.weight", 320, 8),
            tensor("bert.embeddings.position_embeddings.weight", 64, 8),
            tensor("cls.predictions.bias", 320),
        ),
    )
    assert found.input.name == "bert.embeddings.word_embeddings.weight"
    assert [table.name for table in found.biases] == ["cls.predictions.bias"]
    assert isinstance(found.tie_or, Missing)


def test_copies_of_an_unknown_encoder_decoder_are_secondary_tables() -> None:
    found = resolved(
        NEW,
        tensor("shared.weight", 320, 8),
        tensor("encoder.embed_tokens.weight", 320, 8),
        tensor("decoder.embed_tokens.weight", 310, 8),
    )
    assert found.input.name == "shared.weight"
    assert [table.rows for table in found.secondary] == [320, 310]


def test_a_picture_model_without_token_tables_is_no_language_model() -> None:
    config = {"architectures": ["NeverSeenForImageClassification"], "model_type": "never_seen"}
    found = resolved(config, tensor("stem.conv.weight", 8, 3, 4, 4), tensor("fc.weight", 10, 8))
    assert not found.language_model
    assert found.candidates == ()


def test_nothing_found_lists_the_tensors_that_have_the_stated_rows() -> None:
    found = resolved(NEW, tensor("model.lookup.kernel", 320, 8), tensor("model.norm.weight", 8))
    assert isinstance(found.input_or, Missing)
    assert [each.name for each in found.candidates] == ["model.lookup.kernel"]


# --- composites ----------------------------------------------------------------------------------------


def test_a_composite_takes_the_layout_of_the_text_model_that_it_names() -> None:
    config = {
        "architectures": ["Blip2ForConditionalGeneration"],
        "model_type": "blip-2",
        "text_config": {
            "architectures": ["T5ForConditionalGeneration"],
            "model_type": "t5",
            "vocab_size": 320,
        },
    }
    found = resolved(
        config,
        tensor("language_model.shared.weight", 320, 8),
        tensor("language_model.encoder.embed_tokens.weight", 320, 8),
        tensor("language_model.lm_head.weight", 320, 8),
    )
    assert (found.known, found.input.name) == (True, "language_model.shared.weight")
    assert found.output.name == "language_model.lm_head.weight"
    assert found.input.expected == RowCount(320, "text_config.vocab_size", (found.vocab_sizes[0],))
    assert [(table.name, table.copy) for table in found.secondary] == [
        ("language_model.encoder.embed_tokens.weight", True)
    ]


def test_an_unknown_composite_around_a_known_text_model_uses_its_record() -> None:
    config = {
        "architectures": ["NeverSeenForConditionalGeneration"],
        "model_type": "never_seen",
        "text_config": {
            "model_type": "qwen2",
            "vocab_size": 320,
            "hidden_size": 8,
            "tie_word_embeddings": True,
        },
    }
    found = resolved(
        config,
        tensor("visual.embed_tokens.weight", 320, 8),
        tensor("language_model.model.embed_tokens.weight", 320, 8),
    )
    assert (found.known, found.source) == (False, "record of Qwen2ForCausalLM in text_config")
    assert found.input.name == "language_model.model.embed_tokens.weight"
    assert found.tie.tied


def test_a_pair_of_two_models_has_a_vocabulary_each() -> None:
    config = {
        "architectures": ["EncoderDecoderModel"],
        "model_type": "encoder-decoder",
        "encoder": {"model_type": "roberta", "vocab_size": 352},
        "decoder": {"model_type": "gpt2", "vocab_size": 384, "n_embd": 8},
    }
    found = resolved(
        config,
        tensor("encoder.embeddings.word_embeddings.weight", 352, 8),
        tensor("decoder.transformer.wte.weight", 384, 8),
    )
    groups = {table.name: table.group for table in found.tables}
    assert groups["encoder.embeddings.word_embeddings.weight"] == ""
    assert groups.get("decoder.transformer.wte.weight") == "decoder"
    assert found.tie_partner.name == "decoder.transformer.wte.weight"


def test_a_picture_reader_has_the_tables_of_its_decoder() -> None:
    config = {
        "architectures": ["VisionEncoderDecoderModel"],
        "model_type": "vision-encoder-decoder",
        "decoder": {"model_type": "gpt2", "vocab_size": 320, "n_embd": 8},
        "encoder": {"model_type": "vit"},
    }
    found = resolved(config, tensor("decoder.transformer.wte.weight", 320, 8))
    assert (found.known, found.input.name) == (True, "decoder.transformer.wte.weight")


# --- default ids ---------------------------------------------------------------------------------------


def test_a_pad_default_is_told_with_its_use_as_padding_index() -> None:
    config = {
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        "vocab_size": 320,
        "bos_token_id": 1,
    }
    found = {each.path: (each.ids, each.padding_index) for each in id_defaults(document(config))}
    assert found == {"eos_token_id": ((32000,), False), "pad_token_id": ((32000,), True)}


def test_a_field_that_is_null_is_none_and_not_silent() -> None:
    config = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "pad_token_id": None}
    assert "pad_token_id" not in {each.path for each in id_defaults(document(config))}


def test_a_section_takes_the_defaults_of_its_own_model_type() -> None:
    config = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": {"model_type": "phi3", "eos_token_id": 7},
    }
    found = {each.path: each.ids[0] for each in id_defaults(document(config))}
    assert found == {"text_config.bos_token_id": 1, "text_config.pad_token_id": 32000}


@pytest.mark.parametrize("model_type", ["never_seen", "mistral"])
def test_no_default_is_told_for_an_unknown_class_or_another_model_type(model_type: str) -> None:
    name = "NeverSeenForCausalLM" if model_type == "never_seen" else "LlamaForCausalLM"
    assert id_defaults(document({"architectures": [name], "model_type": model_type})) == ()


# --- speed, and what is read ---------------------------------------------------------------------------


def test_resolving_takes_less_than_10_ms_among_50000_tensors() -> None:
    layers = [
        tensor(f"model.layers.{layer}.mlp.experts.{expert}.{part}.weight", 8, 8)
        for layer in range(65)
        for expert in range(256)
        for part in ("gate_proj", "up_proj", "down_proj")
    ]
    stored = checkpoint(
        tensor("model.embed_tokens.weight", 320, 8), tensor("lm_head.weight", 320, 8), *layers
    )
    config = document(LLAMA | {"num_hidden_layers": 65})
    resolve(config, stored)
    records.by_class.cache_clear()
    records._data.cache_clear()
    durations = []
    for _ in range(5):
        begin = time.perf_counter()
        resolve(config, stored)
        id_defaults(config)
        durations.append(time.perf_counter() - begin)
    assert min(durations) < 0.010


def test_only_the_lines_of_the_class_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    really = json.loads

    def loads(line: bytes) -> Any:
        decoded.append(line)
        return really(line)

    monkeypatch.setattr("json.loads", loads)
    records.by_class.cache_clear()
    resolved(LLAMA | {"architectures": ["MistralForCausalLM"], "model_type": "mistral"})
    # the class itself, and those of its model type that decide how it is tied
    assert {really(line)["type"] for line in decoded} == {"mistral"}
    assert 0 < len(decoded) < 5


@pytest.mark.parametrize("name", ['"', "\\", "a\nb", "Llama\u2028", '","type":"llama","', "x" * 100_000])
def test_a_class_name_from_a_stranger_finds_nothing_and_breaks_nothing(name: str) -> None:
    found = resolved({"architectures": [name], "model_type": name})
    assert not found.known


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"architectures": "LlamaForCausalLM"},
        {"architectures": [None], "model_type": 3},
        {
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": "many",
            "hidden_size": 1.5,
            "num_hidden_layers": -1,
        },
        {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": [1]},
        {"architectures": ["LlavaForConditionalGeneration"], "text_config": {"vocab_size": True}},
        {"architectures": ["ParakeetForTDT"], "durations": 5, "vocab_size": 320},
        {"text_config": {"text_config": 1}, "quantization_config": []},
    ],
)
def test_a_configuration_of_wrong_types_breaks_nothing(config: Config) -> None:
    found = resolved(config, tensor("model.embed_tokens.weight"), tensor("lm_head.weight", 320, 8))
    assert isinstance(found, Embeddings)
    assert isinstance(id_defaults(document(config)), tuple)


# --- real checkpoints ----------------------------------------------------------------------------------


def header(path: Path) -> Checkpoint:
    with path.open("rb") as file:
        entries = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return checkpoint(
        *(
            tensor(name, *entry["shape"], dtype=entry["dtype"])
            for name, entry in entries.items()
            if name != "__metadata__"
        )
    )


@pytest.mark.real
@pytest.mark.parametrize(
    ("folder", "rows", "tied"),
    [
        ("stories260K-hf", 512, True),
        ("model2vec-float16", 29528, None),
        ("model2vec-vocab-quantized", 29524, None),
    ],
)
def test_real_checkpoints_resolve(real: Path, folder: str, rows: int, tied: bool | None) -> None:
    config = json.loads((real / folder / "config.json").read_text(encoding="utf-8"))
    found = resolve(document(config), header(real / folder / "model.safetensors"))
    assert found.known
    assert found.input_rows.value == rows
    assert (found.tie.tied if isinstance(found.tie_or, Tie) else None) is tied
