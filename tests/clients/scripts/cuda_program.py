"""A program written for CUDA: torchada takes it to the card that is there. It names no other device than cuda."""

import sys

import torch
import torch.nn as nn
import torchada  # the one line that its README asks for

print("patched" if torchada.is_patched() else "not patched", torchada.get_platform().name)

device = torch.device("cuda")
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
model = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
data = torch.randn(4, 8, 32).to("cuda:0", non_blocking=True)
stream = torch.cuda.Stream()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for _ in range(3):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(data).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) > 0
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    doubled = data * 2
torch.cuda.current_stream().wait_stream(stream)
assert torch.equal(doubled.cpu(), data.cpu() * 2)
assert data.is_cuda
assert next(model.parameters()).is_cuda
assert torch.cuda.device_count() >= 1
assert torch.cuda.current_device() == 0
assert torch.cuda.memory_allocated() > 0
assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
assert torch.cuda.get_device_properties(0).total_memory == torch.cuda.mem_get_info()[1]
generator = torch.Generator("cuda").manual_seed(1)
first = torch.randn(4, device="cuda", generator=generator)
assert torch.equal(first, torch.randn(4, device="cuda", generator=torch.Generator("cuda").manual_seed(1)))

a, b = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(3, 4)
for dtype in (torch.float32, torch.bfloat16):  # torchada asks for an output dtype where CUDA takes one
    product = torch.mm(a.to(device, dtype), b.to(device, dtype), out_dtype=torch.float32)
    assert torch.equal(product.cpu(), a @ b), dtype

if "graph" in sys.argv[1:]:
    static = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = static * 2 + 1
    static.fill_(3)
    graph.replay()
    assert result.tolist() == [7.0] * 4
    print("graph")
print("done")
