"""Pages and tables of runs."""

from nas_lightning.report.page import LivePage

__all__ = ["LivePage"]
