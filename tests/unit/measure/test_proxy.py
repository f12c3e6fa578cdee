"""Proxies: what is rendered for a run, and what their logs give away."""

from pathlib import PurePosixPath

import jinja2
import pytest

from sipsched.errors import StableError
from sipsched.measure import templates
from sipsched.measure.proxy import PROXIES, allocation_failures, find_proxy
from sipsched.plan.config import Sut, load_config
from sipsched.testbed.inventory import load_testbed

CAMPAIGN = load_config()
# Kamailio 5.6.3 with too little shared memory
KAMAILIO_LOG = """\
 5(4242) ERROR: <core> [core/mem/q_malloc.c:297]: qm_find_free(): qm_find_free(0x7f, 4480); Free fragment not found!
 5(4242) ERROR: tm [h_table.c:424]: build_cell(): could not allocate shared memory from shm pool
 5(4242) ERROR: tm [t_lookup.c:1396]: new_t(): out of mem:
"""


@pytest.mark.parametrize("sut", CAMPAIGN.suts.values(), ids=lambda sut: sut.name)
def test_every_sut_has_a_configuration_with_its_workers(sut: Sut) -> None:
    testbed = load_testbed("local")
    text = find_proxy(sut).config_text(sut, testbed, threads=7)
    assert ("children=7\n" in text) or ("udp_workers=7\n" in text)
    assert f"udp:{testbed.sps.sip_address}:{testbed.sps.sip_port}" in text
    assert f"{testbed.uas.sip_address}:{testbed.uas.sip_port}" in text
    assert ("record_route();" in text) == (sut.routing == "stateful")
    assert ("t_relay()" in text) == (sut.routing == "stateful")


@pytest.mark.parametrize("sut", CAMPAIGN.suts.values(), ids=lambda sut: sut.name)
def test_command_names_allocator_and_memory(sut: Sut) -> None:
    folder = PurePosixPath("/w")
    command = find_proxy(sut).command(sut, folder / "proxy.cfg", folder)
    assert command[0] == sut.proxy
    assert command[command.index("-m") + 1] == str(sut.shared_memory_mib)
    assert sut.memory_manager in command
    assert not [word for word in command if "{" in word]


def test_unknown_proxy_names_those_there_are() -> None:
    sut = Sut("x", "asterisk", "stateful", "qm", 64, 8, 65536)
    with pytest.raises(StableError, match=f"'asterisk'; there are: {', '.join(PROXIES)}"):
        find_proxy(sut)


def test_a_value_that_a_template_does_not_get_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        templates.render(
            templates.HARDWARE.joinpath("scenarios/uac.xml.j2").relative_to(templates.HARDWARE)
        )


def test_allocation_failures_in_the_log() -> None:
    assert len(allocation_failures(KAMAILIO_LOG)) == 2
    assert allocation_failures("Listening on\n udp: 198.18.0.1:5060\n") == []
