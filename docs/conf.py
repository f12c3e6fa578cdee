"""Settings of the documentation site, which `make docs` builds with Sphinx."""

project = "sipsched"
html_title = project
html_theme = "furo"
html_show_copyright = False
root_doc = "docs/index"

# The source folder is the repository, so that a link between two pages works on the site and in the repository.
include_patterns = ["*.md", "config/**.md", "docs/**", "raw/README.md", "recorded/README.md"]
exclude_patterns = [".*", "site", "results", "reports", "publish", "raw/[!R]*", "recorded/[!R]*"]

extensions = ["myst_parser", "sphinx.ext.apidoc", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
apidoc_modules = [
    {
        "path": "../src/sipsched",
        "destination": "docs/modules",
        "module_first": True,
        "automodule_options": {"members"},
    }
]
default_role = "code"
napoleon_google_docstring = False
# Sphinx needs half of the CPU time if attributes are plain text and the contents of a page do not list functions.
napoleon_custom_sections = [("Attributes", "params_style")]
toc_object_entries = False
# Sphinx warns that short names in annotations, such as `mode`, are ambiguous, because several classes have them.
suppress_warnings = ["ref.python"]
