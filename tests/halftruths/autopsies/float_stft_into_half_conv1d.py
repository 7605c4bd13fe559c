"""The spectrogram is taken in float32, as there is no half STFT, and is never cast back.

module = "encoder.conv_in"
op = "conv1d"
odd = "input float32"
how = "cast"
sure = true
cure = true
"""

import torch
from torch import nn


class AudioEncoder(nn.Module):
    def __init__(self, bins, width):
        super().__init__()
        self.conv_in = nn.Conv1d(bins, width, kernel_size=3, padding=1)
        self.conv_out = nn.Conv1d(width, width, kernel_size=3, stride=2, padding=1)

    def forward(self, spectra):
        return self.conv_out(torch.relu(self.conv_in(spectra)))  # fails


class KeywordSpotter(nn.Module):
    def __init__(self, size=64, words=5):
        super().__init__()
        self.size = size
        self.encoder = AudioEncoder(size // 2 + 1, 24)
        self.words = nn.Linear(24, words)
        self.register_buffer("window", torch.hann_window(size))

    def spectra(self, waves):
        waves, window = waves.float(), self.window.float()  # enters
        bins = torch.stft(waves, self.size, window=window, return_complex=True)
        return torch.log1p(bins.abs())

    def forward(self, waves):
        frames = self.encoder(self.spectra(waves))
        return self.words(frames.mean(-1))


spotter = KeywordSpotter().half().eval()
clip = torch.sin(torch.arange(1024) / 7).half()
with torch.inference_mode():
    spotter(clip[None])
