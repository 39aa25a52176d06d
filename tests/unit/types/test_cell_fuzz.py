"""Seeded nonsense for compiled code: it gives what its twin in Python gives, and reads no byte beyond a cell.

RSCYLLA_CELL_SEEDS sets the number of seeds. CONTRIBUTING.md has the command that runs them under AddressSanitizer.
"""

# ruff: noqa: E402 - what follows needs the compiled module
from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

fast = pytest.importorskip("rscylla.types.compiled", reason="rscylla was built without a C compiler")

try:
    from rscylla.types import arrow
except ImportError:  # without the extra
    arrow = None  # type: ignore[assignment]

from rscylla.types import Type, sample_of
from rscylla.types.registry import NATIVES, _decoder, _made

SEEDS = int(os.environ.get("RSCYLLA_CELL_SEEDS", "200"))

SIZES = [-(2**31), -2, -1, 0, 1, 2, 3, 4, 8, 16, 255, 2**24, 2**31 - 1]
HASHABLE = sorted(NATIVES.keys() - {"duration"})


def random_type(dice: random.Random, depth: int = 0, *, of_key: bool = False) -> Type:
    kind = dice.choice(["native", "native", "list", "set", "map", "tuple", "udt", "vector"])
    if kind == "native" or depth == 3:
        return Type(dice.choice(HASHABLE if of_key else [*NATIVES, "org.example.Odd"]))
    inner = of_key or kind in ("set", "map")
    args = tuple(random_type(dice, depth + 1, of_key=inner) for _ in range(dice.randint(1, 3)))
    match kind:
        case "map":
            return Type(kind, (args[0], random_type(dice, depth + 1, of_key=of_key)))
        case "tuple":
            return Type(kind, args)
        case "udt":
            return Type(kind, args, tuple(f"f{i}" for i in range(len(args))))
        case "vector":
            return Type(kind, args[:1], size=dice.randint(1, 4))
    return Type(kind, args[:1])


def random_value(dice: random.Random, type_: Type) -> bytes:
    """Return bytes of *type_* that have parts, where the sample of a collection is empty."""

    def sized(part: Type) -> bytes:
        if dice.random() < 0.1:
            return struct.pack(">i", -1)
        raw = random_value(dice, part)
        return struct.pack(">i", len(raw)) + raw

    match type_.kind:
        case "list" | "set" | "map":
            count = dice.randint(0, 3)
            return struct.pack(">i", count) + b"".join(sized(part) for _ in range(count) for part in type_.args)
        case "tuple" | "udt":
            return b"".join(map(sized, type_.args))
        case "text" | "blob" | "varint":
            return dice.randbytes(dice.randint(0, 12)) if dice.random() < 0.3 else b"word" * dice.randint(0, 3)
    return sample_of(type_)


def spoiled(dice: random.Random, raw: bytes) -> bytes:
    made = bytearray(raw)
    for _ in range(dice.randint(0, 3)):
        at = dice.randint(0, len(made))
        match dice.randint(0, 4):
            case 0:
                del made[at:]
            case 1:
                made[at : at + 1] = dice.randbytes(1)
            case 2:
                made[at:at] = dice.randbytes(dice.randint(1, 9))
            case 3:
                made[at : at + 4] = struct.pack(">i", dice.choice(SIZES))
            case 4:
                made[:4] = struct.pack(">i", dice.choice(SIZES))
    return bytes(made)


def outcome(make: Callable[[Any], Any], raw: Any) -> Any:
    try:
        return make(raw)
    except (ValueError, OverflowError) as e:
        return OverflowError if isinstance(e, OverflowError) else ValueError


def shown(value: Any) -> str:
    """Return text in which sets have one order, and by which NaN is itself."""
    if isinstance(value, dict):
        return str([(shown(k), shown(v)) for k, v in value.items()])
    if isinstance(value, set | frozenset):
        return f"set {sorted(map(shown, value))}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} {list(map(shown, value))}"
    return repr(value)


def arrays(type_: Type, column: list[bytes | None], choice: Any) -> Any:
    from arrays import numbers_for_moments

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "_compiled_builder", choice)
        found = outcome(arrow.builder_for(type_), column)
    if isinstance(found, type):
        return found
    found.validate(full=True)
    return repr(numbers_for_moments(found).to_pylist())


def nonsense(block: int) -> Iterator[tuple[int, Type, list[bytes]]]:
    """Yield seeds, and for each a type and cells that are almost its values."""
    for seed in range(block, SEEDS, 4):
        dice = random.Random(seed)
        type_ = random_type(dice)
        yield seed, type_, [spoiled(dice, random_value(dice, type_)) for _ in range(20)]


@pytest.mark.parametrize("block", range(4))
def test_nonsense_is_refused_or_means_the_same_to_both(block: int) -> None:
    for seed, type_, cells in nonsense(block):
        compiled, pure = _decoder(type_, fast.native_decoder, fast.container_decoder), _made(type_, "decode")
        for raw in cells:
            assert shown(outcome(compiled, raw)) == shown(outcome(pure, raw)), f"seed {seed}: {type_} {raw!r}"


@pytest.mark.parametrize("block", range(4))
@pytest.mark.skipif(arrow is None, reason="pip install 'rscylla[spark]'")
@pytest.mark.arrow
def test_nonsense_is_refused_or_the_same_in_arrow(block: int) -> None:
    for seed, type_, cells in nonsense(block):
        sound = [raw for raw in cells if outcome(_made(type_, "decode"), raw) is not ValueError]
        for column in ([None, *sound], *([raw, None] for raw in cells)):
            assert arrays(type_, column, fast.ArrowBuilder) == arrays(type_, column, None), (
                f"seed {seed}: {type_} {column!r}"
            )
