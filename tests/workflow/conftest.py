"""Fixtures for tests of the workflow: a real browser for pages and for JupyterLab, and a user who is not root."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import notebook_inputs
import pytest

from sipsched.pages import render

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if not (CHROMIUM.exists() and DRIVER.exists()):
        pytest.skip(f"no browser: {CHROMIUM} or {DRIVER} is missing (apt install chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def page_of(tmp_path_factory):
    """Return a function that makes the page of a notebook from synthetic data or without data, and draws no figure."""
    folder = tmp_path_factory.mktemp("pages")

    @functools.cache
    def make(notebook, inputs=notebook_inputs.parameters):
        path = notebook_inputs.NOTEBOOK_FILES[notebook]
        return render.make_page(path, inputs(notebook, folder))

    return make


@pytest.fixture
def nobody():
    """Return the start of a command line that runs a command as a user without rights."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux, to be somebody else")
    become = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    # start Python through a shell, because setpriv would search for Python with root's rights
    runs = [*become, "sh", "-c", '"$1" -c "import json"', "sh", sys.executable]
    if subprocess.run(runs, capture_output=True).returncode:
        pytest.skip(f"{sys.executable} can be run by root alone")
    return become
