"""Tests of the commands for a proxy whose UDP sockets share one port."""

from dataclasses import replace
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from sipsched.measure.counting import ReportingProgram
from sipsched.measure.shards import Shards
from sipsched.plan.config import load_config
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import load_testbed, native_folder


@pytest.mark.parametrize(("deployment", "sockets"), [("sockets", 3), ("partitioned", 1)])
def test_each_instance_has_the_variables_of_its_own_port(deployment: str, sockets: int) -> None:
    spec, base = load_testbed("local").sps, PurePosixPath("/w")
    sut = load_config().sut(f"kamailio-udp-{deployment}")
    library = f"{native_folder(base, 'dispatcher')}/libsipshard.so"
    for instance, port in ((0, spec.sip_port), (2, spec.sip_port + 2)):
        shards = Shards(Host(spec, base), sut, 3, 1.0, instance=instance)
        assert shards.preloading(["kamailio", "-DD"], {}) == [
            *("env", f"LD_PRELOAD={library}", f"SIPSHARD_PORT={port}"),
            *(f"SIPSHARD_SOCKETS={sockets}", "kamailio", "-DD"),
        ]
        # The probe can need a library, too.
        command = shards.preloading(["kamailio"], {"LD_PRELOAD": "/w/libsipstamp.so", "A": "1"})
        assert command[1] == f"LD_PRELOAD=/w/libsipstamp.so:{library}"


@pytest.mark.parametrize("shard_by", ["call-id", "user"])
def test_sipshard_gets_the_key_of_the_sut(
    monkeypatch: pytest.MonkeyPatch, shard_by: Literal["call-id", "user"]
) -> None:
    started: list[str] = []
    monkeypatch.setattr(Host, "shell", lambda *_: SimpleNamespace(stdout="7\n8\n"))
    monkeypatch.setattr(ReportingProgram, "start", lambda _, options: started.extend(options))
    spec = load_testbed("local").sps
    sut = replace(load_config().sut("kamailio-udp-partitioned"), shard_by=shard_by)
    proxy: Any = SimpleNamespace(pid_file="/w/pid")
    Shards(Host(spec, PurePosixPath("/w")), sut, 2, 1.0).attach(proxy, "kamailio")
    ports = ("--port", str(spec.sip_port), "--sockets", "2")
    assert started == [*ports, "--key", shard_by, "7", "8"]
