"""How Sphinx makes the site of docs/generate_site.py: pages as GitHub shows them, nothing from other hosts."""

project = "migrator"
copyright = ""  # Apache-2.0, in LICENSE
extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns: list[str] = []
# Anchors of headings as GitHub makes them, which the pages link to.
myst_heading_anchors = 4

html_theme = "furo"
html_title = "migrator"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
# A folder of its own for each page would break links that are the same in the repository.
html_theme_options = {"sidebar_hide_name": False}
# Code in these pages is SQL, YAML, shell and drawings; a guess would mark what is neither.
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]
