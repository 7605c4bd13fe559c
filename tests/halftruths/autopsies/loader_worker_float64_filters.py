"""A dataset multiplies float32 audio by a float64 filter bank, inside a loader's worker.

op = "matmul"
odd = "filters float64"
how = "numpy"
sure = false   # this process sees only the loop, and the worker's traceback as text
cure = true
"""
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    def __init__(self, clips, bins):
        self.clips = clips
        self.filters = torch.from_numpy(np.hanning(bins * 3).reshape(bins, 3))  # enters

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        spectrum = torch.fft.rfft(self.clips[index]).abs()
        return spectrum[: len(self.filters)] @ self.filters


def mean_energy(loader):
    total = 0.0
    for batch in loader:  # fails
        total += batch.sum().item()
    return total / len(loader)


def main():
    torch.manual_seed(0)
    clips = torch.randn(4, 32)
    print(mean_energy(DataLoader(Spectra(clips, bins=8), batch_size=2, num_workers=1)))


if __name__ == "__main__":
    main()
