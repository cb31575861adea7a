"""A small convolutional network."""

from torch import nn

from dhocl.nn.backbones import Backbone, wrap


def small() -> Backbone:
    """Two convolutions, untrained; 32 features."""
    network = nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=5, stride=4, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
    )
    return wrap(network, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
