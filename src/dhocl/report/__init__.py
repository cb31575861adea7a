"""Reports of one run, of several runs compared, or of a sweep; HTML, and Markdown for the documentation."""

from dhocl.report.page import write_report
from dhocl.report.pages import write_pages
from dhocl.report.sweep import write_sweep_report

__all__ = ["write_pages", "write_report", "write_sweep_report"]
