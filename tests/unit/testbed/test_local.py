"""Tests of the embedded testbed on machines that do not support it."""

import dataclasses
from typing import Any

import pytest

from sipsched.errors import StableError
from sipsched.testbed import local
from sipsched.testbed.inventory import load_testbed
from sipsched.testbed.namespaces import LINK_NETS

TESTBED = load_testbed("local")
NO_SUCH_CPU = dataclasses.replace(TESTBED, sps=dataclasses.replace(TESTBED.sps, cpus=(4096,)))


@pytest.mark.parametrize(
    ("system", "uid", "missing", "testbed", "message"),
    [
        ("Linux", 1000, "", TESTBED, r"needs root .* or use a testbed of kind ssh"),
        ("Darwin", 0, "", TESTBED, "needs Linux, this machine runs Darwin"),
        ("Linux", 0, "sshd", TESTBED, r"program sshd is missing .* run: fab provision"),
        ("Linux", 0, "", NO_SUCH_CPU, r"has no CPU \[4096\]"),
    ],
)
def test_a_machine_that_cannot_measure_is_refused_with_the_remedy(
    monkeypatch: Any, system: str, uid: int, missing: str, testbed: Any, message: str
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setattr("shutil.which", lambda name, path=None: None if name == missing else name)
    with pytest.raises(StableError, match=message):
        local.check_machine(testbed)


def test_link_names_fit_the_kernel() -> None:
    assert all(len(namespace.link) <= 15 for namespace in local.NAMESPACES)


def test_the_front_end_has_a_namespace_and_the_cpus_of_the_generators() -> None:
    bed = load_testbed("local-front")
    assert TESTBED.front is None
    assert bed.front is not None
    namespaces = {namespace.role: namespace.management for namespace in local.NAMESPACES}
    assert {spec.role: spec.address for spec in bed.hosts} == namespaces
    assert bed.front.sip_address == f"{LINK_NETS['front']}.2"
    assert set(bed.front.cpus) == {*bed.uac.cpus, *bed.uas.cpus}
    # all other properties are the same as on the testbed `local`
    assert dataclasses.replace(bed, name="local", front=None) == TESTBED
