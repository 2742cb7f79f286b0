"""What training wrappers put in front of the names of the module inside: loaders find nothing under them."""

from __future__ import annotations

import re

WRAPPERS = {
    "_orig_mod": "torch.compile",
    "_fsdp_wrapped_module": "FullyShardedDataParallel",
    "_checkpoint_wrapped_module": "activation checkpointing",
    "_forward_module": "Lightning Fabric",
    "module": "DataParallel, DistributedDataParallel or DeepSpeed",
    "base_model.model": "PEFT",
}
IN_FRONT = re.compile(r"(?:(?:" + "|".join(map(re.escape, WRAPPERS)) + r")\.)+")
