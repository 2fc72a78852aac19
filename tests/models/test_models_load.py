"""The ways in which transformers and accelerate put a model on musa."""

import gc
import subprocess
import sys

import pytest
import tokenizers
import torch
import transformers
from tiny_models import make_inputs, make_model, to_device

NAME, DTYPE = "qwen3_moe", torch.float32


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    make_model(NAME, DTYPE, "eager").save_pretrained(folder)
    return folder


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(**to_device(make_inputs(NAME, DTYPE), model.device)).logits.cpu()


def load(folder, **options) -> transformers.PreTrainedModel:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, experts_implementation="eager", **options)


@pytest.mark.parametrize(("device_map", "device"), [("musa", "musa:0"), ("auto", "musa:0"), ({"": "musa:1"}, "musa:1")])
def test_device_map(checkpoint, device_map, device):
    if torch.device(device).index >= torch.musa.device_count():
        pytest.skip("one card")
    options = {"max_memory": {0: "1GiB", "cpu": "1GiB"}} if device_map == "auto" else {}
    model = load(checkpoint, device_map=device_map, **options)
    assert {parameter.device for parameter in model.parameters()} == {torch.device(device)}
    assert torch.equal(logits(model), logits(load(checkpoint)))


def test_device_map_over_two_cards(checkpoint):
    if torch.musa.device_count() < 2:
        pytest.skip("one card")
    parts = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.layers.0": 0}
    parts |= {"model.layers.1": 1, "model.norm": 1, "lm_head": 1}
    model = load(checkpoint, device_map={part: f"musa:{card}" for part, card in parts.items()})
    assert {parameter.device.index for parameter in model.parameters()} == {0, 1}
    assert torch.equal(logits(model), logits(load(checkpoint)))


def test_loading_allocates_no_more_than_the_model(checkpoint):
    """transformers allocates and drops the model's size at once before it loads; the allocator must cut that up."""
    gc.collect()  # models of other tests
    torch.musa.empty_cache()
    before = torch.musa.memory_allocated()
    model = load(checkpoint, device_map="musa")
    size = sum(parameter.nbytes for parameter in model.parameters())
    count = len(list(model.parameters()))
    assert size <= torch.musa.memory_allocated() - before <= size + count * 512 + (1 << 20)
    del model
    assert torch.musa.memory_allocated() == before


def test_a_model_saved_from_musa_loads_anywhere(checkpoint, tmp_path):
    model = load(checkpoint, device_map="musa")
    model.save_pretrained(tmp_path)
    expected = load(checkpoint).state_dict()
    for device in ("cpu", "musa"):
        weights = load(tmp_path, device_map=device).state_dict()
        assert list(weights) == list(expected)
        for name, weight in weights.items():
            assert weight.device.type == device
            assert torch.equal(weight.cpu(), expected[name])


def test_tied_weights_stay_tied_on_the_card():
    transformers.set_seed(0)
    model = make_model(NAME, DTYPE, "eager")
    model.config.tie_word_embeddings = True
    model.tie_weights()
    expected = logits(model)
    model.to("musa")
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert torch.equal(logits(model), expected)


def test_sampling_is_repeated_by_its_seed(checkpoint):
    model = load(checkpoint, device_map="musa")

    def sample(seed: int) -> list[list[int]]:
        transformers.set_seed(seed)
        inputs = to_device(make_inputs(NAME, DTYPE), "musa")
        return model.generate(**inputs, max_new_tokens=16, do_sample=True, top_k=50, top_p=0.95).tolist()

    first = sample(1)
    assert sample(1) == first
    assert sample(2) != first


@pytest.mark.parametrize("arguments", [{"device": "musa"}, {"device": 0}, {"device_map": "musa"}], ids=str)
def test_pipeline(checkpoint, arguments):
    vocabulary = {f"w{index}": index for index in range(128)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", pad_token="w0")
    model = load(checkpoint, **({"device_map": "musa"} if "device_map" in arguments else {}))
    options = {key: value for key, value in arguments.items() if key == "device"}
    pipe = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer, **options)
    assert (pipe.device.type, pipe.model.device) == ("musa", torch.device("musa", 0))
    assert pipe("w5", max_new_tokens=4, do_sample=False)[0]["generated_text"].startswith("w5")


def test_accelerate_detects_the_device():
    pytest.importorskip("accelerate")
    code = """
import torch
from accelerate import Accelerator
from accelerate.utils import is_musa_available
from transformers.utils import is_torch_musa_available
assert is_musa_available() and is_torch_musa_available()
accelerator = Accelerator()
assert accelerator.device.type == "musa", accelerator.device
model, data = torch.nn.Linear(4, 4), torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for batch in data:
    assert batch.device.type == "musa"
    accelerator.backward(model(batch).square().sum())
    optimizer.step()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd="/")
    assert done.returncode == 0, done.stderr
