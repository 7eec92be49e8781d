"""The commands about what goes into a run: presets, config, anova."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from remuda.cli.options import Arguments, DataDir, load_arguments
from remuda.cli.printing import say

app = typer.Typer()


@app.command()
def presets() -> None:
    """List the presets, and what they gave where that was measured."""
    from remuda.cli.tables import plain_table, print_table
    from remuda.config import preset_expectation, preset_names, preset_summary

    table = plain_table("", "")
    table.show_header = False
    for name in preset_names():
        gave = preset_expectation(name)
        table.add_row(name, preset_summary(name) + (f"; gave {gave}" if gave else ""))
    print_table(table)


@app.command()
def config(arguments: Arguments = None) -> None:
    """Print a complete configuration as commented YAML.

    Save it and edit it: `remuda config quickstart > my.yaml`, then `remuda train my.yaml`.
    """
    from remuda.config import render

    print(render(load_arguments(arguments)), end="")


@app.command()
def anova(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA|KEY=VALUE",
            help="A data set or a path, as in data.source, then settings such as data.size=32.",
        ),
    ],
    data_dir: DataDir = None,
) -> None:
    """Test how well the labels separate a data set, channel by channel.

    The first column is the statistic of the papers on class-parallel training, which mixes pixels
    and images; F, p and η² are the usual analysis of variance of the image means.
    """
    source, *settings = arguments
    settings.insert(0, f"data.source={json.dumps(source)}")
    chosen = load_arguments(settings, data_dir)
    from remuda.cli.tables import plain_table, print_table
    from remuda.data import load_dataset
    from remuda.metrics import anova as analyse

    dataset = load_dataset(chosen.data)
    found = analyse(dataset.items, dataset.labels, dataset.name)
    say(f"{found.data}: {found.items} items, {found.classes} classes")
    colours = {1: ("grey",), 3: ("red", "green", "blue")} if dataset.is_images else {}
    names = colours.get(len(found.channels)) or tuple(map(str, range(len(found.channels))))
    table = plain_table("channel", "papers' statistic", "F of image means", "p", "η²", numbers=True)
    for name, channel in zip(names, found.channels, strict=True):
        table.add_row(
            name,
            f"{channel.papers:.2f}",
            f"{channel.f:.1f}",
            f"{channel.p:.2g}" if channel.p > 0 else "< 1e-300",
            f"{channel.eta_squared:.3f}",
        )
    print_table(table)
    say(found.meaning)
