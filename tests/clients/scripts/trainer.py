"""transformers' Trainer: trains to step 5, saving at step 3; then resumes there. Prints whether the weights agree."""

import torch
import transformers

transformers.logging.set_verbosity_error()


class Words(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.arange(index, index + 16) % 64
        return {"input_ids": words, "labels": words}


def trainer(steps: int, folder: str) -> transformers.Trainer:
    transformers.set_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, attention_dropout=0.1,
    )  # fmt: skip
    arguments = transformers.TrainingArguments(
        folder, max_steps=steps, save_steps=3, logging_steps=1,
        per_device_train_batch_size=4, report_to=[], disable_tqdm=True, lr_scheduler_type="constant",
        learning_rate=1e-2, dataloader_pin_memory=True,
    )  # fmt: skip
    return transformers.Trainer(transformers.Qwen3ForCausalLM(config), arguments, train_dataset=Words())


straight = trainer(5, "straight")
assert straight.args.device.type == "musa", straight.args.device
losses = straight.train()
resumed = trainer(5, "straight")
resumed.train(resume_from_checkpoint="straight/checkpoint-3")
first, second = straight.model.state_dict(), resumed.model.state_dict()
assert all(weight.device.type == "musa" for weight in first.values())
print(straight.state.global_step, resumed.state.global_step)
print("equal" if all(torch.equal(first[name], second[name]) for name in first) else "different")
