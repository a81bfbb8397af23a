"""Shows the examples of docstrings as code: an extension of Griffe, by which mkdocstrings reads them."""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class ExamplesAsCode(Extension):
    """Fences what begins with >>> and goes on to an empty line."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
