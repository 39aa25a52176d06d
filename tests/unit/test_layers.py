"""The rooms of the house and what each may import, as a table, held against the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import rscylla

ROOT = Path(rscylla.__file__).resolve().parents[1]

GROUND = ("rscylla.errors", "rscylla.clock", "rscylla.options", "rscylla.event", "rscylla._timeuuid")
GROUND += ("rscylla.types", "rscylla._retry", "rscylla._tokens", "rscylla._letters")
GROUND += ("rscylla._integers", "rscylla._decoder", "rscylla.abc", "rscylla._visible")

EMBEDDED_GROUND = ("rscylla.embedded.errors", "rscylla.embedded.clock", "rscylla.embedded.versions")
EMBEDDED_TABLES = (*EMBEDDED_GROUND, "rscylla.embedded.types", "rscylla.embedded.schema", "rscylla.embedded.storage")

ALLOWED: dict[str, tuple[str, ...]] = {
    # room: the modules of ours that it may import, by prefix; its own are always allowed
    "rscylla.errors": (),
    "rscylla.clock": ("rscylla.errors",),
    "rscylla.options": ("rscylla.errors", "rscylla._timeuuid"),
    "rscylla.event": ("rscylla.errors", "rscylla._integers", "rscylla._timeuuid"),
    "rscylla._integers": (),
    "rscylla._visible": (),
    "rscylla._timeuuid": ("rscylla.errors",),
    "rscylla._tokens": ("rscylla.errors",),
    "rscylla._decoder": (),
    "rscylla.types": ("rscylla.errors", "rscylla._decoder", "rscylla._integers", "rscylla._timeuuid"),
    "rscylla._retry": ("rscylla.errors", "rscylla.clock"),
    "rscylla._letters": ("rscylla.errors", "rscylla.event", "rscylla._integers"),
    "rscylla.abc": (
        *("rscylla.errors", "rscylla.clock", "rscylla.options", "rscylla.event"),
        *("rscylla._letters", "rscylla._tokens"),
    ),
    "rscylla.driver": GROUND,
    "rscylla.cdc.log": (*GROUND, "rscylla.driver"),
    "rscylla.cdc.rows": (*GROUND, "rscylla.driver", "rscylla.cdc.log"),
    "rscylla.cdc.read": (*GROUND, "rscylla.driver", "rscylla.cdc.log", "rscylla.cdc.rows"),
    "rscylla.cdc.arrow": (*GROUND, "rscylla.driver", "rscylla.cdc.log", "rscylla.cdc.rows", "rscylla.cdc.read"),
    "rscylla.cdc": (*GROUND, "rscylla.driver"),
    "rscylla.doctor": (*GROUND, "rscylla.driver", "rscylla.cdc.log"),
    "rscylla.base": (*GROUND, "rscylla.driver", "rscylla.cdc.log", "rscylla.cdc.rows"),
    "rscylla.replicate": (*GROUND, "rscylla.driver", "rscylla.base", "rscylla.cdc.log", "rscylla.cdc.rows"),
    "rscylla.reflex": GROUND,
    "rscylla.service": (*GROUND, "rscylla.reflex"),
    "rscylla.aio": (*GROUND, "rscylla.reflex"),
    "rscylla.spark": (
        *(*GROUND, "rscylla.driver", "rscylla.cdc", "rscylla.base"),
        *("rscylla.reflex", "rscylla.service", "cursorstore"),
    ),
    "rscylla.debezium": (*GROUND, "rscylla.driver", "rscylla.cdc.log", "rscylla.cdc.rows"),
    "rscylla.publish": (*GROUND, "rscylla.reflex", "rscylla.debezium"),
    "rscylla.eventsourcing": (*GROUND, "rscylla.reflex", "rscylla.publish", "rscylla.base", "cursorstore"),
    "rscylla.kafka": (
        *(*GROUND, "rscylla.driver", "rscylla.cdc", "rscylla.base", "rscylla.reflex", "rscylla.service"),
        *("rscylla.debezium", "rscylla.publish", "cursorstore"),
    ),
    "cursorstore": (*GROUND, "rscylla.driver"),
    "rscylla.embedded.errors": (),
    "rscylla.embedded.clock": (),
    "rscylla.embedded.versions": (),
    "rscylla.embedded.cql": EMBEDDED_GROUND,
    "rscylla.embedded.types": (*EMBEDDED_GROUND, "rscylla.embedded.cql"),
    "rscylla.embedded.result": ("rscylla.embedded.types",),
    "rscylla.embedded.schema": (*EMBEDDED_GROUND, "rscylla.embedded.types"),
    "rscylla.embedded.storage": (*EMBEDDED_GROUND, "rscylla.embedded.types", "rscylla.embedded.schema"),
    "rscylla.embedded.cdclog": EMBEDDED_TABLES,
    "rscylla.embedded.cluster": EMBEDDED_TABLES,
    "rscylla.embedded.system": (
        *EMBEDDED_TABLES,
        "rscylla.embedded.cql",
        "rscylla.embedded.cdclog",
        "rscylla.embedded.cluster",
        "rscylla.embedded.result",
    ),
    "rscylla.embedded.engine": (
        *EMBEDDED_TABLES,
        "rscylla.embedded.cql",
        "rscylla.embedded.cdclog",
        "rscylla.embedded.cluster",
        "rscylla.embedded.system",
        "rscylla.embedded.result",
    ),
    "rscylla.embedded.durability": (*EMBEDDED_TABLES, "rscylla.embedded.engine", "rscylla.embedded.result"),
    "rscylla.embedded.faults": (
        *EMBEDDED_TABLES,
        "rscylla.embedded.cql",
        "rscylla.embedded.cluster",
        "rscylla.embedded.result",
    ),
    "rscylla.embedded.wire": (
        *EMBEDDED_GROUND,
        "rscylla.embedded.result",
        "rscylla.embedded.faults",
        "rscylla.embedded.cluster",
    ),
    "rscylla.embedded.control": (
        *EMBEDDED_GROUND,
        "rscylla.embedded.faults",
        "rscylla.embedded.cluster",
        "rscylla.embedded.wire",
    ),
    "rscylla.embedded": (),
    "rscylla.testing": (*GROUND, "rscylla.embedded.clock"),
    "rscylla.cli": ("rscylla", "cursorstore"),
    "rscylla.__main__": ("rscylla.cli",),
    "rscylla": (*GROUND, "rscylla.driver", "rscylla.cdc", "rscylla.doctor", "rscylla.reflex", "rscylla.service"),
}

# What may be imported of a room from elsewhere, beside the room itself.
SIDE_DOORS = ("rscylla.types.arrow", "rscylla.types.json_arrow", "cursorstore.table")

DOORS: dict[str, tuple[str, ...]] = {
    # library: the modules that may import it
    "cassandra": (
        "rscylla.driver",
        "rscylla.types.registry",
        "rscylla.base.writing",
        "cursorstore.table",
        "rscylla.embedded.facade",
    ),
    "tenacity": ("rscylla._retry",),
    "pybreaker": ("rscylla.reflex.patterns.breaker",),
    "opentelemetry": ("rscylla.reflex.telemetry.tracing",),
    "prometheus_client": ("rscylla.reflex", "rscylla.service", "rscylla.aio", "rscylla.cli", "rscylla.spark"),
    "typer": ("rscylla.cli",),
    "rich": ("rscylla.cli", "rscylla.spark.session.bars"),
    "lark": ("rscylla.embedded",),
    "sortedcontainers": ("rscylla.embedded",),
    "lz4": ("rscylla.embedded",),
    "numpy": ("rscylla.types.arrow", "rscylla.types.json_arrow", "rscylla.cdc.arrow"),
    "pyarrow": (
        *("rscylla.types.arrow", "rscylla.types.json_arrow", "rscylla.cdc.arrow", "rscylla.cdc.arrow_windows"),
        "rscylla.spark",
    ),
    "pyspark": ("rscylla.spark",),
    "confluent_kafka": ("rscylla.kafka", "rscylla.debezium.formats.registry"),
    "fastavro": ("rscylla.debezium",),
    "javaproperties": ("rscylla.kafka",),
    "cryptography": ("rscylla.kafka", "rscylla.eventsourcing.shredding"),
    "cattrs": ("rscylla.eventsourcing.codec", "rscylla.eventsourcing.types"),
}

PURE = (
    "rscylla.cdc.log.walk",
    "rscylla.cdc.log.query",
    "rscylla.cdc.log.routing",
    "rscylla.cdc.rows.grouping",
    "rscylla.cdc.rows.layout",
    "rscylla.cdc.rows.rows",
    "rscylla.cdc.log.lifetimes",
)
PURE += (
    "rscylla.cdc.rows.columns",
    "rscylla.cdc.rows.changes",
    "rscylla.cdc.rows.events",
    "rscylla.cdc.read.slices",
    *(f"rscylla.doctor.{name}" for name in ("finding", "judges", "replicas")),
    "rscylla.reflex.patterns.letters.marks",
    "rscylla.base.queries",
    "rscylla.base.statements",
    "rscylla.base.targets",
    *(
        f"rscylla.debezium.{name}"
        for name in ("direct", "emitter", "java", "names", "outline", "record", "rows", "shape")
    ),
    *("rscylla.debezium.settings", "rscylla.debezium.transforms.transforms"),
    *(f"rscylla.debezium.formats.{name}" for name in ("avro", "converters", "json", "jsonschema")),
    *(
        f"rscylla.types.{name}"
        for name in (
            "arrow",
            "cells",
            "connect",
            "containers",
            "json",
            "json_arrow",
            "natives",
            "registry",
            "text",
            "tree",
        )
    ),
)
WORLDLY = {"logging", "socket", "time", "threading", "subprocess", "os", "io", "random", "asyncio", "selectors"}
# Rooms in which two modules name each other's classes.
CIRCULAR_TYPES = ("rscylla.cdc.rows", "rscylla.kafka.producer", "rscylla.eventsourcing.projections")
HEAVY = ("pyspark", "pyarrow", "confluent_kafka", "typer", "rich", "lark", "pandas", "numpy")
HEAVY += ("opentelemetry", "pybreaker", "fastavro", "javaproperties", "cryptography", "cattrs")


@cache
def modules() -> dict[str, Path]:
    """Return all modules of the product by name."""
    found = {}
    for package in ("rscylla", "cursorstore"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text())


@cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(module)))


@cache
def imports(module: str) -> tuple[tuple[str, bool, bool], ...]:
    """Return what *module* imports: (name, only for type checkers, inside a function)."""
    package = module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]
    return tuple(_walk(tree(module), package, typing=False, inner=False))


def _walk(node: ast.AST, package: str, *, typing: bool, inner: bool) -> Iterator[tuple[str, bool, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, typing, inner) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = package.rsplit(".", child.level - 1)[0] if child.level else ""
            name = ".".join(p for p in (base, child.module) if p)
            yield from ((_target(name, alias.name), typing, inner) for alias in child.names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _walk(child, package, typing=True, inner=inner)
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            within = inner or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _walk(child, package, typing=typing, inner=within)


def _target(module: str, name: str) -> str:
    """Return the module that ``from module import name`` reads: a submodule where *name* is one."""
    full = f"{module}.{name}"
    return full if full in modules() else module


def ours(name: str) -> bool:
    return name.split(".")[0] in ("rscylla", "cursorstore")


@cache
def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


@cache
def exported(room: str) -> frozenset[str]:
    """Return what the face of a room offers, by full names: a function may be called like its module."""
    return frozenset(f"{room}.{name}" for name in public_names(room))


@cache
def public_names(module: str) -> tuple[str, ...]:
    """Return ``__all__`` of *module*."""
    for node in tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return tuple(ast.literal_eval(node.value))
    return ()


@cache
def room_of(module: str) -> str:
    return max((r for r in ALLOWED if within(module, (r,))), key=len)


def test_a_room_imports_only_what_it_may() -> None:
    wrong = []
    for module in modules():
        room = room_of(module)
        if room == "rscylla" and module != "rscylla":
            wrong.append(f"{module} belongs to no room; name it in the table")
        allowed = (*ALLOWED[room], room) if room != "rscylla" else ALLOWED[room]
        names = (name for name, typing, _ in imports(module) if ours(name) and not typing)
        wrong += [f"{module} ({room}) must not import {name}" for name in names if not within(name, allowed)]
    assert not wrong, "\n".join(wrong)


def test_a_room_is_entered_by_its_face() -> None:
    past = []
    for module in modules():
        room = room_of(module)
        entered = {name for name, _, _ in imports(module) if ours(name) and not within(name, SIDE_DOORS)}
        if within(module, ("rscylla.embedded",)):  # a house of its own
            entered = {name for name in entered if not within(name, ("rscylla.embedded",))}
        past += [
            f"{module} ({room}) imports {name} past the face of another room"
            for name in sorted(entered)
            if room_of(name) not in (room, name) and name not in exported(room_of(name))
        ]
    assert not past, "\n".join(past)


def test_libraries_come_in_by_their_doors() -> None:
    wrong = [
        f"{module} is no door to {name}"
        for module in modules()
        for name, typing, _ in imports(module)
        if not typing and not within(module, DOORS.get(name.split(".")[0], ("rscylla", "cursorstore")))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_embedded_server_shares_nothing_and_connects_lazily() -> None:
    for module in modules():
        if not within(module, ("rscylla.embedded",)):
            continue
        for name, typing, inner in imports(module):
            assert not ours(name) or within(name, ("rscylla.embedded",)), f"{module} imports {name}"
            assert name.split(".")[0] != "cassandra" or inner or typing, f"{module} imports {name} before it is needed"


def test_product_code_never_imports_tests() -> None:
    for module in modules():
        names = [name for name, _, _ in imports(module)]
        assert not any(n.split(".")[0] in ("tests", "pytest", "hypothesis", "freezegun") for n in names) or within(
            module, ("rscylla.testing",)
        ), module
        if not within(module, ("rscylla.testing",)):
            assert not any(within(n, ("rscylla.testing",)) for n in names), module


def test_pure_rooms_touch_nothing_outside() -> None:
    for module in PURE:
        touched = {name.split(".")[0] for name, _, _ in imports(module)} & WORLDLY
        assert not touched, f"{module} imports {touched}"


def test_only_one_module_knows_the_bounds_of_the_token_ring() -> None:
    # What else has 64 bits: numbers of CQL, of Java, and of Spark, times without an end, and the hash of keys.
    others = ("rscylla.types", "rscylla.kafka.config", "rscylla.spark", "rscylla.event")
    others += ("rscylla.cdc.log.lifetimes", "rscylla.cdc.log.routing", "rscylla.embedded")
    for module in modules():
        bounds = {ast.unparse(n) for n in nodes(module) if isinstance(n, ast.BinOp)} & {"2 ** 63", "1 << 63", "1 << 64"}
        assert not bounds or within(module, ("rscylla._tokens", *others)), f"{module}: take {bounds} from _tokens"


def test_only_the_clock_reads_time() -> None:
    told = ("time", "datetime")
    for module in modules():
        if module == "rscylla.clock" or within(module, ("rscylla.embedded", "rscylla.cli", "rscylla.testing")):
            continue
        calls = (n.func for n in nodes(module) if isinstance(n, ast.Call))
        for call in calls:
            if not isinstance(call, ast.Attribute) or not isinstance(call.value, ast.Name):
                continue
            reads = call.attr in ("now", "utcnow", "today", "time_ns", "monotonic", "perf_counter", "sleep")
            assert not (call.value.id in told and (reads or call.attr == "time")), f"{module} reads time by itself"


def test_there_are_no_import_cycles() -> None:
    # What is imported for type checkers counts as well: two modules that need each other are one.
    graph = {
        module: {
            name
            for name, typing, inner in imports(module)
            if name in modules() and not inner and not (typing and within(module, CIRCULAR_TYPES))
        }
        - {module}
        for module in modules()
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module in done:
            return
        for other in sorted(graph[module]):
            visit(other, (*path, module))
        done.add(module)

    for module in graph:
        visit(module, ())


def test_importing_rscylla_is_light() -> None:
    # The driver itself takes numpy where it is installed.
    code = "import sys, cassandra.cluster; drivers = set(sys.modules); import rscylla, cursorstore; "
    code += f"print([m for m in {HEAVY!r} if m in sys.modules and m not in drivers])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_public_face_is_sorted_and_complete() -> None:
    names = rscylla.__all__
    assert len(set(names)) == len(names)
    # As ruff sorts them: constants, classes, functions.
    kinds = [(0 if n.isupper() else 1 if n[:1].isupper() else 2, n) for n in names]
    assert kinds == sorted(kinds)
    given = {n for n, value in vars(rscylla).items() if not n.startswith("_") and type(value).__name__ != "module"}
    assert given == set(names)
    for name in names:
        assert getattr(rscylla, name).__doc__ or name.isupper(), f"{name} says nothing of itself"


def test_every_module_says_what_lives_there() -> None:
    assert [module for module in modules() if not ast.get_docstring(tree(module))] == []


def test_exported_names_exist_and_are_sorted() -> None:
    for module in modules():
        names = public_names(module) if not module.rpartition(".")[2].startswith("_") else ()
        assert len(set(names)) == len(names), module
        kinds = [(0 if n.isupper() else 1 if n[:1].isupper() else 2, n) for n in names]
        assert kinds == sorted(kinds), module


def test_what_streams_follow_is_tested_in_their_topology_alone() -> None:
    """Elsewhere, a topology is asked for what follows from it."""
    for module in modules():
        if module != "rscylla.cdc.log.topology" and not module.startswith("rscylla.embedded"):
            compared = (n for n in nodes(module) if isinstance(n, ast.Compare))
            values = [c.value for n in compared for c in ast.walk(n) if isinstance(c, ast.Constant)]
            assert not {"tablets", "vnodes"} & {v for v in values if isinstance(v, str)}, module
