"""The colours of pages and figures. This module does not import matplotlib, which takes half a second."""

# For each colour of a figure: its name, its value in light mode, and its value in dark mode. matplotlib draws with the
# placeholder colour on the left. The SVG then gets a CSS variable (such as --ink) in place of each placeholder. The
# series have the hues of Okabe and Ito (2008), which are distinguishable with any colour vision: darker on white,
# lighter on black. The series also have different markers.
THEME = {
    "#010101": ("ink", "#24292f", "#d6dbe1"),
    "#020202": ("paper", "#ffffff", "#14181d"),
    "#030303": ("grid", "#d9dee3", "#343b44"),
    "#040404": ("limit", "#b3261e", "#ff8a80"),
    "#050501": ("series0", "#0072b2", "#56b4e9"),
    "#050502": ("series1", "#d55e00", "#ff9248"),
    "#050503": ("series2", "#008060", "#2fcf9f"),
    "#050504": ("series3", "#a64d87", "#eba4d0"),
    "#050505": ("series4", "#a87400", "#f0c04a"),
    "#050506": ("series5", "#5b6670", "#a9b4bf"),
    "#050507": ("series6", "#5a4fcf", "#b0a8ff"),
    "#050508": ("series7", "#8a4b2f", "#d9a184"),
}
