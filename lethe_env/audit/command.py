"""`lethe audit`: the group of commands."""

from __future__ import annotations

import typer

from .report_command import published, report
from .run_command import run
from .synthetic_command import synthesize, verify

app = typer.Typer(no_args_is_help=True, help="Judge a corpus of foreign kernels, and report on it.")
app.command()(run)
app.command()(synthesize)
app.command()(verify)
app.command()(report)
app.command()(published)
