"""How Sphinx makes the site of tools/pages/site.py: pages as GitHub shows them, nothing from other hosts."""

from pathlib import Path

project = "migrator"
copyright = ""  # Apache-2.0, in LICENSE
extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns: list[str] = []
# Anchors of headings as GitHub makes them, which the pages link to.
myst_heading_anchors = 4

# An option is written --as-it-is; a dash in place of its two hyphens could not be copied.
smartquotes = False
html_theme = "furo"
html_title = "migrator"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
# Beside this file, wherever the pages are put together; wide enough for the lines that commands print.
html_static_path = [str(Path(__file__).with_name("static"))]
html_css_files = ["site.css"]
# Code in these pages is SQL, YAML, shell and drawings; a guess would mark what is neither.
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]
