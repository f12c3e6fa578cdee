import base64
import csv
import re

from sipsched.pages.parts import Table


def csv_link(page):
    (link,) = re.findall(r'<a class="download" download="([^"]+)" href="([^"]+)">', page)
    kind, data = link[1].split(";base64,")
    assert kind == "data:text/csv;charset=utf-8"
    text = base64.b64decode(data).decode("utf-8-sig")
    return link[0], list(csv.reader(text.splitlines()))


def test_a_table_is_downloadable_without_network():
    table = Table(
        identity="table-x",
        header=("load (cps)", "mean (µs)", 'p99, "worst"'),
        rows=(("1\u202f000", "12\u00a0±\u00a03", "−1,5"),),
        caption="c",
        provenance="p",
        none="none",
        groups=(("", 1), ("K_rcv", 2)),
    )
    name, lines = csv_link(table._repr_html_())
    assert name == "table-x.csv"
    assert lines == [
        ["load (cps)", "K_rcv: mean (µs)", 'K_rcv: p99, "worst"'],
        ["1000", "12 ± 3", "-1,5"],
    ]


def test_a_long_table_is_whole_in_its_csv():
    table = Table("table-x", ("n",), (("1",), ("2",), ("3",)), "c", "p", "none", shown=2)
    page = table._repr_html_()
    assert "<td>2</td>" in page and "<td>3</td>" not in page
    assert "and 1 more" in page
    assert csv_link(page)[1] == [["n"], ["1"], ["2"], ["3"]]
