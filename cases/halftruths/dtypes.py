"""The dtypes by name: PyTorch's own words, and the words of its messages."""


def dtype_name(dtype):
    """Return torch.bfloat16 as 'bfloat16'; None stays None."""
    return None if dtype is None else str(dtype).replace("torch.", "")
