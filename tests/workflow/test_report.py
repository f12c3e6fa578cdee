"""From synthetic records, and from published numbers, to a page, opened in a real browser."""

import dataclasses
import json
import re
import time
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import synthetic
from synthetic import Run

from sipsched.analysis import papers
from sipsched.pages import render as pages
from sipsched.plan.config import Point
from sipsched.records import summary, trace, windows
from sipsched.records.fitted import Fitted
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.prediction import (
    UNITS,
    CapacityPrediction,
    Carried,
    Predicted,
    Predictions,
    Setting,
    write_capacity,
    write_predictions,
)
from sipsched.records.speedups import Speedup, write_speedups

AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
SENTINELS = re.compile(
    r"\b(nan|NaN|inf|None(?! of))\b|[{}]|all 0 |(below|above) [−+]?9\s999|[−-]inf|0 of the 0"
)
"""What a template that nothing filled in, and a number that is none, look like."""
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NOTEBOOK = NOTEBOOKS / "load_sweep.ipynb"
FIGURES = (
    "figure-pdr",
    "figure-threads",
    "figure-k-rcv",
    "figure-t-sip",
    "figure-k-rcv-parts",
    "figure-distributions",
    "figure-load",
)
TABLES = (
    "table-points",
    "table-arrivals",
    "table-attempts",
    "table-runs-not-counted",
    "table-columns-missing",
    "table-hosts",
)
PREDICTED_FIGURES = ("figure-directions", "figure-predicted", "figure-ablation")
PREDICTED_TABLES = (
    *("table-errors", "table-free", "table-numbers", "table-directions"),
    *("table-costs", "table-ablation", "table-grid"),
)
PUBLISHED_FIGURES = ("figure-crossing", "figure-capacity")
PUBLISHED_TABLES = (
    "table-loads-at-limit",
    "table-capacity",
    "table-audit",
    "table-disagreements",
    "table-errors-not-shown",
    *(f"table-multicore-{table}" for table in papers.TABLES),
    *(f"table-singlecore-{table}" for table in ("I", "II", "III")),
)
MODES_FIGURES = (
    "figure-lower",
    "figure-load-kamailio-udp-1",
    "figure-crossings",
    "figure-parts-kamailio-udp-1",
    "figure-types-kamailio-udp-1",
)
MODES_TABLES = (
    "table-settings",
    "table-crossings",
    "table-comparison-kamailio-udp-1",
    "table-both-loads",
    "table-measurements-kamailio-udp-1-baseline",
    "table-measurements-kamailio-udp-1-enhanced",
    "table-parts",
    "table-types",
    "table-arrivals",
    "table-accounts",
    "table-attempts",
    "table-runs-not-counted",
    "table-columns-missing",
    "table-hosts",
)
CROSSOVER_FIGURES = (
    "figure-effects-kamailio-udp-1-8",
    "figure-shares-kamailio-udp-1-8",
    "figure-bounds-kamailio-udp-1-8",
    "figure-since-switch",
)
CROSSOVER_TABLES = (
    "table-ranking-kamailio-udp-1-8-400",
    "table-how",
    "table-bounds-kamailio-udp-1-8",
    "table-estimates",
    "table-washouts",
    "table-windows",
    "table-switches",
    "table-arrivals",
    "table-hosts",
)
CAPACITY_FIGURES = ("figure-plan", "figure-cores", "figure-queues")
CAPACITY_TABLES = (
    "table-plan",
    "table-rule",
    "table-laws",
    "table-left-out",
    "table-queues",
    "table-published-queues",
    "table-simulated-capacity",
    "table-settings",
    "table-simulated-speedups",
)
TESTBED_TABLES = (
    "table-runs-not-there",
    "table-reasons",
    "table-certificates",
    "table-hosts",
)


def campaign(loads=(500, 1500, 2500), repetitions=3):
    return [
        synthetic.Run(cps=cps, threads=threads, rep=rep)
        for cps in loads
        for threads in (2, 8)
        for rep in range(1, repetitions + 1)
    ]


def build(folder, planned, measured, invalid=(), **options):
    """Write records of `measured`, parse, summarise and combine them; return the summary's path."""
    paths = []
    for run in measured:
        drops = 90 * run.rep if run.cps > 2000 else 0
        settings = {"calls": 150, "drops": drops, "resent": 10, "valid": run not in invalid}
        record = synthetic.write_record(folder / "raw", run, **(settings | options))
        messages = folder / "runs" / run.path / "messages.nc"
        write_messages(messages_from_record(record), messages)
        paths.append(messages.with_name("summary.nc.zst"))
        summary.write(summary.summarise_run(messages, record), paths[-1])
    combined = folder / "summary.nc"
    summary.write(summary.combine(paths, planned), combined)
    return combined


def render(folder, combined):
    page = folder / "reports" / "load_sweep-synthetic.html"
    parameters = {"summary": combined, "messages_root": folder / "runs", "study": "load_sweep"}
    pages.render(NOTEBOOK, page, parameters)
    return page


def check_page(browser, page, figures=FIGURES, tables=TABLES, title="How much load"):
    """Open the page as a reader would; fail on errors, requests, missing pictures, overflow."""
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    address = page.as_uri()
    browser.get(address)
    time.sleep(0.3)

    console = [entry["message"] for entry in browser.get_log("browser")]
    assert console == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert {url for url in asked if not url.startswith("data:")} == {address}

    images = browser.execute_script(
        "return [...document.images].map("
        "i => [i.id, i.complete, i.naturalWidth, i.naturalHeight, i.alt])"
    )
    assert [image[0] for image in images] == list(figures)
    for identity, complete, width, height, alt in images:
        assert complete, identity
        assert width > 100, identity
        assert height > 100, identity
        assert len(alt) > 40, identity
    captions = "return [...document.querySelectorAll('figcaption')].map(c => c.textContent)"
    for caption in browser.execute_script(captions):
        # a template that nothing filled in
        assert "{" not in caption, caption
    for identity in tables:
        # a table without rows is a sentence
        rows = "return document.querySelectorAll(arguments[0]).length"
        assert browser.execute_script(rows, f"#{identity} tbody tr, #{identity} p") > 0, identity
    check_skeleton(browser)
    assert browser.title.startswith(title)

    for scheme in ("light", "dark"):
        assert findings(browser, scheme) == []
    for width in (390, 768, 1200):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    # On paper nothing scrolls: A4 less its margins is 186 mm, 703 px wide.
    metrics = {"width": 703, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 703
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return browser.find_element("tag name", "main").text


def check_skeleton(browser):
    """A question, its answer, contents that lead somewhere, conditions and glossary at the end."""
    assert browser.find_element("tag name", "h1").text.endswith("?")
    answers = browser.find_elements("css selector", "p.answer")
    assert len(answers) == 1
    assert re.fullmatch(r".{20,}[.]", answers[0].text, re.DOTALL)
    script = (
        "return [...document.querySelectorAll('nav.side a')].map("
        "a => document.getElementById(decodeURIComponent(a.hash.slice(1)))?.tagName)"
    )
    tags = browser.execute_script(script)
    assert len(tags) > 2
    assert set(tags) == {"H2"}
    headings = [each.text for each in browser.find_elements("css selector", "main h2")]
    assert headings[-1] == "Glossary" and "Versions" in headings
    terms = [each.text for each in browser.find_elements("css selector", "dl.glossary dt")]
    expanded = [each.text for each in browser.find_elements("css selector", "main abbr[title]")]
    assert len(expanded) == len(set(expanded)) and set(expanded) <= set(terms)
    main = browser.find_element("tag name", "main").text
    assert not SENTINELS.search(main), SENTINELS.search(main)


def findings(browser, scheme):
    """Give what axe-core finds to be serious or worse, in a colour scheme."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.execute_script(AXE)
    run = (
        "const done = arguments[0];"
        "axe.run(document, {resultTypes: ['violations']}).then(r => done(r.violations.filter("
        "v => ['serious', 'critical'].includes(v.impact)).map("
        "v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 120)).join(' | '))))"
    )
    found = browser.execute_async_script(run)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    return found


def test_report_of_a_campaign_with_holes(tmp_path, browser):
    planned = [
        dataclasses.replace(run, sut=sut, mode=mode, cores=cores)
        for run in campaign()
        for sut, mode, cores in (
            ("kamailio-udp", "default", 1),
            ("kamailio-udp", "enhanced+base_slice_ns=100000", 2),
            ("opensips-udp", "default", 1),
        )
    ]
    spoilt = planned[0]
    combined = build(tmp_path, planned, planned[:-2], invalid={spoilt})
    # The default point of the distributions: the median load, the most threads.
    at = dataclasses.replace(spoilt, cps=1500, threads=8, rep=2)
    (tmp_path / "runs" / at.path / "messages.nc").unlink()
    text = check_page(browser, render(tmp_path, combined))
    assert "Study load_sweep on testbed synthetic, kind simulated, kernel 0.0.0-synthetic." in text
    assert "54 runs planned: 51 measured, 1 invalid, 2 missing." in text
    assert "no record in raw/" in text
    assert "one call in a hundred started more than 2100 µs late" in text
    assert "t_sockq is a lower bound" in text
    assert "The loads around the crossing are 67 % apart" in text
    assert "kamailio-udp, enhanced+base_slice_ns=100000, 2 cores, 8 threads:" in text
    assert f"Not read: {at.path}." in text
    # every figure and table of what was not measured says so
    assert text.count(synthetic.FIDELITY.rstrip(".")) >= 10
    assert "SHA-256" in text


def test_report_where_the_probe_had_no_bpf(tmp_path, browser):
    planned = campaign(loads=(500, 1000), repetitions=1)
    combined = build(tmp_path, planned, planned, mode=trace.Mode.PRELOAD)
    text = check_page(browser, render(tmp_path, combined))
    assert "the preload fallback cannot see t_stack; it needs eBPF" in text
    assert "1 run a point at most, so no interval" in text


def test_report_of_drops_alone(tmp_path, browser):
    planned = campaign(loads=(500, 1000), repetitions=1)
    combined = build(tmp_path, planned, planned, calls=20, drops=120, resent=0)
    text = check_page(browser, render(tmp_path, combined))
    assert "The loads do not bracket the crossing: none has a typical PDR at or under 1 %" in text


def test_report_of_nothing_measured(tmp_path, browser):
    planned = campaign(loads=(500, 1000), repetitions=2)
    figures = tuple(name for name in FIGURES if name != "figure-threads")
    text = check_page(browser, render(tmp_path, build(tmp_path, planned, [])), figures)
    assert "8 runs planned: 0 measured, 0 invalid, 8 missing." in text


def modes_record(folder, run, drops):
    """Write and summarise a run: enhanced mode waits half as long, over the same arrivals."""
    scheduler = {
        "label": f"{run.mode} (EEVDF translation)",
        "family": "EEVDF (Linux 6.6 and later)",
        "found": {},
        "steps": [synthetic.step("min_granularity_ns", 100_000, "sched_setattr of each worker")],
    }
    wait = 0.5 if run.mode == "enhanced" else 1.0
    record = synthetic.write_record(
        folder / "raw", run, calls=150, drops=drops, scheduler=scheduler, wait=wait
    )
    messages = folder / "runs" / run.path / "messages.nc"
    write_messages(messages_from_record(record), messages)
    path = messages.with_name("summary.nc.zst")
    summary.write(summary.summarise_run(messages, record), path)
    return path


def test_page_of_baseline_and_enhanced_mode(tmp_path, browser):
    """Whole: from records. One point is missing, and the settings are the same."""
    planned = [
        synthetic.Run(mode=mode, cps=cps, rep=rep)
        for mode in ("baseline", "enhanced")
        for cps in (1800, 2000)
        for rep in (1, 2, 3)
    ]
    paths = [
        modes_record(tmp_path, run, (2 if run.cps == 1800 else 30) * (2 - (run.mode == "enhanced")))
        for run in planned[:-1]
    ]
    combined = tmp_path / "summary.nc"
    summary.write(summary.combine(paths, planned), combined)
    page = tmp_path / "reports" / "modes-synthetic.html"
    parameters = {"summary": combined, "study": "modes", "crossings": []}
    pages.render(NOTEBOOKS / "modes.ipynb", page, parameters)
    text = check_page(
        browser, page, MODES_FIGURES, MODES_TABLES, "What do the papers' scheduler settings"
    )
    assert "12 runs planned: 11 measured, 0 invalid, 1 missing." in text
    assert "come to the same settings on this kernel" in text
    # 60 and 30 of 900 messages, in each of the two pairs
    assert "2000 cps: PDR under enhanced is 50 % lower" in text
    assert "Single-core paper, Table I (baseline), beside baseline on this testbed" in text
    assert "Table III, beside this testbed" in text
    assert text.count("EEVDF translation") == 1


def test_page_of_modes_compared_within_runs(tmp_path, browser):
    """Whole: from records. The second mode waits twice as long and takes twice the CPU time."""
    run = synthetic.Run(mode="default,batch", cps=400)
    record = synthetic.write_comparison(tmp_path / "raw", run, {"default": 1.0, "batch": 2.0})
    folder = tmp_path / "results" / "runs" / run.path
    write_messages(messages_from_record(record), folder / "messages.nc")
    found = windows.windows_from_record(folder / "messages.nc", record)
    windows.write_windows(found, folder / "windows.nc")
    summary.write(summary.summarise_run(folder / "messages.nc", record), folder / "summary.nc.zst")
    combined = tmp_path / "results" / "crossover" / "synthetic" / "summary.nc"
    planned = [run, dataclasses.replace(run, rep=2)]
    summary.write(summary.combine([folder / "summary.nc.zst"], planned), combined)
    crossing = tmp_path / "crossing.json"
    point = Point("synthetic", "kamailio-udp", "default", 1, 8)
    crossing.write_text(json.dumps(synthetic.crossing(point, 500, 550)))
    page = tmp_path / "reports" / "crossover-synthetic.html"
    parameters = {"summary": combined, "windows": [folder / "windows.nc"], "crossings": [crossing]}
    pages.render(NOTEBOOKS / "crossover.ipynb", page, parameters)
    title = "What do default and batch settings do to the proxy?"
    text = check_page(browser, page, CROSSOVER_FIGURES, CROSSOVER_TABLES, title)
    answer = "At 80 % of capacity (400 cps) nothing beats the kernel's default, and batch is worse"
    assert text.splitlines()[:2][1].startswith(answer)
    assert text.count("Crossover, windows of 0.5 s, 20 blocks in 1 run, retransmissions off.") == 1
    assert "2 runs planned: 1 measured, 0 invalid, 1 missing." in text
    assert page.stat().st_size < 2_000_000
    # a phone gets pictures laid out for it
    widths = []
    for scheme in ("light", "dark"):
        assert findings(browser, scheme) == []
    for width in (390, 1200):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        time.sleep(0.3)
        widths.append(
            browser.execute_script("return [...document.images].map(i => i.naturalWidth)")
        )
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert all(narrow < 0.6 * wide for narrow, wide in zip(*widths, strict=True))


def test_page_of_modes_compared_of_which_nothing_was_measured(tmp_path, browser):
    combined = tmp_path / "summary.nc"
    summary.write(summary.combine([], [synthetic.Run(mode="default,batch")]), combined)
    page = tmp_path / "advice.html"
    parameters = {"summary": combined, "windows": [], "crossings": [], "study": "advice"}
    pages.render(NOTEBOOKS / "crossover.ipynb", page, parameters)
    title = "What replaces the papers' advice on this kernel?"
    text = check_page(browser, page, (), ("table-how", "table-estimates"), title)
    assert text.splitlines()[1].startswith("No answer: no run that compares modes")


@pytest.mark.parametrize("measured", [True, False])
def test_page_of_modes_on_several_cores(tmp_path, browser, measured):
    planned = [
        synthetic.Run(mode=mode, cores=cores, threads=threads, cps=cps, rep=rep)
        for mode in ("baseline", "enhanced")
        for cores in (2, 4, 6)
        for threads in (4, 8)
        for cps in (4000, 4400)
        for rep in (1, 2, 3)
    ]

    def outcome(run):
        there = measured and run.cores != 4 and (run.cores, run.mode) != (6, "enhanced")
        return synthetic.two_modes(run, knee_cps=4200, translated=False) if there else None

    combined = tmp_path / "summary.nc"
    summary.write(synthetic.combined(planned, outcome), combined)
    page = tmp_path / "modes.html"
    pages.render(NOTEBOOKS / "modes.ipynb", page, {"summary": combined})
    sorts = ("load", *("parts", "types"))
    figures = [f"figure-{sort}-kamailio-udp-{cores}" for sort in sorts for cores in (2, 4, 6)]
    figures[3:3] = ["figure-crossings"]
    figures.insert(0, "figure-lower")
    names = [f"table-comparison-kamailio-udp-{cores}" for cores in (2, 4, 6)]
    text = check_page(browser, page, figures, names, "What do the papers' scheduler settings")
    for table in papers.TABLES:
        assert f"Table {table}" in text
    assert "not measured: 6 missing" in text or "not measured: 12 missing" in text


@pytest.mark.parametrize("unavailable", ["", "the kernel is locked down"])
def test_page_of_the_migration_cost(tmp_path, browser, unavailable):
    costs = (0, 100_000, 500_000, 5_000_000)
    planned = [
        synthetic.Run(
            mode=f"enhanced+migration_cost_ns={cost}", cores=cores, threads=4, cps=4200, rep=rep
        )
        for cost in costs
        for cores in (2, 4)
        for rep in (1, 2, 3)
    ]

    def outcome(run):
        if (run.cores, run.rep) == (4, 3):
            return None
        cost = int(run.mode.partition("=")[2])
        step = synthetic.step("migration_cost_ns", cost, "a file", unavailable)
        settings = {"translated": False, "steps": [step], "in_force": {"a file": str(cost)}}
        return synthetic.two_modes(run, knee_cps=4200 - cost / 1e4, translated=False) | {
            "mode_settings": json.dumps(settings)
        }

    combined = tmp_path / "summary.nc"
    summary.write(synthetic.combined(planned, outcome), combined)
    page = tmp_path / "migration.html"
    pages.render(NOTEBOOKS / "migration_cost.ipynb", page, {"summary": combined})
    tables = ("table-migration-cost", "table-runs-not-counted")
    text = check_page(
        browser, page, ("figure-migration-cost",), tables, "What does the cost of migration"
    )
    if unavailable:
        assert "Nothing is drawn: this kernel does not let the cost be set" in text
        assert "PDR is lowest" not in text
    else:
        assert "2 cores, 4 threads, 4200 cps: PDR is lowest at 0" in text


def test_page_of_predictions_of_the_papers(tmp_path, browser):
    path, page = tmp_path / "papers.csv", tmp_path / "reports" / "papers_predicted.html"
    synthetic.predictions(0.2).to_csv(path, index=False)
    pages.render(NOTEBOOKS / "papers_predicted.ipynb", page, {"predictions": [path]})
    text = check_page(
        browser, page, PREDICTED_FIGURES, PREDICTED_TABLES, "Does a simulation reproduce"
    )
    assert text.splitlines()[1].startswith("Yes, in simulation: of 38 published effects")
    assert text.count("Predicted by simulation, not measured") > 8


def test_page_of_published_numbers(tmp_path, browser):
    page = tmp_path / "reports" / "published.html"
    pages.render(NOTEBOOKS / "published.ipynb", page, {"published": papers.FOLDER})
    text = check_page(
        browser, page, PUBLISHED_FIGURES, PUBLISHED_TABLES, "What do the two papers report"
    )
    # a figure goes from hand to hand without its page; a table names its paper
    said = "Published numbers, not measured here: Krishnamurthy and Rouskas"
    assert text.count(said) == len(PUBLISHED_FIGURES)
    assert text.count("Published numbers, not measured here: transcribed") == 1
    checks = papers.audit(
        papers.load_points(),
        papers.load_comparison(),
        papers.load_capacity(),
        papers.load_ranges(),
    )
    assert f"{len(checks)} checks: {checks['agrees'].sum()} hold;" in text
    assert "16 threads, 2600 cps, K_rcv, enhanced: printed 388.73, expected 398.73" in text
    assert "model − tables (cps)" in text
    assert all(f"{name}, SHA-256" in text for name in papers.FILES)


def test_page_of_a_testbed(tmp_path, browser):
    summaries = synthetic.write_campaign(tmp_path)
    noise = tmp_path / "raw" / "synthetic" / "noise.json"
    noise.write_text(json.dumps(synthetic.noise()))
    page = tmp_path / "reports" / "testbed-synthetic.html"
    parameters = {"testbed": "synthetic", "summaries": summaries, "noise": noise}
    pages.render(NOTEBOOKS / "testbed.ipynb", page, parameters)
    figures = ("figure-coverage", "figure-noise")
    text = check_page(browser, page, figures, TESTBED_TABLES, "What is this testbed")
    assert "15 points planned: 13 measured" in text
    assert "CPU 1, looked at for 2.0 s every 50 ns: 1 gaps a second" in text
    links = browser.find_elements("css selector", "a.download")
    assert len(links) >= 1
    assert all(link.get_attribute("href").startswith("data:text/csv") for link in links)


def test_index_links_pages_and_answers_in_five_sentences(tmp_path, browser):
    """Two testbeds, of which one has no run that counts."""
    summaries = [
        synthetic.write_study(tmp_path, campaign(), lambda run: {"drops": 12 * (run.cps > 2000)}),
        synthetic.write_study(
            tmp_path, [synthetic.Run(testbed="elsewhere")], lambda run: {"valid": False}
        ),
    ]
    other = tmp_path / "reports" / "other.html"
    other.parent.mkdir()
    other.write_text("<!doctype html><title>Another: page?</title>")
    page = other.with_name("index.html")
    pages.render(NOTEBOOKS / "index.ipynb", page, {"summaries": summaries, "pages": [other]})
    figures = ("figure-testbed-diagram",)
    text = check_page(browser, page, figures, ("table-coverage",), "What was measured")
    assert synthetic.FIDELITY.rstrip(".") in text
    for testbed, unknown in (("synthetic", 2), ("elsewhere", 4)):
        sentences = browser.find_elements("css selector", f"#answers-{testbed} dd")
        assert f"Testbed {testbed}, kind simulated" in text
        assert len(sentences) == 5
        assert sum(each.text.startswith("Not measured") for each in sentences) == unknown
    assert "kernel 0.0.0-synthetic" in text
    assert "Simulated 2026-01-01 00:01 to 2026-01-01 00:03 UTC." in text
    assert text.count("SHA-256") == 2
    browser.find_element("link text", "Another: page?").click()
    assert browser.title == "Another: page?"


def render_capacity(folder, summaries, **parameters):
    page = folder / "reports" / "capacity_model.html"
    none = {"predictions": [], "speedups": "nowhere.csv"}
    given = {"summaries": summaries} | none | parameters
    pages.render(NOTEBOOKS / "capacity_model.ipynb", page, given)
    return page


@pytest.mark.parametrize("summaries", [None, [Path("nowhere/local/summary.nc")]])
def test_capacity_page_of_published_numbers_alone(tmp_path, browser, summaries):
    page = render_capacity(tmp_path, summaries)
    text = check_page(
        browser, page, CAPACITY_FIGURES, CAPACITY_TABLES, "How many cores and threads"
    )
    assert "(nothing was measured here)" in text.splitlines()[1]
    assert "nothing measured here; published numbers alone" in text
    named = "nowhere/local/summary.nc: not there, left out."
    assert (named in text) == (summaries is not None)
    assert "5\u202f000 cps: papers' OpenSIPS, enhanced, 4 cores, 4 threads, published" in text
    assert "off by −9.1 % to +11 % over 3 numbers of cores" in text
    assert "This testbed: not measured, no answer of its own." in text
    assert "nothing measured: no service times" in text
    assert "Predicted by simulation, not measured: nothing was simulated." in text


def test_capacity_page_of_one_core(tmp_path, browser):
    settings = {("default", 1, 2): 80.0}
    settings |= {(mode, 1, 8): 84.0 for mode in ("default", "baseline", "enhanced")}
    loads = (1000, 1400, 1800, 1900, 2000, 2100, 2200)
    study = tmp_path / "single_core" / "local" / "summary.nc"
    study.parent.mkdir(parents=True)
    summary.write(synthetic.queue_summary(settings, loads), study)
    page = render_capacity(tmp_path, [tmp_path / "load_sweep/local/summary.nc", study])
    text = check_page(
        browser, page, CAPACITY_FIGURES, CAPACITY_TABLES, "How many cores and threads"
    )
    assert synthetic.FIDELITY.rstrip(".") in text
    assert "load_sweep/local/summary.nc: not there, left out." in text
    assert "single_core/local/summary.nc: 140 runs that count, on 1 core." in text
    assert "2 threads, the best measured on one core." in text
    assert "expected capacities of at least 3 different numbers of cores, found 1" in text
    assert "beyond the data" in text
    assert text.count("the intervals overlap") == len(settings)
    assert "SHA-256" in text


def test_capacity_page_with_what_was_simulated(tmp_path, browser):
    carried = [
        Carried(cores, 2 * cores, 2000.0 * min(cores, 8), cores / 10, 0.95)
        for cores in (1, 4, 8, 16)
    ]
    found = CapacityPrediction(
        Fitted(sut="kamailio-udp", runs=("a", "b"), messages=10, numbers={"switch_ns": 1}),
        *(0.01, 16, tuple(carried)),
        draws=tuple(dataclasses.replace(c, cps=f * c.cps) for c in carried for f in (0.9, 1.1)),
        assumed={"two CPUs receive": (dataclasses.replace(carried[3], cps=30000.0),)},
    )
    file = tmp_path / "capacity.json"
    write_capacity(found, file)
    speedups = tmp_path / "speedups.csv"
    numbers = (2000.0, 1900.0, 2100.0, 1.0, 1.0, 1.0, 1, "one CPU receives")
    write_speedups([Speedup("sockets", "udp", 1, 2, *numbers)], speedups)
    page = render_capacity(tmp_path, [], predictions=[file], speedups=speedups)
    simulated = ("figure-simulated-capacity", "figure-simulated-speedups")
    figures = ("figure-plan", "figure-cores", *simulated, "figure-queues")
    text = check_page(browser, page, figures, CAPACITY_TABLES, "How many cores and threads")
    assert "Predicted by simulation, not measured: 1 core carries 2\u202f000 cps" in text
    assert "More than 8 cores add nothing, up to 16" in text
    assert "With two CPUs receiving" in text
    assert "over UDP, one CPU receives, 1 core carry" not in text
    assert "over UDP, one CPU receives, 1 core carries as many times" in text


def test_page_of_predictions_without_any(tmp_path, browser):
    page = tmp_path / "reports" / "predicted.html"
    pages.render(NOTEBOOKS / "predicted.ipynb", page, {"predictions": [], "summaries": []})
    tables = ("table-predicted-counts", "table-predicted", "table-predicted-default")
    text = check_page(browser, page, (), tables, "Does the simulator predict")
    assert text.splitlines()[1] == "There is nothing to compare: nothing was predicted."


def test_page_of_predictions(tmp_path, browser):
    run = Run(mode="default,fifo", cps=1600)
    compared = tmp_path / "windows.nc"
    effects = {"default": {}, "fifo": {"t_sip_mean": -0.5}}
    windows.write_windows(synthetic.windows(run, effects), compared)
    fitted = Fitted(sut=run.sut, runs=("a",), messages=9, numbers={"switch_ns": 1})
    rng = np.random.default_rng(1)
    predicted = [
        Predicted(
            Setting(run.sut, mode, run.cores, run.threads, run.cps, True),
            *(rng.uniform(90, 110, (8, len(UNITS))), rng.uniform(90, 110, (8, 5, len(UNITS)))),
        )
        for mode in ("default", "fifo")
    ]
    write_predictions(Predictions(fitted, 6.0, tuple(predicted)), tmp_path / "settings.nc")
    page = tmp_path / "reports" / "predicted.html"
    given = {"predictions": [tmp_path / "settings.nc"], "summaries": [], "windows": [compared]}
    pages.render(NOTEBOOKS / "predicted.ipynb", page, given)
    tables = ("table-predicted-counts", "table-predicted", "table-predicted-fit")
    text = check_page(browser, page, ("figure-predicted",), tables, "Does the simulator predict")
    assert "of 5 predictions lie inside the measured 95 % interval" in text.splitlines()[1]
    assert "fifo at 1\u202f600 cps: T_sip mean predicted" in text


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ('<link rel="stylesheet" href="http://127.0.0.1:9/x.css">', "console|127"),
        ("<script>console.error('trouble')</script>", "trouble"),
        ("", "figure-pdr"),
    ],
)
def test_the_check_notices_requests_errors_and_missing_figures(tmp_path, browser, trouble, message):
    page = tmp_path / "page.html"
    icon = '<link rel="icon" href="data:,">'
    page.write_text(f"<!doctype html><title>How much load</title>{icon}{trouble}<main></main>")
    with pytest.raises(AssertionError, match=message):
        check_page(browser, page)
