"""Names, indices and types of the device, wherever torch prints or parses them."""

import pickle

import pytest
import torch

TYPES = {
    torch.float32: "FloatTensor", torch.float64: "DoubleTensor", torch.float16: "HalfTensor",
    torch.bfloat16: "BFloat16Tensor", torch.int64: "LongTensor", torch.int32: "IntTensor", torch.int16: "ShortTensor",
    torch.int8: "CharTensor", torch.uint8: "ByteTensor", torch.bool: "BoolTensor",
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "name"), TYPES.items(), ids=str)
def test_type_strings(dtype, name):
    x = torch.zeros(2, device="musa", dtype=dtype)
    assert x.type() == f"torch.musa.{name}"
    assert x.cpu().type(f"torch.musa.{name}").device == torch.device("musa:0")
    assert x.type(f"torch.{name}").device.type == "cpu"


def test_strings_of_the_device():
    assert str(torch.device("musa", 1)) == "musa:1"
    assert torch.device("musa") != torch.device("musa:0")
    x = torch.zeros(2, device="musa")
    assert str(x.device) == "musa:0"
    assert "device='musa:0'" in repr(x)
    assert pickle.loads(pickle.dumps(torch.device("musa:1"))) == torch.device("musa:1")


@pytest.mark.parametrize("text", ["musa:-1", "musa:x", "musa:0:1", "musa:01", "musas"])
def test_bad_device_strings(text):
    with pytest.raises(RuntimeError):
        torch.device(text)


def test_methods_named_after_the_device():
    x = torch.zeros(1)
    assert not x.is_musa
    assert x.musa().is_musa
    assert next(torch.nn.Linear(1, 1).musa().parameters()).is_musa
    assert x.musa(1).device == torch.device("musa:1")
    assert torch.nn.utils.rnn.pack_sequence([torch.ones(2)]).musa().data.is_musa
    assert x.untyped_storage().musa().device.type == "musa"


def test_an_integer_means_a_card():
    assert torch.device(1) == torch.device("musa:1")
    assert torch.zeros(1).to(0).device == torch.device("musa:0")
    assert torch.empty(1, device=1).device == torch.device("musa:1")
    assert torch.nn.Linear(1, 1).to(1).weight.device == torch.device("musa:1")


def test_the_accelerator_is_musa():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("musa")
    assert torch.accelerator.device_count() == torch.musa.device_count()


def test_default_device():
    with torch.device("musa"):
        assert torch.ones(1).is_musa
        assert torch.nn.Linear(2, 2).weight.is_musa
    torch.set_default_device("musa:1")
    try:
        assert torch.arange(3).device == torch.tensor([1.0]).device == torch.device("musa:1")
    finally:
        torch.set_default_device(None)
    assert torch.ones(1).device.type == "cpu"


@pytest.mark.parametrize("target", ["musa", "musa:0", torch.device("musa"), torch.device("musa:0"), 0], ids=str)
def test_moving_to_the_same_card_is_free(target):
    x = torch.zeros(1, device="musa")
    assert x.to(target) is x
    assert x.to(target, torch.float32) is x
    assert x.to(target, copy=True) is not x


def test_card_out_of_range():
    missing = torch.musa.device_count()
    for make in (
        lambda: torch.zeros(1, device=f"musa:{missing}"),
        lambda: torch.zeros(1).to(missing),
        lambda: torch.zeros(1).musa(missing),
        lambda: torch.zeros(1, device="musa:0").to(f"musa:{missing}"),
    ):
        with pytest.raises(RuntimeError, match=r"(?i)device|ordinal"):
            make()


def test_device_module():
    assert torch.get_device_module("musa") is torch.musa
    assert torch.get_device_module() is torch.musa
    assert torch.musa.current_device() == 0
    assert isinstance(torch.musa.get_device_name(0), str)
    properties = torch.musa.get_device_properties(0)
    assert properties.total_memory > 0
    assert properties.name == torch.musa.get_device_name(0)
    assert properties.multi_processor_count > 0
    assert (properties.major, properties.minor) == torch.musa.get_device_capability(0)


def test_storages():
    storage = torch.arange(16, dtype=torch.uint8, device="musa").untyped_storage()
    assert storage.device == torch.device("musa:0")
    assert storage.nbytes() == 16
    assert storage.clone().device == storage.device
    assert storage[3] == 3
    assert list(storage.cpu()) == list(range(16))
    part = storage[8:16]
    assert part.device == storage.device
    assert part.nbytes() == 8
    torch.empty(0, dtype=torch.uint8, device="musa").set_(part).fill_(7)
    assert list(storage.cpu()) == [*range(8), *[7] * 8], "a slice shares the storage's memory"


def test_automatic_device_map_names_cards(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path, device_map="auto").eval()
    assert {torch.device(place).type for place in loaded.hf_device_map.values()} == {"musa"}
    tokens = torch.arange(9)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(tokens.to("musa")).logits.cpu(), model(tokens).logits, rtol=1e-5, atol=1e-5)
