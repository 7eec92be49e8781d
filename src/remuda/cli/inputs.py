"""The commands about what goes into a run: anova, presets, config."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from remuda.cli.options import DataDir, Words, load_words

app = typer.Typer()


@app.command()
def anova(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA [KEY=VALUE]...",
            help="a data set or a path as in data.source, then settings such as data.size=32",
        ),
    ],
    data_dir: DataDir = None,
) -> None:
    """Show whether the labels of a data set tell its items apart: ANOVA, channel by channel.

    The first column is the statistic of the articles on class-parallel training, which mixes
    pixels and images; F, p and η² are the usual analysis of the images' mean values.
    """
    source, *settings = words
    settings.insert(0, f"data.source={json.dumps(source)}")
    chosen = load_words(settings, data_dir)
    from rich.console import Console
    from rich.table import Table

    from remuda.data import load_dataset
    from remuda.metrics import anova as analyse

    dataset = load_dataset(chosen.data)
    found = analyse(dataset.items, dataset.labels, dataset.name)
    print(f"{found.data}: {found.items} items, {found.classes} classes")
    kinds = {1: ("grey",), 3: ("red", "green", "blue")} if dataset.is_images else {}
    names = kinds.get(len(found.channels)) or tuple(map(str, range(len(found.channels))))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("channel", "papers' statistic", "F of image means", "p", "η²"):
        table.add_column(title, justify="left" if title == "channel" else "right")
    for name, part in zip(names, found.channels, strict=True):
        chance = f"{part.p:.2g}" if part.p > 0 else "< 1e-300"
        figures = (f"{part.papers:.2f}", f"{part.f:.1f}", chance, f"{part.eta_squared:.3f}")
        table.add_row(name, *figures)
    Console().print(table)
    print(found.meaning)


@app.command()
def presets() -> None:
    """List the presets, one line each."""
    from remuda.config import preset_names, preset_summary

    names = preset_names()
    width = max(map(len, names))
    for name in names:
        print(f"{name:<{width}}  {preset_summary(name)}")


@app.command()
def config(words: Words = None) -> None:
    """Print a resolved configuration as commented YAML, ready to be saved and edited."""
    from remuda.config import render

    print(render(load_words(words, None)), end="")
