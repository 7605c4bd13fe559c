"""The catalogue of advice: where its checks stand. Those beside no case are in this folder."""

MODULES = (
    "cases.encoder_bf16.advice",
)
