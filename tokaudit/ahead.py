"""Modules that take long to import, imported while something else is waited for."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from contextlib import suppress


def import_ahead(module: str) -> Callable[[], None]:
    """Begin to import a module; what is returned waits for the end of it."""

    def load() -> None:
        with suppress(Exception):  # it is raised where the import is needed
            importlib.import_module(module)

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    return thread.join
