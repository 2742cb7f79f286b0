"""Two processes that cut a model in shards with FSDP in each way, and audit it: prints JSON.

python tests/sharded.py
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from live import plain, tied
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from tokaudit.training import audit_module
from tokaudit.training.tables import find_tables

CPU = torch.device("cpu")


def sharded_in_place(model: nn.Module) -> nn.Module:
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    return model


WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "parameters": lambda model: FullyShardedDataParallel(model, device_id=CPU, use_orig_params=True),
    "flat": lambda model: FullyShardedDataParallel(model, device_id=CPU),
    "fully_shard": sharded_in_place,
}


def described(model: nn.Module) -> dict[str, object]:
    report = audit_module(model, None, torch.optim.SGD(model.parameters(), lr=0.1))
    return {
        "tied": find_tables(model).tied,
        "rows": report.summary.input and report.summary.input.rows,
        "found": [finding.rule for finding in report.findings],
        "skipped": [skip.rule.code for skip in report.skipped if skip.rule.code > "TA9"],
    }


def main(rank: int, store: Path) -> None:
    warnings.simplefilter("ignore")
    distributed.init_process_group("gloo", init_method=store.as_uri(), rank=rank, world_size=2)
    found = {
        f"{way}, {name}": described(wrap(make()))
        for way, wrap in WAYS.items()
        for name, make in (("tied", tied), ("untied", plain))
    }
    print(json.dumps(found), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
