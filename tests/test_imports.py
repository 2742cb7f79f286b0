"""What a start of tokaudit loads: the budget of its speed, counted in modules and not in milliseconds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tokaudit.reporters import names

PROJECT = Path(__file__).resolve().parents[1]
TINYLM = PROJECT / "fixtures/tinylm"

HEAVY = {"torch", "numpy", "pydantic", "transformers", "safetensors", "huggingface_hub"}
PAINTING = {"rich.console", "rich.text", "rich.markdown", "markdown_it", "pygments"}

PROBE = """
import json, sys
sys.path.insert(0, {project!r})
{code}
loaded = sorted(sys.modules)
print(json.dumps(loaded), file=sys.stderr)
"""


def loaded_by(code: str) -> set[str]:
    """The modules that are there after the code has run in a fresh interpreter."""
    script = PROBE.format(project=str(PROJECT), code=code)
    environment = {
        name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "PYTHONPATH")
    }
    result = subprocess.run(
        [sys.executable, "-I", "-c", script],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        timeout=60,
    )
    return set(json.loads(result.stderr.splitlines()[-1]))


def loaded_by_command(*arguments: str) -> set[str]:
    return loaded_by(f"from tokaudit.cli import main\nmain({list(arguments)!r})")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory with enough for an audit of both sides: configuration, tokenizer, weights."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 2, "hidden_size": 1}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"},
    }
    header = json.dumps(
        {
            "model.embed_tokens.weight": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
            "lm_head.weight": {"dtype": "F32", "shape": [2, 1], "data_offsets": [8, 16]},
        }
    ).encode()
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    return tmp_path


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["check", "--help"], ["schema"]])
def test_help_loads_nothing_that_an_audit_needs(arguments: list[str]) -> None:
    loaded = loaded_by_command(*arguments)
    assert "typer" in loaded
    assert not loaded & {*HEAVY, *PAINTING, "tokenizers", "jinja2", "tokaudit.contract", "tokaudit.load"}


@pytest.mark.parametrize("arguments", [["explain", "TA101"], ["rules"], ["rules", "--format", "json"]])
def test_rule_pages_load_no_heavy_library(arguments: list[str]) -> None:
    loaded = loaded_by_command(*arguments)
    assert "tokaudit.rule" in loaded
    assert not loaded & {*HEAVY, *PAINTING, "tokenizers", "jinja2", "tokaudit.load"}


@pytest.mark.parametrize("format", names())
def test_check_loads_no_heavy_library(model: Path, format: str) -> None:
    loaded = loaded_by_command("check", str(model), "--format", format)
    assert {"tokaudit.load", "tokaudit.audit", f"tokaudit.reporters.{format}"} <= loaded
    assert not loaded & {*HEAVY, *PAINTING, "tokenizers"}


def test_colours_load_what_paints_them(model: Path) -> None:
    """So that the tests above can fail: painting is what a report without colours does without."""
    assert loaded_by_command("check", str(model), "--color", "always") >= {"rich.console", "rich.text"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("rows", "model"),
        ("check", "model", "--deep"),
        ("check", "model", "model", "--deep"),
        ("resize", "model", "new", "--rows", "600"),
    ],
)
def test_without_torch_what_needs_it_says_so(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """docs/ci.md installs all but torch."""
    code = f"import sys; sys.modules['torch'] = None; from tokaudit.cli import main; main({list(arguments)})"
    script = f"import sys; sys.path.insert(0, {str(PROJECT)!r}); {code}"
    shutil.copytree(TINYLM, tmp_path / "model")
    result = subprocess.run(
        [sys.executable, "-I", "-c", script], cwd=tmp_path, capture_output=True, encoding="utf-8"
    )
    assert "this needs torch, which is not installed" in result.stderr
    assert "hint: pip install torch\n" in result.stderr


def test_importing_the_library_loads_none_of_it() -> None:
    before = loaded_by("")
    assert {name for name in loaded_by("import tokaudit") - before if name != "__future__"} == {"tokaudit"}


def test_the_names_of_the_library_are_there_when_they_are_asked_for() -> None:
    import tokaudit

    for name in tokaudit.__all__:
        assert getattr(tokaudit, name) is not None
    assert set(tokaudit.__all__) == set(dir(tokaudit))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        tokaudit.nonsense  # noqa: B018


def test_the_probe_sees_a_heavy_library_that_is_loaded() -> None:
    assert HEAVY & loaded_by("import numpy") == {"numpy"}


@pytest.mark.parametrize("arguments", [["check", "--deep"], ["resize"]])
def test_torch_without_numpy_says_nothing(arguments: list[str], tmp_path: Path) -> None:
    command = [*arguments, str(TINYLM)]
    if "resize" in command:
        command += [str(tmp_path / "grown"), "--add-token", "x"]
    code = (
        f"import sys; sys.modules['numpy'] = None; from tokaudit.cli import main; sys.exit(main({command}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
