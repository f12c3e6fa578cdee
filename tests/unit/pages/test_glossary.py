"""Abbreviations are expanded where a page first uses them, and nowhere else."""

import re

from sipsched.pages.glossary import PLACE, TERMS, expanded


def page(body):
    return f"<title>PDR</title><nav>PDR</nav><main>{body}{PLACE}</main>"


def marked(text):
    return re.findall(r'<abbr title="([^"]+)">([^<]+)</abbr>', text)


def test_the_first_use_is_expanded_and_listed():
    text = expanded(page("<p>PDR of the SPS.</p><p>PDR again, at 5 cps.</p>"))
    assert marked(text) == [(TERMS[name].expansion, name) for name in ("PDR", "SPS", "cps")]
    assert re.findall(r"<dt>(.*?)</dt>", text) == ["cps", "PDR", "SPS"]
    assert text.startswith("<title>PDR</title><nav>PDR</nav>")


def test_code_links_attributes_and_parts_of_words_are_left_alone():
    body = (
        '<a href="PDR">PDR</a><code>PDR</code><pre>SPS</pre><img alt="cps and CV">'
        "<p>K_rcv_mean, sps.cps, PDR-like, UACs</p>"
    )
    text = expanded(page(body))
    assert marked(text) == []
    assert "No abbreviation is used." in text and PLACE not in text


def test_n_is_an_abbreviation_where_it_is_a_count():
    assert marked(expanded(page("<p>n threads</p>"))) == []
    assert marked(expanded(page("<p>5 µs, n = 3</p>"))) == [(TERMS["n"].expansion, "n")]


def test_longer_names_are_not_taken_for_shorter_ones():
    assert [name for _, name in marked(expanded(page("<p>K_sockq K_snd T_sip SIP</p>")))] == [
        *("K_sockq", "K_snd", "T_sip", "SIP")
    ]
