"""Write the package's family data from a families.json.

    python tools/make_families.py FAMILIES.json

families.json (one architecture a record, made by instantiating every class of transformers) holds far more
than the audit asks. This keeps, for each class, the names of its tables on disk, their rows as an expression
over config fields, widths (tools/widths.tsv), the tie rules and the default ids, and writes
tokaudit/families/data/families.jsonl: one class a line, sorted, read in tokaudit/families/records.py, whose
docstring is the description of a line. What families.json cannot tell stands here as data: formulas whose
factors are config fields, and the tables of composites without a single input table. Families whose code
lies beside their weights are written by hand in tools/extra_families.jsonl, in the same form; their names
are those of the extra_families of families.json and of public checkpoints.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent
OUTPUT = TOOLS.parent / "tokaudit" / "families" / "data" / "families.jsonl"

Line = dict[str, Any]

NEVER: Line = {"rule": "never"}

GENERATING = {
    "MODEL_FOR_CAUSAL_LM",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT",
    "MODEL_FOR_MULTIMODAL_LM",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ",
    "MODEL_FOR_TEXT_TO_WAVEFORM",
    "MODEL_FOR_CAUSAL_IMAGE_MODELING",
}

# Row counts that families.json gives as numbers measured on the default configuration, as the classes
# compute them: (model_type, measured "mult*field+plus") -> expression.
FORMULAS = {
    ("cpmant", "1*vocab_size+1024"): "vocab_size + prompt_types * prompt_length",
    ("csm", "32*vocab_size+0"): "num_codebooks * vocab_size",
    ("csm", "32*depth_decoder_config.vocab_size+0"): (
        "depth_decoder_config.num_codebooks * depth_decoder_config.vocab_size"
    ),
    ("dia", "9*decoder_config.vocab_size+0"): "decoder_config.num_channels * decoder_config.vocab_size",
    ("blt", "6*encoder_hash_byte_group_vocab+0"): (
        "len(encoder_hash_byte_group_size) * encoder_hash_byte_group_nb_functions"
        " * encoder_hash_byte_group_vocab"
    ),
    ("ovis2", "1*vision_config.vocab_size+-5"): (
        "vision_config.vocab_size - vision_config.num_visual_indicator_tokens"
    ),
    ("parakeet_tdt", "1*vocab_size+5"): "vocab_size + len(durations)",
}

# Defaults of the fields in FORMULAS that are no vocabulary sizes.
FACTOR_DEFAULTS: dict[str, dict[str, int]] = {
    "cpmant": {"prompt_types": 32, "prompt_length": 32},
    "csm": {"num_codebooks": 32, "depth_decoder_config.num_codebooks": 32},
    "dia": {"decoder_config.num_channels": 9},
    "blt": {"len(encoder_hash_byte_group_size)": 6, "encoder_hash_byte_group_nb_functions": 1},
    "ovis2": {"vision_config.num_visual_indicator_tokens": 5},
    "parakeet_tdt": {"len(durations)": 5},
    "kyutai_speech_to_text": {"num_codebooks": 32},
}

# Output tables with a second row count that loaders accept as well.
ALSO_ROWS = {
    "cpmant": "vocab_size + prompt_types * prompt_length",  # transformers 4 ties it to the input table
    "inkling2": "vocab_size",  # padded on disk
    "inkling2_text": "vocab_size",
    "inkling2_loop": "vocab_size",
    "inkling2_loop_text": "vocab_size",
}

# The token table and the output table of classes for which families.json names no single one, because
# `get_input_embeddings` is not defined for the composite: input key, output key (both in-memory names).
CHOSEN: dict[str, tuple[str, str]] = {
    "Aimv2Model": ("text_model.embeddings.token_embedding.weight", ""),
    "AlignModel": ("text_model.embeddings.word_embeddings.weight", ""),
    "AltCLIPModel": ("text_model.roberta.embeddings.word_embeddings.weight", ""),
    "BlipForConditionalGeneration": ("", "text_decoder.cls.predictions.decoder.weight"),
    "ChineseCLIPModel": ("text_model.embeddings.word_embeddings.weight", ""),
    "ClapModel": ("text_model.embeddings.word_embeddings.weight", ""),
    "CLIPModel": ("text_model.embeddings.token_embedding.weight", ""),
    "CLIPSegModel": ("text_model.embeddings.token_embedding.weight", ""),
    "ClvpModelForConditionalGeneration": ("text_encoder_model.token_embedding.weight", ""),
    "DiaForConditionalGeneration": ("model.encoder.embedding.weight", "logits_dense.weight"),
    "DiaModel": ("encoder.embedding.weight", ""),
    "FastSpeech2ConformerModel": ("encoder.embed.weight", ""),
    "FastSpeech2ConformerWithHifiGan": ("model.encoder.embed.weight", ""),
    "FlavaForPreTraining": ("flava.text_model.embeddings.word_embeddings.weight", "mlm_head.decoder.weight"),
    "FlavaModel": ("text_model.embeddings.word_embeddings.weight", ""),
    "GroundingDinoModel": ("text_backbone.embeddings.word_embeddings.weight", ""),
    "GroupViTModel": ("text_model.embeddings.token_embedding.weight", ""),
    "LxmertForPreTraining": ("", "cls.predictions.decoder.weight"),
    "MetaClip2Model": ("text_model.embeddings.token_embedding.weight", ""),
    "MMGroundingDinoModel": ("text_backbone.embeddings.word_embeddings.weight", ""),
    "NemotronH_Omni_Reasoning_V3": ("", "language_model.lm_head.weight"),
    "Owlv2Model": ("text_model.embeddings.token_embedding.weight", ""),
    "OwlViTModel": ("text_model.embeddings.token_embedding.weight", ""),
    "PeAudioModel": ("text_model.embeddings.tok_embeddings.weight", ""),
    "PeAudioVideoModel": ("text_model.embeddings.tok_embeddings.weight", ""),
    "PeVideoModel": ("text_model.embeddings.tok_embeddings.weight", ""),
    "PPFormulaNetForConditionalGeneration": ("model.decoder.embed_tokens.weight", ""),
    "Qwen2_5OmniForConditionalGeneration": (
        "thinker.model.language_model.embed_tokens.weight",
        "thinker.lm_head.weight",
    ),
    "Qwen3OmniMoeForConditionalGeneration": (
        "thinker.model.language_model.embed_tokens.weight",
        "thinker.lm_head.weight",
    ),
    "Sam3Model": ("text_encoder.text_model.embeddings.token_embedding.weight", ""),
    "Sam3LiteTextModel": ("text_encoder.embeddings.token_embedding.weight", ""),
    "Sam3LiteTextTextModel": ("embeddings.token_embedding.weight", ""),
    "Sam3VideoModel": ("detector_model.text_encoder.text_model.embeddings.token_embedding.weight", ""),
    "VisionTextDualEncoderModel": ("text_model.embeddings.word_embeddings.weight", ""),
    "VitsModel": ("text_encoder.embed_tokens.weight", ""),
    "XCLIPModel": ("text_model.embeddings.token_embedding.weight", ""),
}

# Output layers of classes without an input table: a CTC or transducer head.
HEADS = ("lm_head.weight", "ctc_head.weight", "joint.head.weight")

# Widths of classes that tools/measure_widths.py cannot build: a field of the section that states the rows.
WIDTHS_BY_HAND = {
    "aya_vision": "hidden_size",
    "chameleon": "hidden_size",
    "cohere_compass": "hidden_size",
    "cohere_compass_text": "hidden_size",
    "dbrx": "d_model",
    "deepseek_ocr2": "hidden_size",
    "dots1": "hidden_size",
    "emu3": "hidden_size",
    "ernie4_5_vl_moe": "hidden_size",
    "esm": "hidden_size",
    "fast_vlm": "hidden_size",
    "gemma3n": "hidden_size",
    "granite4_vision": "hidden_size",
    "hunyuan_v1_dense": "hidden_size",
    "hunyuan_v1_moe": "hidden_size",
    "layoutlmv2": "hidden_size",
    "lfm2_moe": "hidden_size",
    "ministral": "hidden_size",
    "mllama": "hidden_size",
    "mllama_text_model": "hidden_size",
    "nemotron": "hidden_size",
    "perception_lm": "hidden_size",
    "qwen4_exp": "hidden_size",
    "qwen4_exp_text": "hidden_size",
    "reformer": "hidden_size",
    "speech-encoder-decoder": "d_model",
    "squeezebert": "embedding_size",
    "vision-encoder-decoder": "d_model",
}

# Further flags that a class reads as its tie flag.
OTHER_FLAGS = {kind: ["tie_embedding", "tie_word_embeddings"] for kind in ("lfm2", "lfm2_moe")}

# Ids of special tokens. Placeholders of pictures and sounds are swapped before the lookup and need no row.
ID_FIELD = re.compile(r"(^|\.)(bos|eos|pad|unk|sep|cls|mask|decoder_start|forced_bos|forced_eos)_token_id$")


def measured_rows(rows: Line, model_type: str) -> str:
    """The row expression of a families.json record."""
    if "sum" in rows:
        return " + ".join(str(term).replace("*", " * ") for term in rows["sum"])
    key = f"{rows['mult']}*{rows['config']}+{rows['plus']}"
    if (model_type, key) in FORMULAS:
        return FORMULAS[model_type, key]
    if rows["mult"] != 1:
        raise ValueError(f"{model_type}: no formula for {key}")
    sign = "+" if rows["plus"] > 0 else "-"
    return f"{rows['config']} {sign} {abs(rows['plus'])}" if rows["plus"] else str(rows["config"])


def fields(expression: str) -> list[str]:
    return re.findall(r"[A-Za-z_][\w.]*", expression)


def disk_names(entry: Line, *more: str | None) -> list[str]:
    """Names on disk in order of preference: as saved, as transformers 4 saves them, as loaders also map."""
    saved = entry.get("disk") or [entry["key"]]
    return list(dict.fromkeys(name for name in (*saved, *more, *entry.get("disk_accepted", ())) if name))


class Maker:
    """Turns one record of families.json into one line."""

    def __init__(self, record: Line, widths: dict[tuple[str, str], list[str]]) -> None:
        self.record = record
        self.type = record["model_type"]
        measured = widths.get((record["architecture"], self.type), ["", "", "", ""])
        self.input_width, self.output_width, self.pads, aliases = measured
        self.aliases = dict(pair.split("=") for pair in aliases.split(",") if pair)
        chosen_input, chosen_output = CHOSEN.get(record["architecture"], ("", ""))
        others = {entry["key"]: entry for entry in record.get("other_vocab_tensors", ())}
        self.given = self.listed("input") or [others.pop(key) for key in (chosen_input,) if key]
        output_key = chosen_output or next((key for key in HEADS if key in others and not self.given), "")
        self.out = self.listed("head") or [others.pop(key) for key in (output_key,) if key]
        self.others = list(others.values())

    def listed(self, side: str) -> list[Line]:
        """The table of that side; of a list (one per codebook) its first, with `{i}` for the number."""
        entry = self.record[side]
        if not entry or "list" not in entry:
            return [entry] if entry else []
        first = entry["list"][0]
        if "rows" not in first:
            return []
        number = {
            key: [name.replace(".0.", ".{i}.") for name in first[key]] for key in ("disk", "disk_accepted")
        }
        return [first | number | {"key": first["key"].replace(".0.", ".{i}.")}]

    def rows(self, entry: Line) -> str:
        expression = measured_rows(entry["rows"], self.type)
        for alias, field in self.aliases.items():
            expression = re.sub(rf"^{field}$", f"{field} or {alias}", expression)
        return expression

    def width(self, entry: Line, measured: str) -> str:
        if self.type.startswith("deberta"):  # read where a file states it; no default has it
            return "embedding_size or hidden_size"
        by_hand = WIDTHS_BY_HAND.get(self.type, "")
        section = fields(self.rows(entry))[0].rpartition(".")[0]
        return measured or (f"{section}.{by_hand}" if section and by_hand else by_hand)

    def group_of(self, rows: str) -> str:
        """Which vocabulary the table is indexed by: "" where its size field is the input table's."""
        if self.type.startswith("t5gemma"):  # two fields, one tokenizer
            return "" if "vision" not in rows else "vision_config"
        first = fields(rows)[0] if not rows.startswith("len(") else fields(rows)[1]
        if self.given and first in fields(self.rows(self.given[0])):
            return ""
        section, _, name = first.rpartition(".")
        if name.endswith("vocab_size_per_layer_input"):
            return "per_layer" if "mapped to 0" in self.record.get("note", "") else ""
        return section or re.sub(r"_?(vocab_size|vocab)$", "", name) or "output"

    def output_group(self) -> str:
        """Like `group_of`, but a size field of its own does not make the output another vocabulary."""
        group = self.group_of(self.rows(self.out[0]))
        return group if group.startswith(("decoder", "tgt")) else ""

    def tied_with(self, keys: set[str]) -> set[str]:
        """Every in-memory name that shares storage with one of these when the model is tied."""
        found = set(keys)
        for group in self.record.get("tied_groups", ()):
            members = {group["kept"], *group["dropped"]}
            if members & keys:
                found |= members
        return found

    def aliases_of_input(self) -> set[str]:
        heads = {entry["key"] for entry in self.out}
        with_input = self.tied_with({entry["key"] for entry in self.given})
        if self.type == "fsmt" or not self.given:
            return set()
        return {key for key in with_input - heads if not re.search(r"lm_head|projection|predictions", key)}

    def tables(self) -> Line:
        heads = {entry["key"] for entry in self.out}
        tied_to_output = self.tied_with(heads) - heads
        with_input = self.aliases_of_input()
        v4 = self.record.get("v4") or {}
        line: Line = {"input": [], "output": [], "bias": [], "others": []}
        for entry in self.given:
            line["input"].append(self.table(entry, self.input_width, "", (v4.get("input_disk"),)))
        for entry in self.out:
            group = self.output_group()
            made = self.table(entry, self.output_width, group, (v4.get("head_disk"),))
            if self.type in ALSO_ROWS:
                made["rows"] = [made["rows"], ALSO_ROWS[self.type]]
            if self.type == "reformer":
                made["width"] = "2 * hidden_size"
            line["output"].append(made)
            if "bias" in entry:
                bias = entry["bias"] | {"rows": entry["rows"], "vocab_axis": 0, "ndim": 1}
                line["bias"].append(self.table(bias, "", group))
        for entry in self.others:
            self.sort_other(entry, line, with_input, tied_to_output)
        for side in ("input", "head"):
            for other in (self.record[side] or {}).get("other_params", ()):
                if other["vocab_sized"] and not other["key"].endswith("weight_integer"):
                    rows = self.record[side]["rows"]
                    scale = {"key": other["key"], "rows": rows, "vocab_axis": 0, "ndim": 1}
                    line["others"].append(self.table(scale, "", self.group_of(self.rows(scale))))
        return line

    def sort_other(self, entry: Line, line: Line, with_input: set[str], tied_to_output: set[str]) -> None:
        """Put a further vocabulary tensor where it belongs: bias, copy of the input table, or secondary."""
        key, rows = entry["key"], self.rows(entry)
        group = self.group_of(rows)
        out_rows = [self.rows(out) for out in self.out[:1]]
        bias = entry["ndim"] == 1 or key.endswith("final_logits_bias")
        if bias and (rows in out_rows or (not self.out and not group)):
            line["bias"].append(self.table(entry, "", self.output_group() if self.out else ""))
            return
        made = self.table(entry, "", group)
        if key in with_input:
            made["copy"] = True
            line["input"][0].setdefault("aliases", []).extend(made["names"])
        elif key in tied_to_output and line["output"] and self.type != "fsmt":
            line["output"][0]["tied_to"] = made["names"]
        line["others"].append(made)

    def table(self, entry: Line, width: str, group: str, more: tuple[str | None, ...] = ()) -> Line:
        made: Line = {"names": disk_names(entry, *more), "rows": self.rows(entry)}
        if entry in (*self.given, *self.out):
            width = self.width(entry, width)
        if width:
            made["width"] = width
        if entry["vocab_axis"]:
            made["axis"] = entry["vocab_axis"]
        if entry["ndim"] != 2:
            made["ndim"] = entry["ndim"]
        if group:
            made["group"] = group
        return made

    def tie(self, generation: str) -> Line | None:
        """How one generation of transformers reads the tie flags; None where it does not know the class."""
        reading = self.record.get(f"tie_v{generation}")
        if reading is None or not self.out or not self.given:
            return None
        rule, absent = reading["rule"], reading["when_absent"] is True
        section = next((flag.rpartition(".")[0] for flag in reading["flags"] if "." in flag), "")
        true, false = reading.get("sub_only_true"), reading.get("sub_only_false")
        if self.type == "fsmt":  # output_projection repeats the decoder's table; the input table is another
            return {"rule": "flag", "absent": False}
        if rule == "other" and self.type in ("csm", "kyutai_speech_to_text"):  # the flag is for codebooks
            return NEVER
        if rule in ("other", "flag") or reading["when_absent"] == "error":
            default = self.record.get("tie_flags_default", {}).get("tie_word_embeddings", False)
            made = {"rule": "sub" if section else "flag", "absent": default if rule == "other" else absent}
        elif rule == "or" or (rule == "top" and true != false):
            made = {"rule": "or", "top_absent": false, "absent": absent}
        elif rule in ("always", "never"):
            made = {"rule": rule}
        else:
            made = {"rule": rule, "absent": absent}
        if section:
            made["section"] = section
        if self.type in OTHER_FLAGS:
            made["names"] = OTHER_FLAGS[self.type]
        return made

    def line(self) -> Line:
        record = self.record
        tables = self.tables()
        made: Line = {"class": record["architecture"], "type": self.type}
        made["loaders"] = {
            name: tie
            for name, generation in (("transformers 5", "5"), ("transformers 4", "4"))
            if (tie := self.tie(generation))
        }
        heads = {entry["key"] for entry in self.out}
        ties = record.get("tied_weights_keys") or self.tied_with(heads) != heads
        if not made["loaders"] and self.given and self.out and not ties:
            made["loaders"] = {"transformers 5": NEVER}
        if self.out and GENERATING & set(record["mappings"]) and self.given:
            made["generates"] = True
        self.split_input(tables)
        made |= {key: value for key, value in tables.items() if value}
        made |= {"defaults": self.defaults(made), "ids": self.ids(), "pads": bool(self.pads)}
        return {key: value for key, value in made.items() if value or key in ("type", "loaders")}

    def split_input(self, tables: Line) -> None:
        """Input tables that a second one continues: Molmo 2 cuts one in two, Idefics has ids of its own."""
        if self.type.startswith("molmo2"):
            names = tables["input"][0]["names"]
            second = [name for name in names if name.endswith("wte.new_embedding")]
            tables["extra_inputs"] = [{"names": second}]
            tables["input"][0]["names"] = [name for name in names if name not in second]
        if self.type == "idefics":
            prefix = "model." if self.out else ""
            added = {"rows": "additional_vocab_size", "group": "additional"}
            name = f"{prefix}embed_tokens.additional_embedding.weight"
            tables["extra_inputs"] = [{"names": [name], "width": "hidden_size"} | added]
            if self.out:
                tables["others"].append({"names": ["lm_head.additional_fc.weight"]} | added)

    def ids(self) -> Line:
        """The ids of special tokens that the configuration class fills in."""
        filled_in = self.record.get("token_id_defaults") or {}
        return {
            key: value for key, value in filled_in.items() if ID_FIELD.search(key) and type(value) is not bool
        }

    def defaults(self, made: Line) -> dict[str, int]:
        """What the configuration class fills in for the fields of the row expressions."""
        used = " ".join(
            expression
            for kind in ("input", "output", "bias", "others", "extra_inputs")
            for entry in made.get(kind, ())
            for expression in (
                [entry["rows"]] if isinstance(entry.get("rows"), str) else entry.get("rows", [])
            )
        )
        known = self.record.get("vocab_configs", {}) | FACTOR_DEFAULTS.get(self.type, {})
        return {
            key: value
            for key, value in known.items()
            if value and (key in fields(used) or key in used.split())
        }


def text_table_first(record: Line) -> Line:
    """CSM's `get_input_embeddings` is the table of its audio codes; the tokenizer's ids index another one."""
    if record["model_type"] != "csm":
        return record
    others = {entry["key"]: entry for entry in record["other_vocab_tensors"]}
    text = others.pop("embed_text_tokens.weight", record["input"])
    if text is record["input"]:
        return record
    v4 = {key: value for key, value in record["v4"].items() if key != "input_disk"}
    return record | {"input": text, "other_vocab_tensors": [*others.values(), record["input"]], "v4": v4}


def marian_apart(line: Line) -> Line:
    """Marian with `share_encoder_decoder_embeddings: false`: source and target have tables of their own."""
    rows = "decoder_vocab_size or vocab_size"
    decoder = {"rows": rows, "group": "decoder"}
    apart = json.loads(json.dumps(line)) | {"if": {"share_encoder_decoder_embeddings": False}}
    given = apart["input"][0]
    given.pop("aliases", None)
    given["names"] = [name for name in given["names"] if "shared" not in name]
    copies = [entry for entry in apart["others"] if "decoder" in entry["names"][0]]
    apart["others"] = [
        {key: value for key, value in entry.items() if key != "copy"} | decoder for entry in copies
    ]
    for kind in ("output", "bias"):
        apart[kind] = [entry | decoder for entry in apart.get(kind, [])]
    for entry in apart["output"]:
        entry["tied_to"] = copies[0]["names"]
    return {key: value for key, value in apart.items() if value != []}


def marian_shared(line: Line) -> Line:
    """Marian's default: one table, stored as `shared`; the decoder's size field repeats the encoder's."""
    shared: Line = json.loads(json.dumps(line))
    for entry in shared["others"]:
        if "decoder" in entry["names"][0]:
            entry |= {"rows": "vocab_size", "copy": True}
            entry.pop("group", None)
    return shared


def lines(families: Line) -> Iterator[Line]:
    widths = {}
    for row in (TOOLS / "widths.tsv").read_text(encoding="utf-8").splitlines():
        name, model_type, *values = row.split("\t")
        widths[name, model_type] = values
    for record in families["families"]:
        made = Maker(text_table_first(record), widths).line()
        if made["type"] == "marian" and made["class"] != "MarianForCausalLM":
            yield marian_apart(made)
            made = marian_shared(made)
        yield made
    extra = [json.loads(line) for line in (TOOLS / "extra_families.jsonl").read_text().splitlines()]
    yield from extra
    known = {line["class"] for line in extra} | {record["architecture"] for record in families["families"]}
    without = [(name, model_type) for model_type, name in families["no_vocab_tensors"]]
    without += [(entry["architecture"], entry["model_type"]) for entry in families["failed"]]
    text = {"RetriBertModel", "VoxtralRealtimeTextModel"}
    for name, model_type in sorted(set(without)):
        if name not in known | text:
            yield {"class": name, "type": model_type, "loaders": {}}


def rank(line: Line) -> tuple[object, ...]:
    """Sorted by class; of several lines of one class the one that bears its model type's name comes first."""
    plain = re.sub(r"[^a-z0-9]", "", line["type"].lower())
    own = line["class"].lower().startswith(plain) if plain else False
    return (
        line["class"],
        "if" not in line,
        not own,
        -len(line["loaders"]) if "loaders" in line else 0,
        line["type"],
    )


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        families = json.load(file)
    made = sorted(lines(families), key=rank)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in made)
    OUTPUT.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
