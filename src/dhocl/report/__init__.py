"""A page to look at: one run in depth, or several beside each other."""

from dhocl.report.page import write_report

__all__ = ["write_report"]
