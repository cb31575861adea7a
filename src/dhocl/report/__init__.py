"""HTML reports: of one run, of several runs compared, or of a sweep with tables and figures."""

from dhocl.report.page import write_report
from dhocl.report.sweep import write_sweep_report

__all__ = ["write_report", "write_sweep_report"]
