"""Templates to pages: every value is escaped, no script but the page's own runs."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nas_lightning.plots.style import KINDS, SERIES


def render(template: str, **values: Any) -> str:
    """The page that a template makes of values."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("nas_lightning.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _source(environment, "page.js")
    digest = hashlib.sha256(script.encode()).digest()
    environment.globals.update(
        reload=None,
        relatives=(),
        kinds=KINDS,
        series=SERIES,
        style=Markup(_source(environment, "page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(digest).decode(),
    )
    return environment


def _source(environment: Environment, name: str) -> str:
    """A file of the templates' folder as it is."""
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
