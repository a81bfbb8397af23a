"""The marks of a picture without groups, and where they are."""

from dataclasses import replace

from nas_lightning.plots.picture import Box, Group, Line, Text, text_width


def flat(picture, offset=(0.0, 0.0)):
    """All lines, boxes, and texts in the coordinates of the picture."""
    marks = []
    for mark in picture.marks:
        if isinstance(mark, Group):
            marks += flat(mark, (offset[0] + mark.offset[0], offset[1] + mark.offset[1]))
        elif isinstance(mark, Line):
            marks.append(replace(mark, points=[(x + offset[0], y + offset[1]) for x, y in mark.points]))
        elif isinstance(mark, Box):
            marks.append(replace(mark, center=(mark.center[0] + offset[0], mark.center[1] + offset[1])))
        else:
            marks.append(replace(mark, place=(mark.place[0] + offset[0], mark.place[1] + offset[1])))
    return marks


def of_kind(picture, kind):
    return [mark for mark in flat(picture) if isinstance(mark, kind)]


def texts(picture):
    return [mark.text for mark in of_kind(picture, Text)]


def extent(mark):
    """Left, top, right, bottom of a box or a text."""
    if isinstance(mark, Box):
        (x, y), (width, height) = mark.center, mark.size
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2
    width = text_width(mark.text + mark.index, mark.size)
    left = mark.place[0] - {"start": 0, "middle": width / 2, "end": width}[mark.align]
    return left, mark.place[1] - mark.size / 2, left + width, mark.place[1] + mark.size / 2


def overlap(a, b, slack=0.5):
    return a[0] < b[2] - slack and b[0] < a[2] - slack and a[1] < b[3] - slack and b[1] < a[3] - slack


def inside(inner, outer):
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]
