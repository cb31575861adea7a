"""A page to look at: one run in depth, several beside each other, or a sweep with its tables and figures."""

from dhocl.report.page import write_report
from dhocl.report.sweep import write_sweep_report

__all__ = ["write_report", "write_sweep_report"]
