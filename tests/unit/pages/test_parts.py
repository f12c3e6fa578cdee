import base64
import csv
import io
import re

import numpy as np
import pytest
from bs4 import BeautifulSoup

from sipsched.analysis.intervals import Interval, typical_interval
from sipsched.pages.drawing import LIMIT, themed, titled
from sipsched.pages.html import document
from sipsched.pages.numbers import Number, told
from sipsched.pages.parts import Figure, Page, Section, Table, Title, Words
from sipsched.pages.theme import THEME


def table(header, rows, **options):
    return Table("table-x", header, rows, "c", "none of it", "p", **options)


def csv_link(page):
    (link,) = re.findall(r'<a class="download" download="([^"]+)" href="([^"]+)">', page)
    kind, data = link[1].split(";base64,")
    assert kind == "data:text/csv;charset=utf-8"
    text = base64.b64decode(data).decode("utf-8-sig")
    return link[0], list(csv.reader(text.splitlines()))


def test_a_table_is_downloadable_without_network():
    result = table(
        ("load (cps)", "mean (µs)", 'p99, "worst"'),
        (("1\u202f000", "12\u00a0±\u00a03", "−1,5"),),
        groups=(("", 1), ("K_rcv", 2)),
    )
    name, lines = csv_link(result._repr_html_())
    assert name == "table-x.csv"
    assert lines == [
        ["load (cps)", "K_rcv: mean (µs)", 'K_rcv: p99, "worst"'],
        ["1000", "12 ± 3", "-1,5"],
    ]


def test_a_csv_has_a_number_its_interval_and_its_unit_in_columns_of_their_own():
    five = typical_interval([1000, 1100, 1200, 1300, 1400])
    rows = (
        ("1400", told(five, "µs", 5), Number(five, "%", p_value=0.25)),
        ("1500", told(Interval.without(7.0, 1), "µs"), "not seen by the probe"),
    )
    _, lines = csv_link(table(("cps", "mean", "lower by (%)"), rows)._repr_html_())
    assert lines[0] == [
        *("cps", "mean: estimate", "mean: low", "mean: high", "mean: n", "mean: unit"),
        *("lower by", "lower by: estimate", "lower by: low", "lower by: high", "lower by: n"),
        *("lower by: unit", "lower by: p"),
    ]
    one, other = (dict(zip(lines[0], line, strict=True)) for line in lines[1:])
    assert (one["mean: unit"], one["mean: n"], one["lower by: p"]) == ("µs", "5", "0.25")
    assert float(one["mean: low"]) < float(one["mean: estimate"]) < float(one["mean: high"])
    assert (other["mean: estimate"], other["mean: low"], other["mean: n"]) == ("7", "", "1")
    assert (other["lower by"], other["lower by: estimate"]) == ("not seen by the probe", "")


def test_a_long_table_is_whole_in_its_csv():
    page = table(("n", "m"), (("1", "a"), ("2", "b"), ("3", "c")), shown=2)._repr_html_()
    assert ">b</td>" in page and ">c</td>" not in page
    assert "1 more row." in page
    assert csv_link(page)[1] == [["n", "m"], ["1", "a"], ["2", "b"], ["3", "c"]]


def test_empty_columns_and_rows_are_not_shown():
    rows = (("1400", "5", "–", ""), ("–", "", "–", ""), ("1500", "–", "–", ""))
    page = table(
        ("cps", "measured", "published", "difference"), rows, groups=(("", 1), ("who", 3))
    )._repr_html_()
    assert "published" not in page.partition("<thead>")[2]
    assert '<th scope="colgroup" colspan="1"><span>who</span></th>' in page
    assert page.count('<th scope="row"') == 2
    # the CSV file has all rows, including rows that the page does not show
    assert len(csv_link(page)[1]) == 4


def test_rows_of_one_group_are_shown_under_its_name():
    rows = (
        *(("kamailio", "fifo", "1", "8", load, "x") for load in ("1400", "1500")),
        ("kamailio", "rr", "2", "1", "1400", "y"),
    )
    page = table(("SUT", "mode", "cores", "threads", "cps", "PDR"), rows, places=4)._repr_html_()
    assert re.findall(r'scope="rowgroup" colspan="2"><span>(.*?)</span>', page) == [
        "kamailio, mode fifo, 1 core, 8 threads",
        "kamailio, mode rr, 2 cores, 1 thread",
    ]
    assert page.count("kamailio") == 2
    assert len(csv_link(page)[1][0]) == 6


def test_an_empty_table_is_a_sentence_without_a_csv():
    page = table(("n",), ())._repr_html_()
    assert "none of it" in page and "<table" not in page and "download" not in page


def test_a_table_that_scrolls_is_reached_by_keyboard_and_named():
    page = table(("n",), (("1",),))._repr_html_()
    assert 'tabindex="0" role="region" aria-labelledby="table-x-caption"' in page
    assert 'id="table-x-caption"' in page


def test_numbers_do_not_break_across_lines_and_words_do():
    known = Number(typical_interval([1.0, 2.0, 3.0, 4.0, 5.0]), "%")
    why = Number(
        Interval.without(np.nan, 0, why="no capacity of one core lies between the loads"), "%"
    )
    shown = table(("a", "b", "c"), (("x", known, why),))._repr_html_()
    assert f'<td class="number" data-sort="">{why}</td>' in shown
    assert '<td class="number" data-sort="2.82843"><span>2.8</span> <span>(' in shown


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-x", "'-x"),
        ("−x", "'-x"),
        ("\t=1", "'\t=1"),
        ("−1\u202f000.5", "-1000.5"),
        ("+3\u00a0%", "+3 %"),
        ("-2e-06", "-2e-06"),
        ("kamailio-udp", "kamailio-udp"),
    ],
)
def test_a_cell_of_a_csv_is_never_a_formula(text: str, written: str) -> None:
    text_of_file = table(("a",), ((text,),)).to_csv()
    assert list(csv.reader(io.StringIO(text_of_file)))[1] == [written]


def figure():
    """Draw three points with titles, and a line without titles."""

    def draw(layout):
        canvas, grid = layout.panels(1, 1, 2.0)
        (points,) = grid[0, 0].plot([1, 2, 3], [1, 4, 9], "o-")
        titled(points, ["one", "four & more", "nine"])
        grid[0, 0].plot([1, 3], [2, 2], color=LIMIT)
        return themed(canvas)

    return Figure("figure-x", draw, "A caption.", ("A value.",), "How the marks are read.")


def test_points_of_a_figure_have_titles_and_its_colours_follow_the_reader():
    for form, svg in (("wide", figure().wide), ("narrow", figure().narrow)):
        tree = BeautifulSoup(svg, "html.parser")
        assert tree.svg["class"] == [form]
        titles = tree.select("use.point > title")
        assert [title.text for title in titles] == ["one", "four & more", "nine"]
        assert "var(--limit)" in svg
        assert not any(marker in svg for marker in THEME)


def test_the_two_layouts_of_a_figure_share_no_id():
    wide, narrow = (
        set(re.findall(r'id="([^"]+)"', svg)) for svg in (figure().wide, figure().narrow)
    )
    assert wide and narrow and not wide & narrow


def test_a_page_has_contents_a_glossary_and_folded_explanations():
    section = Section("Loads & drops", "Expected: *nothing*.", (figure(), Words(("A PDR.",))))
    text = document(Page("A question?", (Title("A question?"), section), "index.html", ("x = 1",)))
    tree = BeautifulSoup(text, "html.parser")
    assert [a.get("href") for a in tree.find_all("a")] == [
        "#content",
        "index.html",
        "#loads-drops",
        "#glossary",
    ]
    assert [e.text for e in tree.find_all("summary")] == [
        "What to expect",
        "How to read this",
        "The code that made this page",
    ]
    assert [e.text for e in tree.find_all("dt")] == ["PDR"]
    assert len(tree.find_all("svg")) == 2


def test_cells_of_a_table_with_long_texts_name_their_columns_for_a_phone():
    prose = "a sentence that is much longer than the sixty characters of one line"
    groups = (("", 1), ("K_rcv", 2))
    page = BeautifulSoup(
        table(("mode", "p99 < 1", "risk"), (("fifo", "3", prose),), groups=groups)._repr_html_(),
        "html.parser",
    )
    (shown,) = page.select("table.prose")
    cells = [(cell.text, cell.get("data-label")) for cell in shown.select("tbody th, tbody td")]
    assert cells == [("fifo", "mode"), ("3", "K_rcv: p99 < 1"), (prose, "K_rcv: risk")]
    short = BeautifulSoup(table(("mode", "risk"), (("fifo", "none"),))._repr_html_(), "html.parser")
    assert not short.select("table.prose, [data-label]")


def test_times_are_sorted_as_numbers_whatever_their_unit():
    times = table(("load", "p99"), (("a", "817\u00a0µs"), ("b", "1.59\u00a0ms"), ("c", "2\u00a0s")))
    assert times.numeric == {1}
    page = BeautifulSoup(times._repr_html_(), "html.parser")
    keys = [float(cell["data-sort"]) for cell in page.select("tbody td.number")]
    assert keys == [817, 1590, 2_000_000]
    assert BeautifulSoup(
        table(("a", "b"), (("x", "24\u00a0%"),))._repr_html_(), "html.parser"
    ).select('td[data-sort="24"]')


def test_a_table_is_broad_if_its_lines_need_much_room_and_not_if_it_has_many_columns():
    many = table(tuple(f"c{i}" for i in range(20)), (("1",) * 20,))
    assert not many.is_broad
    interval = told(Interval(131.2, 108.1, 157.3, 5), "µs")
    lines = table(tuple(f"c{i}" for i in range(10)), (("a", *(interval,) * 9),))
    assert not lines.is_broad
    more = table(tuple(f"c{i}" for i in range(20)), (("a", *(interval,) * 19),))
    assert more.is_broad
    assert BeautifulSoup(more._repr_html_(), "html.parser").select("figure.broad")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("used 2.6% of it", "used 2.6\u00a0% of it"),
        ("24 % and 5 µs", "24\u00a0% and 5\u00a0µs"),
        ("CPUQuota=50% is set", "CPUQuota=50% is set"),
        ("threads=8 cps=200 and 5 steps", "threads=8 cps=200 and 5 steps"),
    ],
)
def test_a_number_stays_beside_its_unit(text, shown):
    page = BeautifulSoup(Words((text,))._repr_html_(), "html.parser")
    assert page.li.text == shown


def test_text_in_backticks_is_code_that_can_be_copied():
    page = Words(("Run `sleep 5 s && kill -9 1` for 5 s, or for a`b.",))._repr_html_()
    assert "<code>sleep 5 s &amp;&amp; kill -9 1</code> for 5\u00a0s, or for a`b." in page


def test_a_long_name_breaks_after_a_separator_and_not_at_the_hyphen_of_a_number():
    names = "default+threads=2,slice-1ms results/a1/summary.nc 3/5 real-time"
    shown = BeautifulSoup(Words((names,))._repr_html_(), "html.parser").li
    assert shown.text == names
    assert [whole.text for whole in shown.select(".whole")] == ["slice-1ms"]
    pieces = shown.decode_contents().split("<wbr/>")
    assert [BeautifulSoup(piece, "html.parser").text for piece in pieces] == [
        "default+",
        "threads=2,",
        "slice-1ms results/",
        "a1/",
        "summary.nc 3/5 real-time",
    ]
