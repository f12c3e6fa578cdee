"""The parts of the page that compares two processor packages with one. The page has the form of the page `kernels`."""

from sipsched.pages.kernels import *  # noqa: F403
