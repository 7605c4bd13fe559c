"""Whisper is loaded in half; the log-mel features are computed by hand in float32.

module = "model.encoder.conv1"
op = "conv1d"
odd = "input float32"
how = "made"
sure = true
cure = true
"""
import math

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration


def log_mel(audio, n_mels, n_fft=64, hop=16):
    window = torch.hann_window(n_fft)
    spec = torch.stft(audio, n_fft, hop, window=window, return_complex=True)[..., :-1]
    power = spec.abs().square()
    filters = torch.eye(n_mels, n_fft // 2 + 1)
    mel = (filters @ power).clamp(min=1e-10).log10()
    return (mel.maximum(mel.max() - 8.0) + 4.0) / 4.0


def tone(seconds, rate=1000, pitch=50):
    t = torch.arange(int(seconds * rate)) / rate
    return torch.sin(2 * math.pi * pitch * t)


cfg = WhisperConfig(
    vocab_size=40, num_mel_bins=8, d_model=16, encoder_layers=1, decoder_layers=1,
    encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
    max_source_positions=30, max_target_positions=16, pad_token_id=0, bos_token_id=1,
    eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
)
torch.manual_seed(0)
whisper = WhisperForConditionalGeneration(cfg).half().eval()
features = log_mel(tone(0.96), cfg.num_mel_bins)[None]
with torch.no_grad():
    out = whisper(input_features=features, decoder_input_ids=torch.tensor([[1, 5]]))  # fails
