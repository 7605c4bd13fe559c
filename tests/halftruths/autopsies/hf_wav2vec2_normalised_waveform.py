"""The recording is normalised in NumPy, which makes it float64, and goes into wav2vec 2.0 so.

module = "wav2vec2.feature_extractor.conv_layers.0.conv"
op = "conv1d"
odd = "input float64"
how = "numpy"
sure = true
cure = true
"""
import numpy as np
import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

RATE = 16000


def record(seconds=0.1):
    time = np.arange(int(RATE * seconds)) / RATE
    return np.sin(2 * np.pi * 220 * time) + 0.1 * np.cos(2 * np.pi * 660 * time)


def normalise(wave):
    return (wave - wave.mean()) / np.sqrt(wave.var() + 1e-7)


class Recogniser:
    def __init__(self, model, vocabulary):
        self.model, self.vocabulary = model.eval(), vocabulary

    def batch(self, waves):
        return torch.from_numpy(np.stack([normalise(wave) for wave in waves]))  # enters

    @torch.inference_mode()
    def transcribe(self, waves):
        best = self.model(self.batch(waves)).logits.argmax(-1)  # fails
        return ["".join(self.vocabulary[token] for token in row) for row in best.tolist()]


torch.manual_seed(0)
config = Wav2Vec2Config(
    vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
    conv_dim=(8, 8), conv_stride=(5, 4), conv_kernel=(10, 8), num_feat_extract_layers=2,
    num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2)
print(Recogniser(Wav2Vec2ForCTC(config), "_abcdefg").transcribe([record(), record()]))
