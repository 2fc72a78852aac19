"""A mixture-of-experts model from transformers answers a question: `python examples/answer.py --device musa`.

This is what any script for any accelerator looks like: nothing in it but the device string is about musa.
`python examples/make_checkpoint.py` makes the checkpoint.
"""

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

QUESTION = "What is the capital of France, and what is it famous for?"


def load(checkpoint, device):
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, experts_implementation="eager")
    return model.to(device)


def answer(model, tokenizer, question, length):
    """Prints the answer while it comes, and returns its tokens."""
    conversation = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(
        conversation, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    output = model.generate(**prompt, max_new_tokens=length, do_sample=False, streamer=streamer)
    return output[0, prompt["input_ids"].shape[1] :].tolist()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--device", default="cpu", help="cpu, musa, musa:1, cuda, ... (default: cpu)")
    parser.add_argument("--checkpoint", default=".cache/smollm2-4x135m", help="folder of the model and its tokenizer")
    parser.add_argument("--length", type=int, default=64, help="tokens in the answer, at most (default: 64)")
    arguments = parser.parse_args()
    answer(
        load(arguments.checkpoint, arguments.device),
        AutoTokenizer.from_pretrained(arguments.checkpoint),
        arguments.question,
        arguments.length,
    )
