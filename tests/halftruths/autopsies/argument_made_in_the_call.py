"""A bfloat16 batch is made inside the call of a float32 layer: no name holds it.

module = ""
op = "linear"
odd = "input bfloat16"
how = "made"
sure = true
cure = true
"""

import torch

probe = torch.nn.Linear(6, 1)
print(probe(torch.ones(3, 6, dtype=torch.bfloat16)).shape)  # enters, fails
