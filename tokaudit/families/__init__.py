"""What is known of architectures: which tensors are tables of token rows, how flags tie them, default ids."""

from tokaudit.families.defaults import IdDefault, id_defaults
from tokaudit.families.resolver import resolve

__all__ = ["IdDefault", "id_defaults", "resolve"]
