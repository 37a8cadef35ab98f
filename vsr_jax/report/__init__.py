"""Figures, tables and the page of a report. Plain data in, files out; no JAX."""

from vsr_jax.report.blocks import Block, Browser, Callout, Details, Picture, Prose, Section, picture
from vsr_jax.report.browser import browser_section
from vsr_jax.report.colours import PolicyStyle, policy_styles
from vsr_jax.report.figures import (
    Curve,
    Flow,
    TrainingRun,
    best_at_k_curves,
    bucket_flow,
    opening_bars,
    save,
    training_curves,
)
from vsr_jax.report.page import render_page, write_page
from vsr_jax.report.paper import PAPER_VALUES, Comparison, PaperValue, paper_value, side_by_side
from vsr_jax.report.tables import Column, Estimate, Table, to_csv, to_html, to_markdown, write_table

__all__ = [
    "PAPER_VALUES",
    "Block",
    "Browser",
    "Callout",
    "Column",
    "Comparison",
    "Curve",
    "Details",
    "Estimate",
    "Flow",
    "PaperValue",
    "Picture",
    "PolicyStyle",
    "Prose",
    "Section",
    "Table",
    "TrainingRun",
    "best_at_k_curves",
    "browser_section",
    "bucket_flow",
    "opening_bars",
    "paper_value",
    "picture",
    "policy_styles",
    "render_page",
    "save",
    "side_by_side",
    "to_csv",
    "to_html",
    "to_markdown",
    "training_curves",
    "write_page",
    "write_table",
]
