"""Tests of the controls of explore.ipynb in JupyterLab, in a real browser."""

import http.client
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import synthetic
from papermill.iorw import load_notebook_node, write_ipynb
from papermill.parameterize import parameterize_notebook

from sipsched.paths import PROJECT_ROOT

pytest.importorskip("selenium")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

TIMEOUT_S = 180


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Start JupyterLab with explore.ipynb on synthetic runs, and return the notebook's address."""
    folder = tmp_path_factory.mktemp("lab")
    for run in (*synthetic.repeated((500, 2000), 2), synthetic.Run(mode="enhanced", cps=3000)):
        synthetic.write_record(folder / "raw", run, calls=3 * run.cps // 10)
    notebook = load_notebook_node(str(PROJECT_ROOT / "notebooks/lab/explore.ipynb"))
    given = {"testbed": "synthetic", "records": str(folder / "raw")}
    write_ipynb(parameterize_notebook(notebook, given), str(folder / "explore.ipynb"))
    options = [f"--ServerApp.root_dir={folder}", "--LabApp.expose_app_in_browser=True"]
    with started(folder, *options) as address:
        yield f"{address}/lab/tree/explore.ipynb"


@contextmanager
def started(folder, *options, before=()):
    """Start JupyterLab as `make lab` does, yield the address of JupyterLab, and stop JupyterLab after the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = [
        *("--no-browser", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"),
        *("--IdentityProvider.token=", *options),
    ]
    log = folder / "lab.log"
    with log.open("w") as file:
        server = subprocess.Popen(
            [*before, "make", "lab", f"LAB={' '.join(given)}"],
            cwd=PROJECT_ROOT,
            stdout=file,
            stderr=file,
            env=os.environ | {"HOME": str(folder)},
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while not answers(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield address
    finally:
        with suppress(ProcessLookupError):
            # stop the whole process group, which contains make and JupyterLab
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=TIMEOUT_S)


def answers(port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", "/api")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def run_all(browser):
    """Run the notebook's cells after its kernel has started, and wait until all cells have run."""
    browser.execute_async_script(
        "const app = window.jupyterapp;"
        "const kernel = () => app.shell.currentWidget?.sessionContext?.session?.kernel;"
        "const ready = () => kernel()?.connectionStatus === 'connected' && kernel().status === 'idle';"
        "const run = () => app.commands.execute('notebook:run-all-cells').then(arguments[0], arguments[0]);"
        "const poll = () => (ready() ? run() : setTimeout(poll, 200));"
        "poll();"
    )


def wait(browser, condition):
    return WebDriverWait(browser, TIMEOUT_S, ignored_exceptions=()).until(lambda _: condition())


def shown(browser):
    """Return the captions of the pictures under the controls, by the id of the picture."""
    pictures = (
        "return [...document.querySelectorAll('.widget-html figure:has(svg)')].map("
        "f => [f.id, f.parentNode.textContent, f.querySelector('svg').clientWidth > 100])"
    )
    return {identity: text for identity, text, drawn in browser.execute_script(pictures) if drawn}


def menus(browser, label):
    """Return the two menus with a label: the menu of the left run, and the menu of the right run."""
    return [
        Select(box.find_element(By.TAG_NAME, "select"))
        for box in browser.find_elements(By.CSS_SELECTOR, ".widget-dropdown")
        if box.find_element(By.TAG_NAME, "label").text == label
    ]


def test_runs_and_an_interval_are_chosen_down_to_single_messages(lab, browser):
    browser.set_window_size(1400, 1200)
    browser.set_script_timeout(TIMEOUT_S)
    browser.get(lab)
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".jp-Notebook .jp-Cell"))
    wait(browser, lambda: browser.execute_script("return Boolean(window.jupyterapp)"))
    run_all(browser)
    assert not browser.find_elements(
        By.CSS_SELECTOR, "[data-mime-type='application/vnd.jupyter.stderr']"
    )
    wait(browser, lambda: "figure-timeline" in shown(browser))
    told = shown(browser)["figure-timeline"]
    assert "500\u00a0cps, repetition 1" in told
    assert "2\u202f000\u00a0cps, repetition 1" in told

    left, right = menus(browser, "mode")
    assert [option.text for option in right.options] == ["none", "default", "enhanced"]
    right.select_by_visible_text("none")
    wait(browser, lambda: "2\u202f000\u00a0cps" not in shown(browser)["figure-timeline"])
    left.select_by_visible_text("enhanced")
    wait(
        browser,
        lambda: (
            "enhanced, 1 core, 8 threads, 3\u202f000\u00a0cps" in shown(browser)["figure-timeline"]
        ),
    )
    load = menus(browser, "load (cps)")[0]
    assert [option.text for option in load.options] == ["3000"]

    assert "figure-single" not in shown(browser)
    (button,) = browser.find_elements(By.XPATH, "//button[text()='slowest message']")
    button.click()
    wait(browser, lambda: "figure-single" in shown(browser))
    (first,) = re.findall(r"repetition 1, ([\d.]+) to", shown(browser)["figure-timeline"])
    slider = browser.find_element(By.CSS_SELECTOR, ".widget-slider .noUi-handle")
    slider.send_keys(Keys.ARROW_RIGHT)

    def begins():
        return float(re.findall(r"repetition 1, ([\d.]+) to", shown(browser)["figure-timeline"])[0])

    # one step of the slider moves the start of the interval to the next whole millisecond
    wait(browser, lambda: begins() > float(first))
    assert begins() - float(first) < 0.0021
    assert 1000 * begins() == pytest.approx(round(1000 * begins()), abs=0.01)
    (button,) = browser.find_elements(By.XPATH, "//button[text()='whole run']")
    button.click()
    wait(browser, lambda: "figure-single" not in shown(browser))


def test_jupyterlab_starts_without_root_too(nobody):
    """Start JupyterLab as an ordinary user, because the other test starts it as root."""
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o777)
        with started(Path(home), before=nobody):
            pass
