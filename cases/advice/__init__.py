"""The catalogue of advice: where its checks stand. Those beside no case are in this folder."""

MODULES = (
    "cases.advice.autocast",
    "cases.advice.arithmetic",
    "cases.advice.compiled",
    "cases.advice.distributed",
    "cases.encoder_bf16.advice",
    "cases.advice.debugging",
    "cases.llama_vision.advice",
    "cases.advice.loading",
    "cases.chatglm_prefix.advice",
    "cases.cpu_half.advice",
    "cases.advice.devices",
)
