"""How Sphinx shows the pages: those of the repository, by their own names and titles."""

project = "stateshift"
html_title = "stateshift"
extensions = ["myst_parser"]
myst_heading_anchors = 4  # as a forge has them
myst_enable_extensions = ["strikethrough"]
suppress_warnings = [
    "misc.highlighting_failure"
]  # a block of output is called `json` or `console` and is cut
highlight_language = "text"
html_theme = "furo"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"top_of_page_buttons": []}
