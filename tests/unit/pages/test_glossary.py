"""Tests of the glossary of a page: abbreviations are explained at their first use, and all terms are listed."""

import pytest
from markupsafe import Markup

from sipsched.pages.glossary import Marker, terms


def marked(*texts):
    """Mark the terms in the texts of one page. Return the terms with an explanation, and the terms in its glossary."""
    marker = Marker()
    html = Markup(" ").join(map(marker.words, texts))
    explained = [
        name
        for name in terms()
        if f'<abbr title="{terms()[name].expansion}" tabindex="0">{name}</abbr>' in html
    ]
    assert html.count("<abbr") == len(explained)
    return explained, [name for name, _ in marker.used_terms()]


@pytest.mark.parametrize(
    ("texts", "explained", "listed"),
    [
        (("PDR of the SPS.", "PDR again, at 5 cps."), ["cps", "PDR", "SPS"], None),
        (("K_rcv_mean, sps.cps, PDR-like, UACs",), [], []),
        (("n threads",), [], []),
        (("5 µs, n = 3",), ["n"], None),
        (("K_sockq K_snd T_sip SIP",), ["K_snd", "K_sockq", "SIP", "T_sip"], None),
        (("One window.",), [], ["window"]),
        (("Several blocks of windows.",), [], ["block", "window"]),
    ],
)
def test_the_first_use_of_a_term_is_explained_and_listed(texts, explained, listed):
    assert marked(*texts) == (explained, explained if listed is None else listed)


def test_folded_text_uses_terms_and_explains_none():
    marker = Marker()
    marker.fold(1)
    assert marker.words("PDR") == "PDR"
    marker.fold(-1)
    assert "<abbr" in marker.words("PDR")
    assert [name for name, _ in marker.used_terms()] == ["PDR"]


def test_text_is_escaped():
    assert Marker().words("a < b & PDR").startswith("a &lt; b &amp; <abbr")


def test_every_term_has_one_meaning():
    assert len(terms()) > 50
    assert all(term.meaning and not term.meaning.endswith(".") for term in terms().values())
