"""Files and functions stay short, tests lie where their module lies, unit tests start no process, and a class name
appears once in the tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS, SOURCE, NATIVE = ROOT / "tests", ROOT / "src" / "elasticctr", ROOT / "native"
UNIT = TESTS / "unit"

MOST_LINES = 400  # of a file
MOST_BODY_LINES = 60  # of a function, its signature and docstring aside: a command's signature is the list of its flags
LIMITED = ("src", "native", "tests", "benchmarks", "tools", "examples")
SUFFIXES = (".py", ".sh", ".h", ".cc")

NATIVE_CODE = "tests the native core, which has no Python module for it"
EVERY_COMMAND = "what several commands have in common"
REPOSITORY = "tests the repository itself"
NAMED_OTHERWISE = {
    "unit/cli/test_listeners.py": EVERY_COMMAND,
    "unit/models/test_conformance.py": "what every model promises",
    "unit/serve/kserve/test_clients.py": "Triton's clients, against all of serve/kserve",
    "unit/serve/kserve/test_proto.py": "proto/open_inference.proto",
    "unit/serve/test_shared_layer.py": NATIVE_CODE,
    "unit/test_benchmarks.py": REPOSITORY,
    "unit/test_constraints.py": REPOSITORY,
    "unit/test_hardening.py": NATIVE_CODE,
    "unit/test_hash.py": NATIVE_CODE,
    "unit/test_tree.py": REPOSITORY,
    "unit/train/test_device.py": "`train.device`, through all of a training",
    "process/test_benchmarks.py": REPOSITORY,
    "process/test_layers.py": "imports of many packages",
    "process/test_second_try.py": REPOSITORY,
}

MODULES = ("subprocess", "multiprocessing", "tests.process")
CALLS = ("os.fork", "os.posix_spawn", "os.system", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell")
EXCEPTIONS = {
    "obs/test_environment.py": "makes a git repository",
    "ps/coordinator/test_background_publisher.py": "puts a fake in place of subprocess",
}


def long_functions(source: str) -> Iterator[tuple[str, int]]:
    """Functions over the limit, with the number of lines of their bodies."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            has_docstring = ast.get_docstring(node) is not None and len(node.body) > 1
            lines = (node.body[-1].end_lineno or 0) - node.body[has_docstring].lineno + 1
            if lines > MOST_BODY_LINES:
                yield node.name, lines


def limited_files() -> dict[str, str]:
    paths = (path for folder in LIMITED for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


def test_files_and_functions_are_short() -> None:
    files = limited_files()
    assert len(files) > 500
    long = {path: count for path, text in files.items() if (count := text.count("\n")) > MOST_LINES}
    functions = {
        path: found for path, text in files.items() if path.endswith(".py") and (found := list(long_functions(text)))
    }
    assert long | functions == {}, "split it by topic"


def test_a_long_function_is_seen_and_a_long_signature_is_none() -> None:
    body = "    pass\n" * (MOST_BODY_LINES + 1)
    assert list(long_functions("def long() -> None:\n" + body)) == [("long", MOST_BODY_LINES + 1)]
    signature = "".join(f"    a{i}: int,\n" for i in range(MOST_BODY_LINES))
    assert not list(long_functions(f'def f(\n{signature}) -> None:\n    """Says\n\n    much."""\n    pass\n'))


def mirrors(path: Path) -> bool:
    """Whether a test is named for a module, package or native source of its folder (test_Y.py or test_Y_TOPIC.py), or
    for the folder itself."""
    folder, words = path.parent, path.stem.removeprefix("test_").split("_")
    names = ["_".join(words[:count]) for count in range(len(words), 0, -1)]
    return folder.name == names[0] or any(
        (SOURCE / folder / f"{name}.py").exists()
        or (SOURCE / folder / name).is_dir()
        or (NATIVE / folder / name).is_dir()
        or (folder.parts and (NATIVE / folder / f"{name}.cc").exists())
        for name in names
    )


@pytest.mark.parametrize("kind", ["unit", "process"])
def test_tests_lie_where_their_module_lies(kind: str) -> None:
    tests = {path.relative_to(TESTS / kind) for path in (TESTS / kind).rglob("test_*.py")}
    assert len(tests) > 20
    lost = {f"{kind}/{path.as_posix()}" for path in tests if not mirrors(path)}
    listed = {path for path in NAMED_OTHERWISE if path.startswith(f"{kind}/")}
    assert lost - listed == set(), "name it for the module it tests, test_MODULE.py or test_MODULE_TOPIC.py"
    assert listed - lost == set(), "these mirror a module: take them off the list"


def starts_processes(source: str) -> bool:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [name for name in CALLS if name == ast.unparse(node)]
        else:
            continue
        if any(f"{name}.".startswith(f"{start}.") for name in names for start in (*MODULES, *CALLS)):
            return True
    return False


def test_unit_tests_start_no_process() -> None:
    found = {
        path.relative_to(UNIT).as_posix() for path in UNIT.rglob("*.py") if starts_processes(path.read_text("utf-8"))
    }
    assert found - EXCEPTIONS.keys() == set(), "move what needs a process to tests/process, or list it with its reason"
    assert EXCEPTIONS.keys() - found == set(), "these start no process any more: take them off the list"


def test_every_way_to_start_a_process_is_seen() -> None:
    for line in (
        "import subprocess",
        "from multiprocessing import Pool",
        "from os import fork",
        "import os\nos.fork()",
    ):
        assert starts_processes(line), line
    assert starts_processes("from tests.process.cube.serving import ServerProcess")
    assert not starts_processes("import os\nfrom tests.unit.ps.conftest import World\nos.getpid()")


def defined_twice(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Class names that several of these modules define, with the modules."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(path)
    return {name: paths for name, paths in homes.items() if len(paths) > 1}


def test_a_class_name_is_defined_once() -> None:
    sources = {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    assert len(sources) > 100
    assert defined_twice(sources) == {}, "say what each of them is, in its name"


def test_a_class_name_that_is_defined_twice_is_seen() -> None:
    twice = {"cube.py": "class Client: ...", "serve.py": "class Client(Base):\n    x = 1", "net.py": "class Peer: ..."}
    assert defined_twice(twice) == {"Client": ["cube.py", "serve.py"]}
