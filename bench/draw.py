"""Bar charts as SVG, plain enough to be read as text and compared as a diff."""
from xml.sax.saxutils import escape

COLOURS = ["#2a6f97", "#e07a1f", "#5b8c5a", "#8e5572"]
LEFT, BAR, GAP, WIDTH = 210, 13, 22, 860


def bars(path, title, groups):
    """groups: {group: [(label, series, value)...]}. A line marks the value 1."""
    series = list(dict.fromkeys(s for rows in groups.values() for _, s, _ in rows))
    largest = max(v for rows in groups.values() for *_, v in rows)
    scale = (WIDTH - LEFT - 60) / largest
    y, parts = 64, []

    def text(x, at, words, anchor="start", weight="normal"):
        parts.append(f'<text x="{x}" y="{at}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>')

    text(10, 22, title, weight="bold")
    for i, name in enumerate(series):
        parts.append(f'<rect x="{10 + i * 150}" y="34" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/>')
        text(27 + i * 150, 44, f"against {name}")
    for group, rows in groups.items():
        text(10, y + 12, group, weight="bold")
        y += 20
        shown = None
        for label, name, value in rows:
            if label != shown:
                text(LEFT - 8, y + 10, label, "end")
                shown = label
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{value * scale:.1f}" height="{BAR - 2}" '
                         f'fill="{COLOURS[series.index(name) % len(COLOURS)]}"/>')
            text(f"{LEFT + value * scale + 5:.1f}", y + 10, f"{value:.2f}")
            y += BAR
        y += GAP
    one = LEFT + scale
    parts.append(f'<line x1="{one:.1f}" y1="56" x2="{one:.1f}" y2="{y - GAP}" stroke="#888" stroke-dasharray="3 3"/>')
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" '
                   'font-family="sans-serif" font-size="11" fill="#222">\n'
                   f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n")
