"""A logits processor adds a float16 vocabulary bias to the float32 scores of generate().

op = "index_add_"
odd = "bias float16"
how = "attribute"
sure = false
cure = true
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList


class VocabularyBias(LogitsProcessor):
    def __init__(self, wishes, dtype):
        self.tokens = torch.tensor(list(wishes))
        self.bias = torch.tensor(list(wishes.values()), dtype=dtype)

    def __call__(self, input_ids, scores):
        bias = self.bias.expand(scores.shape[0], -1)  # enters
        return scores.index_add_(1, self.tokens, bias)  # fails


def complete(model, prompt, wishes):
    processors = LogitsProcessorList([VocabularyBias(wishes, model.dtype)])
    return model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=3,
                          do_sample=False, pad_token_id=0, logits_processor=processors)


torch.manual_seed(0)
config = GPT2Config(vocab_size=30, n_positions=16, n_embd=8, n_layer=1, n_head=2, eos_token_id=1,
                    bos_token_id=2)
model = GPT2LMHeadModel(config).half().eval()
complete(model, torch.tensor([[2, 4, 6], [2, 5, 7]]), {9: 4.0, 11: -8.0})
