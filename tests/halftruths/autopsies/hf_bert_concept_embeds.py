"""New words live in a float32 table of their own and are mixed into a half BERT's embeddings.

module = "bert.embeddings.LayerNorm"
op = "layer_norm"
odd = "input float32"
how = "parameter"
sure = true
cure = true
"""
import torch
from torch import nn
from transformers import BertConfig, BertModel


class ConceptBert(nn.Module):
    """A frozen BERT that learns vectors for a few new words."""

    def __init__(self, bert, n_new):
        super().__init__()
        self.bert = bert
        self.first_new = bert.config.vocab_size
        self.concepts = nn.Embedding(n_new, bert.config.hidden_size)

    def embed(self, ids):
        is_new = ids >= self.first_new
        old = self.bert.get_input_embeddings()(ids.masked_fill(is_new, 0))
        new = self.concepts((ids - self.first_new).clamp(min=0))
        return torch.where(is_new[..., None], new, old)

    def forward(self, ids, **kwargs):
        return self.bert(inputs_embeds=self.embed(ids), **kwargs).pooler_output  # fails


cfg = BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                 intermediate_size=32, max_position_embeddings=16)
model = ConceptBert(BertModel(cfg).half(), n_new=2).eval()
out = model(torch.tensor([[2, 30, 7, 31]]), attention_mask=torch.ones(1, 4))
