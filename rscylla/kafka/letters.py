"""Dead letters in Kafka: what goes to their topic instead of a record that can never be sent."""

from __future__ import annotations

from typing import Final

from ..abc import Message

__all__ = ["letter_of"]

LETTER_BYTES: Final = 500_000
"""What is more, of key, value, and headers in this order, is left out of dead letters, so that they fit."""

TOPIC_LETTERS: Final = 1000
"""A dead letter has so many letters of a topic's name, which may be one that Kafka does not take."""


def letter_of(message: Message, topic: str, why: str) -> Message:
    """Return the dead letter of a record: key, value, and headers where they are not too large, and why in headers.

    Headers are named as those of Kafka Connect's dead letters.
    """
    left = LETTER_BYTES
    key = message.key if len(message.key or b"") <= left else None
    left -= len(key or b"")
    value = message.value if len(message.value or b"") <= left else None
    left -= len(value or b"")
    size = sum(len(name) + len(value or b"") for name, value in message.headers)
    headers = message.headers if size <= left else ()
    told = {
        "__connect.errors.topic": message.topic[:TOPIC_LETTERS],
        "__connect.errors.exception.message": why,
        "rscylla.errors.value.bytes": str(len(message.value or b"")),
    }
    return Message(
        topic, key, value, (*headers, *((name, text.encode(errors="backslashreplace")) for name, text in told.items()))
    )
