"""Tests of pages from synthetic records and from published numbers, in a real browser."""

import json
import re
import time
from dataclasses import replace
from importlib import resources

import page_text
import pytest
import synthetic
from notebook_inputs import (
    NOTEBOOK_FILES,
    NOTEBOOKS,
    WITHOUT_DATA,
    migration_cost,
    parameters_of_nothing,
    written,
)

from sipsched.pages import html, parts, render
from sipsched.records import trace

AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
SENTINELS = re.compile(
    r"\b(nan|NaN|inf|None(?! of))\b|[{}]|all 0 |(below|above) [−+]?9\s999|[−-]inf|0 of the 0"
)
"""Pattern for texts that a page must not contain: unfilled templates, and values that are not numbers."""
PAGES = [name for name in NOTEBOOKS if name not in ("explore", "question")]
"""Notebooks whose pages the workflow makes."""


def parts_of(page, kind):
    """Return the parts of a page that have the type `kind`, in the order of the page."""
    return [part for part in page_text.parts(page) if isinstance(part, kind)]


def check_page(browser, page, path):
    """Open the page in a browser. Fail on errors, network requests, missing figures and overflowing text."""
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    address = path.as_uri()
    browser.get(address)
    time.sleep(0.3)
    unfold = "for (const d of document.querySelectorAll('main details:not(.code)')) d.open = true"
    browser.execute_script(unfold)

    console = [entry["message"] for entry in browser.get_log("browser")]
    assert console == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert {url for url in asked if not url.startswith("data:")} == {address}

    assert browser.title.startswith(page.title)
    figures = [figure.identity for figure in parts_of(page, parts.Figure)]
    assert [identity for identity, *_ in drawn(browser)] == figures
    for identity, width, height, caption in drawn(browser):
        assert width > 100, identity
        assert height > 100, identity
        assert len(caption) > 20, identity
    for table in parts_of(page, parts.Table):
        # a sentence replaces a table without rows
        rows = browser.find_elements(
            "css selector", f"#{table.identity} tbody tr, #{table.identity} p"
        )
        assert rows, table.identity
    check_skeleton(browser)

    for scheme in ("light", "dark"):
        assert findings(browser, scheme) == []
    widths = {}
    # Nothing can scroll on paper. A4 without margins is 186 mm or 703 px wide, and 273 mm or 1032 px in landscape.
    for width, media in ((390, ""), (768, ""), (1200, ""), (1032, "print"), (703, "print")):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})
        if width == 703:
            # broad tables are on landscape pages
            browser.execute_script(
                "for (const t of document.querySelectorAll('.broad')) t.style.display = 'none'"
            )
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        widths[width] = [each for _, each, _, _ in drawn(browser)]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return widths


def drawn(browser):
    """Return the id, width, height and caption of each figure that the reader sees."""
    return browser.execute_script(
        "return [...document.querySelectorAll('figure > svg')].filter(s => s.clientWidth).map(s => ["
        "s.parentNode.id, s.viewBox.baseVal.width, s.viewBox.baseVal.height, "
        "s.parentNode.querySelector('figcaption').textContent])"
    )


def check_skeleton(browser):
    """Check the question, its answer, the links of the contents, and the last sections."""
    assert browser.find_element("tag name", "h1").text.endswith("?")
    answers = browser.find_elements("css selector", "p.answer, .tiles:first-of-type .tile")
    assert answers
    for answer in answers:
        # A tile may end with a link to its evidence.
        links = [link.text for link in answer.find_elements("tag name", "a")]
        sentences = answer.text.removesuffix("".join(links[-1:])).rstrip()
        assert re.fullmatch(r".{20,}[.]", sentences, re.DOTALL), answer.text
    script = (
        "return [...document.querySelectorAll('nav.side a')].map("
        "a => document.getElementById(decodeURIComponent(a.hash.slice(1)))?.tagName)"
    )
    tags = browser.execute_script(script)
    assert len(tags) > 2
    assert set(tags) == {"H2"}
    headings = [element.text for element in browser.find_elements("css selector", "main h2")]
    last = headings[:-1] if headings[-1] == "Runs" else headings
    assert last[-1] == "Glossary" and "Versions" in headings
    terms = [element.text for element in browser.find_elements("css selector", "dl.glossary dt")]
    expanded = [element.text for element in browser.find_elements("css selector", "main abbr")]
    assert len(expanded) == len(set(expanded)) and set(expanded) <= set(terms)
    main = browser.find_element("tag name", "main").text
    # remove the lists of runs, because they contain braces, which otherwise mean an unfilled template
    for run in browser.find_elements("css selector", "details.runs li"):
        main = main.replace(run.text, "")
    assert not SENTINELS.search(main), SENTINELS.search(main)


def findings(browser, scheme):
    """Return the serious accessibility problems that axe-core finds on the page in a colour scheme."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.execute_script(AXE)
    run = (
        "const done = arguments[0];"
        "axe.run(document, {resultTypes: ['violations']}).then(r => done(r.violations.filter("
        "v => ['serious', 'critical'].includes(v.impact)).map("
        "v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 120)).join(' | '))))"
    )
    result = browser.execute_async_script(run)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    return result


@pytest.mark.parametrize("notebook", PAGES)
def test_a_page_works_in_a_browser(notebook, page_of, tmp_path, browser):
    page = page_of(notebook)
    path = tmp_path / "page.html"
    path.write_text(html.document(page), encoding="utf-8")
    assert path.stat().st_size < 4_000_000
    widths = check_page(browser, page, path)
    # on a phone, figures have a separate layout, so they are not wider than on a wide screen
    assert all(phone <= wide for phone, wide in zip(widths[390], widths[1200], strict=True))
    links = browser.find_elements("css selector", "a.download")
    tables = [table for table in parts_of(page, parts.Table) if table.rows]
    assert len(links) == len(tables)
    assert all(link.get_attribute("href").startswith("data:text/csv") for link in links)


def test_the_box_of_the_capacity_page_answers_for_the_readers_load(page_of, tmp_path, browser):
    path = tmp_path / "page.html"
    page = page_of("capacity_model", parameters_of_nothing)
    path.write_text(html.document(page), encoding="utf-8")
    browser.get(path.as_uri())
    box = browser.find_element("id", "load-box-load")
    note = browser.find_element("id", "load-box-note")
    answers = browser.find_elements("css selector", "#load-box td")
    assert note.text == ""
    for load, cores in (("500", "1 core,"), ("6500", "6 cores,"), ("9000", "more than 6 cores")):
        box.clear()
        box.send_keys(load)
        assert answers[0].text.startswith(cores)
        assert note.text == ""
    for load in ("0", "-5", "99999999"):
        box.clear()
        box.send_keys(load)
        assert "out of range" in note.text
        assert {answer.text for answer in answers} == {"–"}


def sweep(folder, **options):
    """Write a study of two loads. `options` has the content of its records."""
    planned = synthetic.repeated((500, 1000), 1)
    summary = synthetic.write_study(folder, planned, lambda run: options)
    runs = folder / "results" / "runs"
    return {"summary": summary, "messages_root": runs, "capacities": []}


def half_measured(folder):
    """Write a study of modes in which one number of cores has no run, and another has one mode."""
    planned = synthetic.modes_plan(cores=(2, 4, 6), threads=(4, 8), cps=(4000, 4400), reps=3)

    def outcome(run):
        absent = run.cores == 4 or (run.cores, run.mode) == (6, "enhanced")
        return None if absent else synthetic.two_modes(run, knee_cps=4200, translated=False)

    return {"summary": written(synthetic.combined(planned, outcome), folder, "modes")}


STATES = {
    "without bpf": ("load_sweep", lambda folder: sweep(folder, mode=trace.ProbeMode.PRELOAD)),
    "drops alone": ("load_sweep", lambda folder: sweep(folder, calls=20, drops=120)),
    "no messages": ("load_sweep", lambda folder: sweep(folder) | {"messages_root": folder / "no"}),
    "half measured": ("modes", half_measured),
    "locked kernel": ("migration_cost", lambda folder: migration_cost(folder, "locked down")),
}


def check_drawn(page):
    """Fail if the page has a placeholder that data should have replaced, or a figure without content."""
    # exclude the names of runs, because they contain braces, which otherwise mean an unfilled template
    text = page_text.text(replace(page, sources=()))
    assert not SENTINELS.search(text), SENTINELS.search(text)
    for figure in parts_of(page, parts.Figure):
        assert figure.wide.startswith("<svg"), figure.identity
        assert "nan" not in figure.wide, figure.identity


@pytest.mark.parametrize("state", STATES)
def test_a_page_of_incomplete_data_has_every_figure(state, tmp_path):
    notebook, inputs = STATES[state]
    path = NOTEBOOK_FILES[notebook]
    check_drawn(render.make_page(path, inputs(tmp_path)))


@pytest.mark.parametrize("notebook", WITHOUT_DATA)
def test_a_page_without_data_has_its_answer(notebook, page_of):
    page = page_of(notebook, parameters_of_nothing)
    check_drawn(page)
    assert parts_of(page, parts.Answer | parts.Tiles)


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ('<link rel="stylesheet" href="http://127.0.0.1:9/x.css">', "console|127"),
        ("<script>console.error('trouble')</script>", "trouble"),
        ("", "figure-x"),
    ],
)
def test_the_check_notices_requests_errors_and_missing_figures(tmp_path, browser, trouble, message):
    path = tmp_path / "page.html"
    icon = '<link rel="icon" href="data:,">'
    path.write_text(f"<!doctype html><title>Which?</title>{icon}{trouble}<main></main>")
    page = parts.Page("Which?", [parts.Figure("figure-x", lambda layout: "", "A caption.")])
    with pytest.raises(AssertionError, match=message):
        check_page(browser, page, path)


def test_the_name_of_a_column_sorts_the_rows_and_is_printed_on_every_page(tmp_path, browser):
    rows = (("a", "817\u00a0µs"), ("b", "1.59\u00a0ms"), ("c", "5\u00a0µs"))
    table = parts.Table("table-x", ("mode", "p99"), rows, "Times.", "none")
    path = tmp_path / "page.html"
    path.write_text(html.document(parts.Page("Which?", [table])), encoding="utf-8")
    browser.get(path.as_uri())
    name = browser.find_elements("css selector", "thead [role=button]")[1]
    for key, order in (("\ue007", "cab"), (" ", "bac")):
        name.send_keys(key)
        names = browser.find_elements("css selector", "tbody th")
        assert "".join(cell.text for cell in names) == order
    # Chrome does not repeat form controls in the head of a table that continues on a further page.
    assert not browser.find_elements("css selector", "thead button, thead input")


def test_a_page_in_a_frame_links_to_no_other_page(page_of, tmp_path, browser):
    """Open a page in a frame, as in a report of Snakemake, which does not contain the other pages."""
    to_pages = "a[href$='.html']"
    (tmp_path / "page.html").write_text(html.document(page_of("published")), encoding="utf-8")
    (tmp_path / "frame.html").write_text("<iframe src='page.html'></iframe>")
    browser.get((tmp_path / "page.html").as_uri())
    assert browser.find_elements("css selector", to_pages)
    browser.get((tmp_path / "frame.html").as_uri())
    browser.switch_to.frame(0)
    assert browser.find_elements("css selector", "main h1")
    assert not browser.find_elements("css selector", to_pages)
    browser.switch_to.default_content()
