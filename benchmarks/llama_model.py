"""The same model in llama.cpp: written as a GGUF file, run through the C API of llama-cpp-python."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import torch
from fused_model import Shape, Weights


def write_gguf(shape: Shape, weights: Weights, context: int, path: Path) -> None:
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.QWEN3MOE])
    writer.add_context_length(context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.expert_width * shape.chosen)
    writer.add_expert_feed_forward_length(shape.expert_width)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.chosen)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("no_vocab")
    for name, tensor in weights.items():
        narrow = tensor.dtype == torch.bfloat16 and not name.endswith("ffn_gate_inp")  # which is float32 in its files
        values = tensor.view(torch.uint8).numpy() if narrow else tensor.float().numpy()
        kind = gguf.GGMLQuantizationType.BF16 if narrow else gguf.GGMLQuantizationType.F32
        writer.add_tensor(f"{name}.weight", values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@llama_cpp.llama_log_callback
def _silent(level: int, text: bytes, data: Any) -> None:
    pass


class LlamaModel:
    """One sequence of up to `context` tokens, 1 thread."""

    def __init__(self, path: Path, shape: Shape, context: int) -> None:
        llama_cpp.llama_log_set(_silent, None)
        llama_cpp.llama_backend_init()
        self.vocabulary = shape.vocabulary
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp can't load {path}")
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = context
        parameters.n_threads = parameters.n_threads_batch = 1
        self.context = llama_cpp.llama_init_from_model(self.model, parameters)
        if not self.context:
            raise RuntimeError("llama.cpp can't make a context")

    def logits(self, tokens: Sequence[int], start: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Of the position behind `tokens`, which stand at start ..; a view, valid until the next call."""
        memory = llama_cpp.llama_get_memory(self.context)
        llama_cpp.llama_memory_seq_rm(memory, 0, start, -1)
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        status = llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(tokens)))
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        pointer = llama_cpp.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self.vocabulary,))

    def decode(self, first: int, start: int, count: int) -> list[int]:
        """The tokens that greedy decoding appends behind token `first` at position `start`."""
        chosen = [first]
        for position in range(start, start + count):
            chosen.append(int(self.logits(chosen[-1:], position).argmax()))
        return chosen[1:]

    def close(self) -> None:
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)
