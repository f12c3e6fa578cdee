"""Files of a host, told apart again after one command has printed them all."""

from sipsched.measure.hoststate import split_sections
from sipsched.measure.serving import _receive_buffer

SS = """\
UNCONN 0      0      198.18.0.1:5060 0.0.0.0:* users:(("kamailio",pid=13471,fd=4))
\t skmem:(r0,rb524288,t0,tb212992,f0,w0,o0,bl0,d0)
"""


def test_sections() -> None:
    text = "==> /proc/a <==\none\ntwo\n==> /proc/empty <==\n==> /proc/b <==\nthree\n"
    assert split_sections(text) == {
        "/proc/a": "one\ntwo\n",
        "/proc/empty": "",
        "/proc/b": "three\n",
    }


def test_no_text() -> None:
    assert split_sections("") == {}


def test_effective_receive_buffer_from_ss() -> None:
    assert _receive_buffer(SS) == 524288
    assert _receive_buffer("") is None
