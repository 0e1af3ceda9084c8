"""`lethe audit`: the group of commands."""

from __future__ import annotations

import typer

from .report_command import published, report

app = typer.Typer(no_args_is_help=True, help="Judge a corpus of foreign kernels, and report on it.")
app.command()(report)
app.command()(published)
