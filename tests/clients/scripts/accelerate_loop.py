"""An Accelerator loop with autocast; for float16 the scaler takes part. Prints the loss before and after."""

import sys

import torch
from accelerate import Accelerator, PartialState

precision = sys.argv[1]
state = PartialState()
assert state.device.type == "musa", state.device
assert state.num_processes == 1
accelerator = Accelerator(mixed_precision=precision)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
data = torch.randn(64, 8)
pairs = torch.utils.data.TensorDataset(data, data.sum(1, keepdim=True))
loader = torch.utils.data.DataLoader(pairs, batch_size=16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
dtypes, losses = set(), []
next(iter(model.children())).register_forward_hook(lambda _m, _i, output: dtypes.add(output.dtype))
for _ in range(8):
    for inputs, wanted in loader:
        assert inputs.device.type == "musa"
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss).item())
if precision == "fp16":
    assert type(accelerator.scaler).__module__.startswith("torch"), type(accelerator.scaler)
    assert accelerator.scaler.get_scale() > 0
print(dtypes, losses[0], losses[-1])
