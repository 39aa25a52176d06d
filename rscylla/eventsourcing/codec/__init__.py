"""Values as JSON text and back: what is written is proven to be read, and what is personal is sealed on the way.

converter   between classes and what JSON has; the only door to ``cattrs``, with ``codec`` and ``quiet``
fields      the fields of classes, and the marks that they carry
shapes      declared types: what can be ambiguous, or cannot be looked into, is refused
values      values: whether two are the same, and what JSON has for one without the personal data in it
quiet       errors without values
codec       ``Codec``: all of it together
"""

from .codec import Codec
from .quiet import calling, quietly, tell

__all__ = ["Codec", "calling", "quietly", "tell"]
