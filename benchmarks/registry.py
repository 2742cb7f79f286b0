"""Models a second of `tokaudit check REGISTRY`: on every core, one at a time, and one call for each model.

    python benchmarks/registry.py [--work DIR] [--models 200] [--runs 5]

The registry is made of the small models under fixtures/bases, each with weights and a tokenizer; every tenth
one has an error. The ways take turns, with the files in the page cache, and every ratio comes from one run of
this script. The audit of a model is two processes at work (its own, and the one that loads the tokenizer), so
one model at a time already uses a little of a second core.
"""

from __future__ import annotations

import copy
import importlib.util
import json
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType

from bench import PROJECT, machine, measure, parser, run, scratch, tokaudit

from tokaudit.parallel import cores

BASES = ("llama", "bert", "t5")
LOOPED = 10  # models of the loop; the others would take as long each


def builder() -> ModuleType:
    """fixtures/build_case.py."""
    spec = importlib.util.spec_from_file_location("build_case", PROJECT / "fixtures" / "build_case.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(registry: Path, models: int) -> None:
    """Write the models as ORG/NAME; every tenth one stops generation at another id."""
    build_dir = builder().build_dir
    bases = [json.loads((PROJECT / "fixtures" / "bases" / f"{name}.json").read_text()) for name in BASES]
    for number in range(models):
        base = number % len(BASES)
        description = copy.deepcopy(bases[base])
        if number % 10 == 0:
            description["json"].setdefault("generation_config.json", {})["eos_token_id"] = 5
        build_dir(description, registry / f"org-{number % 7}" / f"{BASES[base]}-{number:03}")


def check(*paths: Path, jobs: int | None = None) -> None:
    """One call, on all of the paths."""
    options = [] if jobs is None else [f"--jobs={jobs}"]
    run(tokaudit("check", *options, *paths), codes=(0, 1))


def loop(paths: list[Path]) -> None:
    """One call for each of the paths."""
    for path in paths:
        check(path)


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--models", type=int, default=200)
    call = options.parse_args()
    with scratch(call) as work:
        registry = work / "registry"
        build(registry, call.models)
        some = sorted(registry.glob("*/*"))[:LOOPED]
        machine()
        print(f"{call.models} models; best and median of {call.runs} interleaved runs, warm cache")
        ways = {
            "one call, --jobs 1": (call.models, partial(check, registry, jobs=1)),
            f"one call ({cores()} jobs)": (call.models, partial(check, registry)),
            "a call for each model": (len(some), partial(loop, some)),
        }
        seconds = measure({name: action for name, (_, action) in ways.items()}, call.runs)
        floor = {
            pick: ways["one call, --jobs 1"][0] / pick(seconds["one call, --jobs 1"])
            for pick in (min, median)
        }
        for name, (models, _) in ways.items():
            rates = {pick: models / pick(seconds[name]) for pick in (min, median)}
            shown = "".join(
                f"{rates[pick]:8.1f} models/s {rates[pick] / floor[pick]:5.2f}x" for pick in (min, median)
            )
            print(f"  {name:24}{shown}", flush=True)


if __name__ == "__main__":
    main()
