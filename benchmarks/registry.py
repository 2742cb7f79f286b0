"""Models a second of `tokaudit check REGISTRY`: on every core, one at a time, and one call for each model.

    python benchmarks/registry.py [--work DIR] [--models 200] [--runs 5]

The registry is made of the small models under fixtures/bases, each with weights and a tokenizer; every tenth
one has an error. The ways take turns, with the files in the page cache, and every ratio comes from one run of
this script. The audit of a model is two processes at work (its own, and the one that loads the tokenizer), so
one model at a time already uses a little of a second core.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType

PROJECT = Path(__file__).resolve().parents[1]
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
    command = (sys.executable, "-m", "tokaudit", "check", *options, *map(str, paths))
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{done.stdout[-2000:]}\n{done.stderr}\nexit code {done.returncode}: {' '.join(command)}")


def loop(paths: list[Path]) -> None:
    """One call for each of the paths."""
    for path in paths:
        check(path)


def measure(actions: Mapping[str, Callable[[], None]], runs: int) -> dict[str, list[float]]:
    """Seconds of each action, ``runs`` times in turns, after a first round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(runs + 1):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure `tokaudit check` on a registry of small models.")
    parser.add_argument("--work", type=Path, help="where to build; default: the temporary directory")
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5, help="how often each way is timed")
    call = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=call.work, prefix="tokaudit-benchmark-") as folder:
        registry = Path(folder).resolve() / "registry"
        build(registry, call.models)
        some = sorted(registry.glob("*/*"))[:LOOPED]
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        print(f"{cores} cores, Python {platform.python_version()}, load average {os.getloadavg()[0]:.1f}")
        print(f"{call.models} models; best and median of {call.runs} interleaved runs, warm cache")
        ways = {
            "one call, --jobs 1": (call.models, partial(check, registry, jobs=1)),
            f"one call ({cores} jobs)": (call.models, partial(check, registry)),
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
