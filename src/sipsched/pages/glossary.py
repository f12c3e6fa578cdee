"""What the abbreviations of the pages stand for: once for all pages, expanded where a page first uses one."""

import html
import re
from typing import NamedTuple


class Term(NamedTuple):
    """What an abbreviation stands for, and what that is."""

    expansion: str
    meaning: str = ""


TERMS = {
    "A/A": Term("the reference against itself", "what it shows is no effect of any setting"),
    "CFS": Term("Completely Fair Scheduler", "of Linux before 6.6, which the papers used"),
    "cps": Term("calls per second", "calls started; a call is six messages through the proxy"),
    "CV": Term("coefficient of variation", "standard deviation over mean; 1 of random arrivals"),
    "EEVDF": Term("Earliest Eligible Virtual Deadline First", "the scheduler of Linux from 6.6 on"),
    "K_copy": Term("copying time", "from being taken from the socket's queue until recv returns"),
    "K_rcv": Term("receiving time", "from the network driver until the proxy has the message"),
    "K_snd": Term("sending time", "from the proxy's send until the network driver has the message"),
    "K_sockq": Term("queueing time", "in the queue of the proxy's socket"),
    "K_stack": Term("network stack time", "from the network driver to the queue of the socket"),
    "KS": Term("Kolmogorov–Smirnov", "the largest distance between two distributions"),
    "MLRsearch": Term("multiple loss ratio search", "finds the load at a drop rate by trials"),
    "n": Term("number of runs", "or of pairs of runs, behind a number"),
    "p50": Term("median", "half of the messages take no longer"),
    "p99": Term("99th percentile", "one message in a hundred takes longer"),
    "PDR": Term("packet drop rate", "the share of messages that the proxy's full socket refuses"),
    "SIP": Term("Session Initiation Protocol", "which sets up and ends calls; RFC 3261"),
    "SPS": Term("SIP proxy server", "what is measured"),
    "SUT": Term("system under test", "a proxy program as it is configured here"),
    "T_sip": Term("service time", "from having a message until the proxy sends it on"),
    "UAC": Term("user agent client", "the generator that calls"),
    "UAS": Term("user agent server", "the generator that answers"),
}
PLACE = "<!-- glossary -->"
"""Where in a page the glossary goes."""
_TAG = re.compile(r"(<[^>]*>)")
_WORD = re.compile(
    r"(?<![\w/.=-])("
    + "|".join(sorted(map(re.escape, TERMS), key=len, reverse=True))
    + r")(?![\w/=-]|\.\w)"
)
_NOT_IN = frozenset(("a", "abbr", "code", "nav", "pre", "script", "style", "summary", "title"))


def expanded(page: str) -> str:
    """Expand each abbreviation where the page first uses it, and list those that it uses.

    Parameters
    ----------
    page
        HTML. Of its body text is taken that is in no link, code or contents; `PLACE` stands for the list.
    """
    before, body, rest = page.partition("<main>")
    open_tags: list[str] = []
    used: set[str] = set()
    parts = _TAG.split(rest)
    for i, part in enumerate(parts):
        if part.startswith("<"):
            name = re.match(r"</?(\w+)", part)
            if name is None or name[1] not in _NOT_IN:
                continue
            if part.startswith("</"):
                if open_tags and open_tags[-1] == name[1]:
                    open_tags.pop()
            else:
                open_tags.append(name[1])
        elif part.strip() and not open_tags:
            parts[i] = _first_uses(part, used)
    listed = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(_said(TERMS[name]))}.</dd>"
        for name in TERMS
        if name in used
    )
    found = f'<dl class="glossary">{listed}</dl>' if listed else "<p>No abbreviation is used.</p>"
    return before + body + "".join(parts).replace(PLACE, f"<h2>Glossary</h2>{found}")


def _first_uses(text: str, used: set[str]) -> str:
    def mark(match: re.Match[str]) -> str:
        name = match[1]
        if name in used or (name == "n" and not match.string.startswith(" = ", match.end())):
            return match[0]
        used.add(name)
        return f'<abbr title="{html.escape(TERMS[name].expansion)}">{name}</abbr>'

    return _WORD.sub(mark, text)


def _said(term: Term) -> str:
    return ": ".join(filter(None, term))
