"""Sphinx's configuration: the site of README, docs/, deviations and the API (`make docs`)."""

from importlib import metadata

project = "Vitrine"
release = metadata.version("vitrine")
extensions = [
    "myst_parser",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]

# The sources are the repository's root, so that links between files need no change.
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**",
    "envs/README.md",
    "configs/papers/*/deviations.md",
    "results/published/*/report.md",
    "results/published/*/*/*.md",
]
myst_heading_anchors = 4
# Links to folders, which a site does not have; tables, which the report leads to; names of two.
suppress_warnings = ["myst.xref_missing", "toc.not_included", "ref.python"]

apidoc_modules = [{"path": "../src/vitrine", "destination": "docs/api", "separate_modules": True}]
apidoc_exclude_patterns = ["**/__main__.py"]
napoleon_use_ivar = True  # else attributes stand twice
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures show them
default_role = "py:obj"  # `name` in a docstring is a link where there is such a name

html_theme = "alabaster"
html_theme_options = {
    "description": "Four Vision Transformer papers, replicated",
    "fixed_sidebar": True,
    "page_width": "1400px",
    "body_max_width": "none",
    "sidebar_width": "260px",
}
html_copy_source = False
