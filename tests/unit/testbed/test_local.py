"""The embedded testbed on a machine that cannot have it: one line that says what is missing and what to do."""

import dataclasses
from typing import Any

import pytest

from sipsched.errors import StableError
from sipsched.testbed import local
from sipsched.testbed.inventory import load_testbed

TESTBED = load_testbed("local")


def test_without_root(monkeypatch: Any) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(StableError, match=r"needs root .* or use a testbed of kind ssh"):
        local.check_machine(TESTBED)


def test_without_linux(monkeypatch: Any) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(StableError, match="needs Linux, this machine runs Darwin"):
        local.check_machine(TESTBED)


def test_without_a_program(monkeypatch: Any) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("shutil.which", lambda name, path=None: None if name == "sshd" else name)
    with pytest.raises(StableError, match=r"program sshd is missing .* run: fab provision"):
        local.check_machine(TESTBED)


def test_without_enough_cpus(monkeypatch: Any) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("shutil.which", lambda name, path=None: name)
    sps = dataclasses.replace(TESTBED.sps, cpus=(4096,))
    with pytest.raises(StableError, match=r"has no CPU \[4096\]"):
        local.check_machine(dataclasses.replace(TESTBED, sps=sps))


def test_link_names_fit_the_kernel() -> None:
    assert all(len(namespace.link) <= 15 for namespace in local.NAMESPACES)
