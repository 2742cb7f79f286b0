"""Which weights files count, which are damaged, passed over or outside: as loaders choose them."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from tokaudit.contract import Checkpoint, Damage, DamagedFile, Missing, pickled_weights
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.findings import Location
from tokaudit.formats.checkpoint import read_checkpoint
from tokaudit.sources import open_source

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


class Folder:
    """A model directory that a test fills."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def weights(self, file: str, *names: str, rows: int = 4) -> None:
        header = {
            name: {"dtype": "U8", "shape": [rows, 2], "data_offsets": [i * rows * 2, (i + 1) * rows * 2]}
            for i, name in enumerate(names)
        }
        text = json.dumps(header).encode()
        path = self.path / file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(rows * 2 * len(names)))

    def write(self, file: str, data: object) -> None:
        (self.path / file).write_text(json.dumps(data))

    def index(self, weight_map: object, file: str = INDEX, **metadata: object) -> None:
        self.write(file, {"metadata": metadata, "weight_map": weight_map})

    def read(self, preferred: str | None = None) -> Checkpoint:
        return read_checkpoint(open_source(self.path), preferred)

    def only_damage(self) -> DamagedFile:
        (damaged,) = self.read().damaged
        return damaged


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def files(checkpoint: Checkpoint) -> list[str]:
    return [shard.file for shard in checkpoint.shards]


def test_a_single_file_is_the_whole_checkpoint(folder: Folder) -> None:
    folder.weights("model.safetensors", "wte", "norm")
    checkpoint = folder.read()
    assert checkpoint.layout == "single"
    assert checkpoint.complete
    assert checkpoint.tensors["wte"].at == Location("model.safetensors", tensor="wte")
    assert checkpoint.nbytes == 16
    assert checkpoint.index_or == Missing(f"there is no {INDEX}")
    assert (checkpoint.stale, checkpoint.unreferenced) == ((), ())


def test_shards_are_read_in_sorted_order_and_the_index_keeps_its_facts(folder: Folder) -> None:
    folder.weights(SECOND, "head")
    folder.weights(FIRST, "wte")
    folder.index({"head": SECOND, "wte": FIRST}, total_size=16)
    checkpoint = folder.read()
    assert checkpoint.layout == "sharded"
    assert files(checkpoint) == [FIRST, SECOND]
    assert checkpoint.index.weight_map == {"head": SECOND, "wte": FIRST}
    assert checkpoint.index.at("a/b") == Location(INDEX, "/weight_map/a~1b")
    assert not isinstance(checkpoint.index.total_size, Missing)
    assert checkpoint.index.total_size.value == 16
    assert checkpoint.index.total_size.at == Location(INDEX, "/metadata/total_size")


@pytest.mark.parametrize("document", [{"metadata": {}}, {}, {"metadata": None}, {"metadata": [1]}])
def test_an_index_need_not_state_a_total_size(folder: Folder, document: dict[str, object]) -> None:
    folder.weights(FIRST, "wte")
    folder.write(INDEX, {**document, "weight_map": {"wte": FIRST}})
    assert isinstance(folder.read().index.total_size, Missing)


def test_of_a_tensor_in_several_shards_the_last_file_wins_and_all_are_listed(folder: Folder) -> None:
    third = "model-00003-of-00003.safetensors"
    folder.weights(FIRST, "wte", "a", rows=4)
    folder.weights(SECOND, "wte", "b", rows=5)
    folder.weights(third, "wte", "b", rows=6)
    folder.index({"wte": FIRST, "a": FIRST, "b": SECOND, "c": third})
    checkpoint = folder.read()
    assert checkpoint.tensors["wte"].shape == (6, 2)
    assert {name: [tensor.file for tensor in tensors] for name, tensors in checkpoint.repeated.items()} == {
        "wte": [FIRST, SECOND, third],
        "b": [SECOND, third],
    }


def test_without_repetition_nothing_is_repeated(folder: Folder) -> None:
    folder.weights("model.safetensors", "wte")
    assert folder.read().repeated == {}


def test_an_absent_shard_is_damage_and_the_others_are_read(folder: Folder) -> None:
    folder.weights(FIRST, "wte")
    folder.index({"a": SECOND, "wte": FIRST, "b": SECOND})
    checkpoint = folder.read()
    assert files(checkpoint) == [FIRST]
    assert not checkpoint.complete
    damaged = folder.only_damage()
    assert (damaged.file, damaged.damage, damaged.code) == (SECOND, Damage.ABSENT, "no-such-file")
    assert damaged.named_by == Location(INDEX, "/weight_map/a")


def test_a_shard_name_must_match_in_case_on_every_file_system(folder: Folder) -> None:
    folder.weights(FIRST, "wte")
    folder.index({"wte": FIRST.capitalize()})
    assert folder.only_damage().damage is Damage.ABSENT


def test_a_link_to_nothing_is_an_absent_file(folder: Folder) -> None:
    (folder.path / "model.safetensors").symlink_to("gone")
    damaged = folder.only_damage()
    assert (damaged.damage, damaged.code) == (Damage.ABSENT, "dangling-link")
    assert "symlink target is missing" in damaged.reason


def test_a_broken_file_keeps_its_cause(folder: Folder) -> None:
    folder.weights(FIRST, "wte")
    size = (folder.path / FIRST).stat().st_size
    os.truncate(folder.path / FIRST, size - 1)
    folder.index({"wte": FIRST})
    damaged = folder.only_damage()
    assert (damaged.damage, damaged.code) == (Damage.BROKEN, "weights-truncated")
    assert damaged.reason == f"the data ends at byte {size - 1}, the header needs {size}"
    assert damaged.hint
    assert damaged.named_by == Location(INDEX, "/weight_map/wte")


def test_a_pointer_in_place_of_the_weights_is_no_weights(folder: Folder) -> None:
    (folder.path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    damaged = folder.only_damage()
    assert (damaged.damage, damaged.named_by) == (Damage.NOT_WEIGHTS, None)
    assert "git lfs pull" in damaged.hint


@pytest.mark.real
def test_a_published_pointer_is_no_weights(real: Path) -> None:
    (damaged,) = read_checkpoint(open_source(real / "granite-3.1-1b")).damaged
    assert damaged.damage is Damage.NOT_WEIGHTS


@pytest.mark.real
def test_published_weights_are_read(real: Path) -> None:
    checkpoint = read_checkpoint(open_source(real / "stories260K-hf"))
    assert checkpoint.complete
    assert checkpoint.tensors["model.embed_tokens.weight"].shape[0] == 512


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../model/model.safetensors", "leads upwards"),
        ("a/../../x.safetensors", "leads upwards"),
        ("/etc/passwd", "an absolute path"),
        ("/dev/stdin", "an absolute path"),
        ("..\\model.safetensors", "backslash"),
        ("C:\\model.safetensors", "backslash"),
        ("C:model.safetensors", "an absolute path"),
        ("\\\\attacker\\share\\model.safetensors", "backslash"),
        ("https://evil.example/model.safetensors", "an address"),
        ("a\0b.safetensors", "control character"),
        ("", "an empty file name"),
        (".", "an empty step"),
        ("a//b.safetensors", "an empty step"),
        ("x" * 300 + ".safetensors", "more than 255 bytes"),
        ("\u20ac" * 100 + ".safetensors", "more than 255 bytes"),
    ],
)
def test_a_shard_name_that_leads_elsewhere_is_never_opened(
    folder: Folder, name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.weights(FIRST, "wte")
    folder.index({"wte": FIRST, "head": name})
    opened: list[object] = []
    real_open = os.open
    monkeypatch.setattr(os, "open", lambda path, *a, **k: opened.append(path) or real_open(path, *a, **k))
    damaged = folder.only_damage()
    assert (damaged.file, damaged.damage, damaged.code) == (name, Damage.OUTSIDE, "index-path")
    assert words in damaged.reason
    assert damaged.named_by == Location(INDEX, "/weight_map/head")
    assert set(opened) == {str(folder.path), INDEX, FIRST}


@pytest.mark.parametrize("name", ["pytorch_model.bin", INDEX, "config.json"])
def test_a_shard_that_is_named_like_no_safetensors_file_is_never_opened(folder: Folder, name: str) -> None:
    os.mkfifo(folder.path / "pytorch_model.bin")
    folder.index({"wte": name})
    damaged = folder.only_damage()
    assert (damaged.damage, damaged.code) == (Damage.NOT_WEIGHTS, "index-extension")


def test_a_link_out_of_the_directory_is_never_opened(
    folder: Folder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("outside") / "secret"
    secret.write_bytes(b"secret")
    (folder.path / FIRST).symlink_to(secret)
    folder.index({"wte": FIRST})
    damaged = folder.only_damage()
    assert (damaged.damage, damaged.code) == (Damage.OUTSIDE, "path-escape")


def test_shards_may_lie_in_a_folder_of_the_model(folder: Folder) -> None:
    folder.weights("weights/a.safetensors", "wte")
    folder.index({"wte": "weights/a.safetensors", "head": "weights/b.safetensors"})
    checkpoint = folder.read()
    assert files(checkpoint) == ["weights/a.safetensors"]
    assert checkpoint.damaged[0].damage is Damage.ABSENT


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "expected an object, found"),
        ({"metadata": {}}, "expected an object at /weight_map"),
        ({"weight_map": [["wte", FIRST]]}, "expected an object at /weight_map"),
        ({"weight_map": {"wte": FIRST, "a/b": 1}}, "expected a file name at /weight_map/a~1b, found 1"),
        ({"weight_map": {"wte": None}}, "found null"),
        ({"weight_map": {"wte": [FIRST]}}, "expected a file name"),
        ({"weight_map": {"wte": True}}, "found true"),
    ],
)
def test_an_index_that_names_no_files_is_unreadable(folder: Folder, document: object, words: str) -> None:
    folder.weights(FIRST, "wte")
    folder.write(INDEX, document)
    with pytest.raises(Unreadable) as caught:
        folder.read()
    assert (caught.value.code, caught.value.file) == ("index-malformed", INDEX)
    assert words in caught.value.message


def test_an_index_without_entries_gives_an_empty_checkpoint(folder: Folder) -> None:
    folder.weights(FIRST, "wte")
    folder.index({})
    checkpoint = folder.read()
    assert (checkpoint.layout, checkpoint.tensors) == ("sharded", {})
    assert checkpoint.unreferenced == (FIRST,)


def test_keys_that_the_index_repeats_are_reported(folder: Folder) -> None:
    folder.weights(FIRST, "wte")
    (folder.path / INDEX).write_text(f'{{"weight_map": {{"wte": "x", "wte": "{FIRST}"}}}}')
    assert [found.at for found in folder.read().duplicate_keys] == [Location(INDEX, "/weight_map/wte")]


def test_files_that_the_index_never_names_are_unreferenced(folder: Folder) -> None:
    for name in (FIRST, "other.safetensors", "consolidated.safetensors", "adapter_model.safetensors"):
        folder.weights(name, "wte")
    folder.weights("original/model.safetensors", "wte")
    folder.index({"wte": FIRST})
    assert folder.read().unreferenced == ("other.safetensors",)


def test_a_single_file_beside_an_index_is_preferred_and_the_shards_are_stale(folder: Folder) -> None:
    folder.weights("model.safetensors", "wte", rows=4)
    folder.weights(FIRST, "wte", rows=6)
    folder.index({"wte": FIRST, "head": SECOND})
    checkpoint = folder.read()
    assert checkpoint.layout == "single"
    assert files(checkpoint) == ["model.safetensors"]
    assert checkpoint.tensors["wte"].shape == (4, 2)
    assert [shard.file for shard in checkpoint.stale] == [FIRST]
    assert checkpoint.unused_index is not None
    assert checkpoint.unused_index.file == INDEX
    assert checkpoint.index_or == Missing("loaders read another file and not the index")
    assert checkpoint.complete
    assert checkpoint.unreferenced == ()


def test_an_index_that_names_only_the_single_file_is_followed(folder: Folder) -> None:
    folder.weights("model.safetensors", "wte")
    folder.index({"wte": "model.safetensors"}, total_size=8)
    checkpoint = folder.read()
    assert checkpoint.layout == "single"
    assert checkpoint.index.weight_map == {"wte": "model.safetensors"}
    assert (checkpoint.unused_index, checkpoint.stale) == (None, ())


def test_damage_in_files_that_loaders_pass_over_does_not_count(folder: Folder) -> None:
    folder.weights("model.safetensors", "wte")
    (folder.path / FIRST).write_bytes(b"cut")
    os.mkfifo(folder.path / SECOND)
    folder.index({"wte": FIRST, "head": SECOND})
    checkpoint = folder.read()
    assert checkpoint.complete
    assert checkpoint.stale == ()


def test_the_config_may_choose_another_file(folder: Folder) -> None:
    folder.weights("model.safetensors", "wte", rows=4)
    folder.weights("special.safetensors", "wte", rows=6)
    checkpoint = folder.read("special.safetensors")
    assert checkpoint.chosen_by == Location("config.json", "/transformers_weights")
    assert checkpoint.tensors["wte"].file == "special.safetensors"
    assert [shard.file for shard in checkpoint.stale] == ["model.safetensors"]


def test_the_config_may_choose_another_index(folder: Folder) -> None:
    folder.weights(FIRST, "wte")
    folder.weights(SECOND, "wte")
    folder.index({"wte": FIRST})
    folder.index({"wte": SECOND}, "other.safetensors.index.json")
    checkpoint = folder.read("other.safetensors.index.json")
    assert (checkpoint.layout, files(checkpoint)) == ("sharded", [SECOND])
    assert checkpoint.index.file == "other.safetensors.index.json"
    assert checkpoint.unused_index is not None
    assert [shard.file for shard in checkpoint.stale] == [FIRST]


@pytest.mark.parametrize(
    ("chosen", "damage"),
    [
        ("gone.safetensors", Damage.ABSENT),
        ("../model.safetensors", Damage.OUTSIDE),
        ("pytorch_model.bin", Damage.NOT_WEIGHTS),
        ("gone.safetensors.index.json", Damage.NOT_WEIGHTS),
    ],
)
def test_a_choice_of_the_config_that_cannot_be_read_is_damage(
    folder: Folder, chosen: str, damage: Damage
) -> None:
    folder.weights("model.safetensors", "wte")
    (damaged,) = folder.read(chosen).damaged
    assert (damaged.file, damaged.damage) == (chosen, damage)
    assert damaged.named_by == Location("config.json", "/transformers_weights")


@pytest.mark.parametrize(
    ("names", "read"),
    [
        (["b.safetensors", "a.safetensors"], ["a.safetensors", "b.safetensors"]),
        (["adapter_model.safetensors"], ["adapter_model.safetensors"]),
        (["adapter_model.safetensors", "base.safetensors"], ["base.safetensors"]),
        (["consolidated.safetensors"], ["consolidated.safetensors"]),
        (["consolidated.safetensors", "base.safetensors"], ["base.safetensors"]),
        (["consolidated-00001-of-00002.safetensors", "adapter_model.safetensors"],
         ["consolidated-00001-of-00002.safetensors"]),
    ],
)  # fmt: skip
def test_without_a_standard_name_every_other_file_counts(
    folder: Folder, names: list[str], read: list[str]
) -> None:
    for name in names:
        folder.weights(name, "wte")
    checkpoint = folder.read()
    assert (checkpoint.layout, files(checkpoint)) == ("loose", read)


@pytest.mark.parametrize(
    ("there", "lost"),
    [
        (["00001-of-00003", "00003-of-00003"], ["00002-of-00003"]),
        (["00000-of-00003", "00001-of-00003"], ["00002-of-00003"]),
        (["1-of-10", *(f"{number}-of-10" for number in range(3, 11))], ["2-of-10"]),
        (["00001-of-00001"], []),
        # Names that do not count: beyond the total, or from 0 to it.
        (["00001-of-00002", "00003-of-00002"], []),
        (["00000-of-00002", "00002-of-00002"], []),
    ],
)
def test_parts_that_the_names_of_the_others_count_are_lost(
    folder: Folder, there: list[str], lost: list[str]
) -> None:
    for name in ("a-00001-of-00002", *(f"b-{name}" for name in there)):
        folder.weights(f"{name}.safetensors", "wte")
    missing = ["a-00002-of-00002", *(f"b-{name}" for name in lost)]
    found = folder.read().damaged
    assert [file.file for file in found] == [f"{name}.safetensors" for name in missing]
    assert {(file.damage, file.code) for file in found} == {(Damage.ABSENT, "part-missing")}
    assert "count 2" in found[0].reason


@pytest.mark.parametrize(("total", "lost"), [(10_000, 9_999), (10_001, 0)])
def test_more_parts_than_any_checkpoint_has_are_not_missed(folder: Folder, total: int, lost: int) -> None:
    folder.weights(f"a-00001-of-{total}.safetensors", "wte")
    assert len(folder.read().damaged) == lost


def test_a_directory_without_weights_says_so(folder: Folder) -> None:
    with pytest.raises(FactMissing, match="no weights file"):
        folder.read()


def test_pickled_weights_alone_are_named_and_not_opened(folder: Folder) -> None:
    os.mkfifo(folder.path / "pytorch_model.bin")
    with pytest.raises(FactMissing, match=r"never opened \(pytorch_model.bin\)"):
        folder.read()


def test_pickled_weights_are_told_from_other_files() -> None:
    names = [
        "pytorch_model.bin",
        "pytorch_model-00001-of-00002.bin",
        "adapter_model.bin",
        "model.pt",
        "x.ckpt",
    ]
    others = ["training_args.bin", "rng_state.pth", "rng_state_0.pth", "optimizer.pt", "scheduler.pt",
              "pytorch_model.bin.index.json", "model.safetensors", "ids.bin", "tokenizer.model"]  # fmt: skip
    assert pickled_weights([*others, *names]) == tuple(sorted(names))


def test_a_file_that_cannot_be_looked_into_leaves_no_verdict(folder: Folder) -> None:
    (folder.path / "model.safetensors").mkdir()
    with pytest.raises(Unreadable) as caught:
        folder.read()
    assert (caught.value.code, caught.value.file) == ("not-a-regular-file", "model.safetensors")


def test_an_index_of_many_entries_is_read(folder: Folder) -> None:
    folder.weights(FIRST, "wte")
    folder.index({f"tensor.{number}": FIRST for number in range(200_000)})
    assert len(folder.read().index.weight_map) == 200_000
