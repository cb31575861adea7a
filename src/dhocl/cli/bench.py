"""`dhocl bench`: measure the speed of a device."""

from __future__ import annotations

from typing import Annotated

import typer

from dhocl.cli.options import Device
from dhocl.core.errors import check_least
from dhocl.core.precision import Precision


def bench(
    device: Device = "auto",
    backbone: Annotated[str, typer.Option(help="A backbone, as for `dhocl run`.")] = "efficientnet_lite0",
    image_size: Annotated[int, typer.Option(help="Side of the images in pixels.")] = 96,
    batch: Annotated[int, typer.Option(help="Images in a step; half as many are replayed.")] = 32,
    precision: Annotated[Precision, typer.Option(help="Of the backbone; bfloat16 is mixed precision.")] = "float32",
    seconds: Annotated[float, typer.Option(min=0, help="Time for each line, at least.")] = 3.0,
) -> None:
    """Measure how fast a device learns and predicts, on random images, and print a Markdown table.

    `dhocl bench --device cuda`   `dhocl bench --device cuda --precision bfloat16 --image-size 224`
    """
    import torch
    from rich.console import Console

    import dhocl
    from dhocl.core.process import prepare
    from dhocl.experiment.bench import Workload, measure

    check_least("batch", batch, 1)
    prepare()
    work = Workload(device, backbone, image_size, batch, precision, seconds)
    measured = measure(work)
    print(f"dhocl {dhocl.__version__}, torch {torch.__version__}, {_name(device)}: ", end="")
    print(f"{backbone}, {image_size} px, {precision}, batches of {batch}\n")
    print("| part | ms | images/s | peak memory |\n|---|---|---|---|", flush=True)
    with Console(stderr=True).status("measuring"):
        for each in measured:
            peak = "-" if each.peak_bytes is None else f"{each.peak_bytes / 1e6:,.0f} MB"
            print(f"| {each.what} | {each.milliseconds:,.1f} | {each.images_per_second:,.0f} | {peak} |", flush=True)


def _name(device: str) -> str:
    """What is measured: the name of a GPU, or the threads of a CPU."""
    import torch

    from dhocl.core.devices import find_device

    place = find_device(device)
    if place.type == "cuda":
        return f"{torch.cuda.get_device_name(place)} ({place})"
    return f"CPU with {torch.get_num_threads()} threads"
