"""Dividing by 255 in NumPy gives float64 pixels, and the convolution is float32.

module = "stem.0"
op = "conv2d"
odd = "input float64"
how = "numpy"
sure = true
cure = true
"""

import numpy as np
import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU())
        self.boxes = nn.Conv2d(8, 5, 1)

    def forward(self, images):
        return self.boxes(self.stem(images))  # fails


def read_photo(height=32, width=48):
    """A photo as an image library would hand it over: (height, width, 3) of uint8."""
    return np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)


def detect(model, photo):
    pixels = photo / 255.0
    pixels = (pixels - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    batch = torch.from_numpy(pixels.transpose(2, 0, 1))[None]  # enters
    with torch.no_grad():
        return model(batch)


print(detect(Detector().eval(), read_photo()).shape)
