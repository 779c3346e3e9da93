"""How Sphinx builds the documentation. `build_site.py` prepares the folder in which it looks for pages."""

from __future__ import annotations

project = "Wherry"
html_title = "Wherry"
language = "en"
smartquotes = False
root_doc = "README"

extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]  # a block may be cut short with an ellipsis

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["wherry.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
