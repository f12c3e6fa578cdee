"""Tests of the command that starts a proxy whose UDP sockets share one port."""

from pathlib import PurePosixPath

import pytest

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
