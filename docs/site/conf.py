"""Sphinx's settings. The sources are those that `python -m docs.site` puts into one folder."""

from hybrid_lab import __version__

project = "Hybrid Lab"
author = "The Hybrid Lab developers"
copyright = author
version = release = __version__

extensions = ["myst_nb", "sphinx_copybutton", "sphinx_design"]
root_doc = "index"
templates_path: list[str] = []
html_static_path = ["static"]
exclude_patterns: list[str] = []

# The notebooks come executed; nothing loads widgets' scripts from elsewhere.
nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
nb_mime_priority_overrides = [
    ("html", "text/html", 0),
    ("html", "image/svg+xml", 1),
    ("html", "image/png", 2),
    ("html", "text/plain", 3),
]
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
# Rules' pages begin with a comment, results with a table.
suppress_warnings = ["myst.header"]

# Error messages keep the quotes by which people search for them.
smartquotes = False
highlight_language = "default"
pygments_style = "default"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
maximum_signature_line_length = 120
add_module_names = False
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True

html_theme = "pydata_sphinx_theme"
html_title = "Hybrid Lab"
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_last_updated_fmt = None
html_theme_options = {
    "logo": {"text": "Hybrid Lab"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "show_prev_next": True,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "navigation_depth": 2,
    "collapse_navigation": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "header_links_before_dropdown": 6,
    "back_to_top_button": True,
}
html_sidebars = {"index": [], "changelog": []}
