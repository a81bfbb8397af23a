"""A page read back with an HTML parser."""

from html.parser import HTMLParser

EMPTY = {"link", "meta", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """The text under each heading, the code blocks, every tag and attribute; fails where tags do not nest."""

    def __init__(self, path):
        super().__init__()
        self.open, self.tags, self.attributes = [], [], []
        self.sections, self.blocks, self.text = {}, [], ""
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in EMPTY:
            self.open.append(tag)
        if tag == "pre":
            self.blocks.append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.heading = data
            self.sections[data] = ""
        elif "section" in self.open and self.sections:
            self.sections[self.heading] += data
        if self.open and self.open[-1] == "pre":
            self.blocks[-1] += data
        self.text += data
