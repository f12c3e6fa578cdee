"""Test that every shell script in the code is a constant text, to which values are passed only as arguments."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sipsched.errors import StableError
from sipsched.measure import running_proxy, switching, unread
from sipsched.measure.restoring import undo_script
from sipsched.paths import PROJECT_ROOT
from sipsched.testbed import groups, places
from sipsched.testbed.connection import remote_command, shown
from sipsched.testbed.inventory import load_testbed

FOLDERS = ("src", "benchmarks", "workflow", "tests/live")
SOURCES = [
    PROJECT_ROOT / "fabfile.py",
    *sorted(path for folder in FOLDERS for path in (PROJECT_ROOT / folder).rglob("*.py")),
]
TAKE_SCRIPTS = {"shell", "wait_until"}
"""Names of methods whose first argument is shell text."""
CONNECTION, HOST, MACHINE, PROVISION = (
    PROJECT_ROOT / "src/sipsched/testbed" / name
    for name in ("connection.py", "host.py", "machine.py", "provision.py")
)


def named(node: ast.expr, known: set[str]) -> bool:
    """Return whether an expression names a constant text of its module or of the modules with scripts for hosts."""
    if isinstance(node, ast.Name):
        return node.id in known
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        modules = {
            "places": places,
            "groups": groups,
            "running_proxy": running_proxy,
            "switching": switching,
            "unread": unread,
        }
        module = modules.get(node.value.id)
        path = module and module.__file__
        return path is not None and node.attr in literals(ast.parse(Path(path).read_text()))
    return False


def literals(tree: ast.Module) -> set[str]:
    """Return the names to which only literal texts are assigned."""
    given: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    given.setdefault(target.id, []).append(node.value)
    return {name for name, values in given.items() if all(map(is_text, values))}


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def scripts(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield each expression in a module that becomes shell text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            if name in TAKE_SCRIPTS:
                yield node.args[0]
            assert ast.unparse(node.func) not in ("os.system", "os.popen", "subprocess.getoutput")
            assert not any(keyword.arg == "shell" for keyword in node.keywords), ast.unparse(node)
        if isinstance(node, ast.List | ast.Tuple):
            words = [e.value if isinstance(e, ast.Constant) else None for e in node.elts]
            for i, word in enumerate(words[:-2]):
                if word in ("sh", "bash") and words[i + 1] == "-c":
                    yield node.elts[i + 2]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PROJECT_ROOT)))
def test_every_shell_text_is_a_literal(path: Path) -> None:
    tree = ast.parse(path.read_text())
    known = literals(tree)
    # in the modules of hosts, functions pass on scripts that are constant texts of their callers
    handed_on = {"script", "loop"} if path in (CONNECTION, HOST, MACHINE, PROVISION) else set()
    for script in scripts(tree):
        assert is_text(script) or named(script, known | handed_on), (
            f"{path}:{script.lineno}: {ast.unparse(script)}"
        )


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if path != CONNECTION], ids=lambda path: path.name
)
def test_only_the_connection_executes_commands(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {getattr(node, "attr", None) for node in ast.walk(tree)}
    assert not names & {"exec_command", "_connection"}


def test_values_of_a_command_are_quoted(tmp_path: Path) -> None:
    hostile = f"a b'\"$(touch {tmp_path}/pwned)`touch {tmp_path}/pwned`;touch {tmp_path}/pwned\n"
    text = remote_command(["printf", "%s.", hostile])
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == f"{hostile}."
    assert list(tmp_path.iterdir()) == []


def test_settings_of_a_host_are_quoted_in_the_undo_script(tmp_path: Path) -> None:
    setting = tmp_path / "it's a $(setting)"
    before = f"it's $(touch {tmp_path}/pwned)"
    setting.write_text("changed")
    script = undo_script({str(setting): before}, [], [])
    subprocess.run(["sh", "-c", script], check=True)
    assert setting.read_text() == before
    assert list(tmp_path.iterdir()) == [setting]


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("workdir: {}", "/var/lib/$(touch pwned)"),
        ("workdir: {}", "/var/lib/a b"),
        ("workdir: {}", "/var/lib/../sipsched"),
        ("workdir: {}", "/var/lib/-rf"),
        ("workdir: {}", '"/var/lib/sipsched\\n"'),
        ("    address: {}", "-oProxyCommand=sh"),
        ("    address: {}", "host;id"),
        ("    user: {}", "root $(id)"),
        ("    user: {}", "-l"),
        ("  receive_interfaces: [{}]\n  receive_cpus: [0]", "eth0/../../x"),
        ("  receive_interfaces: [{}]\n  receive_cpus: [0]", '"eth[0]*"'),
        ("  receive_interfaces: [{}]\n  receive_cpus: [0]", "a-name-longer-than-15"),
    ],
)
def test_a_testbed_file_with_shell_in_it_is_refused(where: str, value: str, tmp_path: Path) -> None:
    lines = (PROJECT_ROOT / "hardware/testbeds/local.yaml").read_text().splitlines()
    key = where.split(":")[0]
    kept = [line for line in lines if not line.startswith(f"{key}:")]
    at = next((i for i, line in enumerate(lines) if line.startswith(f"{key}:")), len(kept))
    kept.insert(at, where.format(value))
    if key.strip() in ("address", "user"):
        # the value of one host is enough
        others = [line for line in lines if line.startswith(f"{key}:")][1:]
        text = "\n".join(lines).replace(others[0], where.format(value), 1)
    else:
        text = "\n".join(kept)
    (tmp_path / "local.yaml").write_text(text + "\n")
    with pytest.raises(StableError) as refused:
        load_testbed("local", tmp_path)
    assert "\n" not in str(refused.value).rstrip("\n")


def test_a_command_is_shown_in_one_line() -> None:
    line = shown(["sh", "-c", "first\nsecond\n", "sh", "/a b"])
    assert line == "sh -c 'first ...' sh '/a b'"
