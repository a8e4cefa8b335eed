"""A small convolutional net that learns on a device, one step a batch.

On an accelerator it runs there. On a simulated device its steps take their turn among the device's
work and are computed by this machine's processor.

Before it: `pipeline`, which brings the batches; `image_samples`. After it: notebook 10.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from labkit.device import AcceleratorDevice, Device
from labkit.lab.image_samples import as_float
from labkit.simulated import SimulatedDevice

__all__ = ["Training", "small_net"]

_LEARNING_RATE = 0.003


def small_net(classes: int) -> nn.Sequential:
    """Three convolutions and a mean over what is left: (n, 3, side, side) → (n, classes).

    Its norm is of one sample, so that it says the same in training and afterwards.
    """
    layers: list[nn.Module] = []
    for before, after, size in ((3, 8, 5), (8, 16, 3), (16, 16, 3)):
        layers += [nn.Conv2d(before, after, size, 2), nn.GroupNorm(1, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, classes))


class Training:
    """The net, its optimiser, and the device on which it learns.

    Args:
        device: where the batches are, too.
        classes: that are told apart.
        seed: of its first weights.
    """

    def __init__(self, device: Device, classes: int, seed: int = 0) -> None:
        self.device = device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.net = small_net(classes)
        if isinstance(device, AcceleratorDevice):
            self.net.to(device.device)
        self._optimiser = torch.optim.Adam(self.net.parameters(), _LEARNING_RATE)

    def step(self, images: Any, labels: Any) -> Any:
        """Issue a step of learning on the current stream; returns its loss, on the device.

        Args:
            images: on the device: float32 from 0 to 1 or uint8, (n, 3, side, side).
            labels: on the device: whole numbers (n,).
        """
        if isinstance(self.device, SimulatedDevice):
            return self.device.run(self._learn, images, labels, seconds=0.0)
        return self._learn(images, labels)

    def right(self, samples: Iterable[tuple[torch.Tensor, int]]) -> int:
        """Of how many samples, in the host's memory, the net says the right label."""
        images, labels = zip(*samples, strict=True)
        at = next(self.net.parameters()).device
        self.device.synchronize()
        with torch.no_grad():
            said = self.net(as_float(torch.stack(images)).to(at)).argmax(dim=1).cpu()
        return int((said == torch.tensor(labels)).sum())

    def _learn(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.net(as_float(images)), labels)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return loss.detach()
