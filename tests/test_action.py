"""What teams adopt: the steps of action.yml, run as the runner runs them, the hooks, the page docs/ci.md.

The schemas of actions, workflows and pipelines are those that the package check-jsonschema ships; no code of
that package runs.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[1]
TINYLM = PROJECT / "fixtures" / "tinylm"
ACTION = yaml.safe_load((PROJECT / "action.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((PROJECT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
PAGE = (PROJECT / "docs" / "ci.md").read_text(encoding="utf-8")

EXPRESSION = re.compile(r"\$\{\{ ([^}]*) \}\}")


def schema(name: str) -> Any:
    package = importlib.metadata.distribution("check-jsonschema")
    file = package.locate_file(f"check_jsonschema/builtin_schemas/vendor/{name}.json")
    return json.loads(Path(str(file)).read_text(encoding="utf-8"))


def validate(document: Any, name: str) -> None:
    published = schema(name)
    jsonschema.validators.validator_for(published)(published).validate(document)


# The action


@dataclass
class Run:
    """A run of the action: what its steps left."""

    code: int = 0
    log: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""


class Runner:
    """Runs the steps of the action as GitHub's runner does: bash, the environment, files for outputs."""

    def __init__(self, workspace: Path, temp: Path, source: Path = PROJECT) -> None:
        self.workspace = workspace
        self.temp = temp
        self.source = source

    def run(self, **inputs: str) -> Run:
        self.values = {"github.action_path": str(self.source)}
        for name, declared in ACTION["inputs"].items():
            given = inputs.pop(name.replace("-", "_"), declared.get("default"))
            assert given is not None, f"the input {name} is required"
            self.values[f"inputs.{name}"] = given
        assert not inputs
        run = Run()
        for step in ACTION["runs"]["steps"]:
            self._step(step, run)
            if run.code:
                break
        outputs = ACTION["outputs"].items()
        run.outputs = {name: self.evaluated(output["value"], absent="") for name, output in outputs}
        return run

    def evaluated(self, text: str, absent: str | None = None) -> str:
        """The text with its expressions replaced. Only plain names are known."""
        return EXPRESSION.sub(
            lambda found: self.values[found[1]] if absent is None else self.values.get(found[1], absent), text
        )

    def _step(self, step: Mapping[str, Any], run: Run) -> None:
        assert step["shell"] == "bash"
        script = self.temp / f"{step['id']}.sh"
        script.write_text(step["run"], encoding="utf-8")
        files = {
            name: self.temp / f"{step['id']}-{name}" for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
        }
        for file in files.values():
            file.touch()
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "PYTHON"))
        }
        result = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=self.workspace,
            env={
                **kept,
                "GITHUB_ACTIONS": "true",
                "RUNNER_TEMP": str(self.temp),
                **{name: str(file) for name, file in files.items()},
                **{name: self.evaluated(value) for name, value in step["env"].items()},
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=600,
        )
        run.code = result.returncode
        run.log += result.stdout
        run.summary += files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8")
        for name, value in outputs_in(files["GITHUB_OUTPUT"].read_text(encoding="utf-8")).items():
            self.values[f"steps.{step['id']}.outputs.{name}"] = value


def outputs_in(text: str) -> dict[str, str]:
    """``name=value`` and ``name<<DELIMITER`` as the runner reads them."""
    outputs: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if re.match(r"[\w-]+<<", line):
            name, delimiter = line.split("<<", 1)
            value = []
            for inner in lines:
                if inner == delimiter:
                    break
                value.append(inner)
            outputs[name] = "\n".join(value)
        else:
            name, _, outputs[name] = line.partition("=")
    return outputs


@pytest.fixture
def command(tmp_path: Path) -> str:
    """This project's tokaudit as a program."""
    file = tmp_path / "bin" / "tokaudit"
    file.parent.mkdir()
    start = (
        f"import sys; sys.path.insert(0, {str(PROJECT)!r}); from tokaudit.cli import main; sys.exit(main())"
    )
    file.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$@"\n', encoding="utf-8")
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def recorder(tmp_path: Path) -> str:
    """A program in place of tokaudit that prints its arguments, one a line."""
    file = tmp_path / "recorder"
    file.write_text('#!/bin/sh\nprintf "<%s>\\n" "$@"\n', encoding="utf-8")
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A checkout with a model in order and a broken one, and the runner's own folder."""
    workspace, temp = tmp_path / "workspace", tmp_path / "temp"
    (workspace / ".git").mkdir(parents=True)
    temp.mkdir()
    shutil.copytree(TINYLM, workspace / "models" / "good")
    shutil.copytree(TINYLM, workspace / "models" / "bad one")
    config = workspace / "models" / "bad one" / "generation_config.json"
    config.write_text(json.dumps({"eos_token_id": 3}, indent=2), encoding="utf-8")
    return Runner(workspace, temp)


def test_the_action_is_valid() -> None:
    validate(ACTION, "github-actions")


def test_the_action_uses_no_other_action_and_no_script_holds_an_expression() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "uses" not in step
        assert "working-directory" not in step
        assert "${{" not in step["run"]


def test_a_model_in_order_passes(runner: Runner, command: str) -> None:
    run = runner.run(command=command, paths="models/good")
    assert run.code == 0
    assert run.outputs["exit-code"] == "0"
    assert run.outputs["findings"] == "0"
    assert run.outputs["sarif"] == ""
    assert json.loads(Path(run.outputs["report"]).read_text(encoding="utf-8"))["verdict"] == "pass"
    assert "✓ pass" in run.log
    assert "pass: <code>models/good</code>" in run.summary


def test_a_broken_model_fails_with_annotations_reports_and_outputs(runner: Runner, command: str) -> None:
    run = runner.run(command=command, paths="models/*", sarif="out.sarif", junit="out.xml")
    assert run.code == 1
    assert run.outputs["exit-code"] == "1"
    assert run.outputs["findings"] == "1"
    assert run.outputs["sarif"] == "out.sarif"
    errors = [line for line in run.log.splitlines() if line.startswith("::error ")]
    assert len(errors) == 1
    assert errors[0].startswith("::error file=models/bad one/generation_config.json,line=2,endLine=2,col=3,")
    assert "| <code>models/bad one</code> | &#10060; fail |" in run.summary
    log = json.loads((runner.workspace / "out.sarif").read_text(encoding="utf-8"))
    assert [run["automationDetails"]["id"] for run in log["runs"]] == [
        "tokaudit/models/bad one/",
        "tokaudit/models/good/",
    ]
    assert ElementTree.parse(runner.workspace / "out.xml").getroot().attrib["failures"] == "1"


def test_the_level_to_fail_on_is_the_one_that_is_counted(runner: Runner, command: str) -> None:
    run = runner.run(command=command, paths="models/good", fail_on="note")
    assert (run.code, run.outputs["findings"]) == (1, "1")


def test_without_a_level_the_settings_file_says_it(runner: Runner, command: str) -> None:
    (runner.workspace / "tokaudit.toml").write_text('fail-on = "note"\n', encoding="utf-8")
    run = runner.run(command=command, paths="models/good")
    assert (run.code, run.outputs["findings"]) == (1, "1")


@pytest.mark.parametrize(
    "inputs", [{"paths": "absent"}, {"paths": "models/good", "fail_on": "info"}, {"paths": ""}]
)
def test_without_a_verdict_the_step_ends_with_2(runner: Runner, command: str, inputs: dict[str, str]) -> None:
    run = runner.run(command=command, **inputs)
    assert (run.code, run.outputs["exit-code"]) == (2, "2")
    assert run.outputs["findings"] in ("", "0")
    assert "tokaudit: error" in run.log


def test_inputs_become_arguments_and_nothing_else(runner: Runner, recorder: str) -> None:
    evil = "$(touch canary) `touch canary`; touch canary; \" ' ${IFS} ${{ secrets.X }}"
    run = runner.run(
        command=recorder,
        paths=f"models/*\n{evil}\n--format\n\nno/such/*",
        tokenizer=evil,
        lock="a lock",
        fail_on=evil,
        no_weights="true",
        sarif=evil + "\nx\nexit-code=0",
        junit="-x",
        arguments=f"--select\nTA1\n{evil}\n",
    )
    report = run.outputs["report"]
    words = re.findall(r"^<(.*?)>$", run.log, re.MULTILINE | re.DOTALL)
    assert words == [
        "check",
        "--format=github",
        f"--output=json={report}",
        f"--fail-on={evil}",
        f"--tokenizer={evil}",
        "--lock=a lock",
        "--no-weights",
        f"--output=sarif={evil}\nx\nexit-code=0",
        "--output=junit=-x",
        "--select",
        "TA1",
        evil,
        "--",
        "models/bad one",
        "models/good",
        evil,
        "--format",
        "no/such/*",
    ]
    assert run.outputs["sarif"] == evil + "\nx\nexit-code=0"
    assert run.outputs["exit-code"] == "0"
    assert not list(runner.workspace.rglob("canary"))


def test_the_action_installs_its_own_tokaudit_without_torch(runner: Runner, tmp_path: Path) -> None:
    """In a directory of its own, from the action's own files; the files that git has, as in a checkout."""
    probe = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            tmp_path / "probe",
            "hatchling",
        ],
        capture_output=True,
        timeout=300,
    )
    if probe.returncode:
        pytest.skip("no package index is within reach")
    runner.source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".*", "fixtures", "tests", "benchmarks", "__pycache__")
    shutil.copytree(PROJECT, runner.source, ignore=ignored)
    (runner.workspace / "venv.py").write_text("raise SystemExit('the checkout is not to be imported')")
    run = runner.run(paths="models/good", python=sys.executable)
    assert (run.code, run.outputs["exit-code"]) == (0, "0"), run.log
    installed = Path(runner.values["steps.install.outputs.command"]).parents[1]
    assert installed.parent == runner.temp
    packages = {folder.name for folder in installed.glob("lib/python*/site-packages/*")}
    assert {"tokaudit", "tokenizers"} <= packages
    assert "torch" not in packages


# pre-commit


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_has_what_pre_commit_asks_for(hook: dict[str, Any]) -> None:
    assert {"id", "name", "entry", "language", "files"} <= hook.keys()
    assert hook["entry"] == "tokaudit check"
    assert hook["pass_filenames"] is False
    assert hook["require_serial"] is True


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("config.json", True),
        ("models/llama/config.json", True),
        ("models/llama/generation_config.json", True),
        ("tokenizer.json", True),
        ("m/tokenizer_config.json", True),
        ("m/tokenizer.model", True),
        ("m/special_tokens_map.json", True),
        ("m/added_tokens.json", True),
        ("m/vocab.txt", True),
        ("m/chat_template.jinja", True),
        ("m/model.safetensors", True),
        ("m/model-00001-of-00002.safetensors", True),
        ("m/model.safetensors.index.json", True),
        ("README.md", False),
        ("src/package.json", False),
        ("m/config.json.bak", False),
        ("m/my_config.json", False),
    ],
)
def test_the_hook_runs_when_a_file_of_a_model_changes(file: str, wanted: bool) -> None:
    for hook in HOOKS:
        assert bool(re.search(hook["files"], file)) is wanted


# The page


def blocks(language: str, mark: str = "") -> list[str]:
    """The code blocks of a language on the page; those behind a mark where one is given."""
    before = rf"<!-- {re.escape(mark)} -->\n" if mark else ""
    return re.findall(rf"{before}```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_workflow_on_the_page_is_valid_and_uses_inputs_and_outputs_that_exist() -> None:
    (text,) = blocks("yaml", "schema: github-workflows")
    workflow = yaml.safe_load(text)
    workflow["on"] = workflow.pop(True)  # YAML 1.1 takes the key for a truth value
    validate(workflow, "github-workflows")
    steps = workflow["jobs"]["tokaudit"]["steps"]
    (step,) = (step for step in steps if "tokaudit@" in step["uses"])
    assert step["with"].keys() <= ACTION["inputs"].keys()
    assert set(re.findall(r"steps\.tokaudit\.outputs\.([\w-]+)", text)) <= ACTION["outputs"].keys()
    assert steps[-1]["with"]["sarif_file"] == step["with"]["sarif"]
    for output in ACTION["outputs"]:
        assert f"`{output}`" in PAGE


def test_the_pipeline_on_the_page_is_valid() -> None:
    (text,) = blocks("yaml", "schema: gitlab-ci")
    validate(yaml.safe_load(text), "gitlab-ci")


def test_the_hook_on_the_page_exists() -> None:
    (config,) = (yaml.safe_load(text) for text in blocks("yaml") if text.startswith("repos:"))
    used = {hook["id"] for repo in config["repos"] for hook in repo["hooks"]}
    assert used <= {hook["id"] for hook in HOOKS}


def test_the_page_installs_everything_but_torch() -> None:
    requirements = importlib.metadata.requires("tokaudit") or []
    needed = {name for name in requirements if "extra ==" not in name and not name.startswith("torch")}
    lines = [line for text in blocks("sh") for line in text.splitlines() if line.startswith('pip install "')]
    assert [set(re.findall(r'"([^"]+)"', line)) for line in lines] == [needed]


def test_the_page_names_every_format() -> None:
    from tokaudit.reporters import names

    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(names())


@pytest.mark.parametrize(
    ("model", "code", "served"), [("good", 7, True), ("bad one", 1, False), ("absent", 2, False)]
)
def test_the_entry_point_on_the_page_serves_only_what_passed(
    runner: Runner, command: str, tmp_path: Path, model: str, code: int, served: bool
) -> None:
    (text,) = blocks("sh", "file: entrypoint.sh")
    script = tmp_path / "entrypoint.sh"
    script.write_text(text, encoding="utf-8")
    result = subprocess.run(
        ["sh", str(script), "sh", "-c", "echo serving; exit 7"],
        cwd=runner.workspace,
        env={
            **os.environ,
            "PATH": f"{Path(command).parent}{os.pathsep}{os.environ['PATH']}",
            "MODEL": f"models/{model}",
        },
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert result.returncode == code
    assert (result.stdout == "serving\n") is served
    assert ("error" in result.stderr) is not served
