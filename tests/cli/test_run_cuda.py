"""`musa-sim run --cuda`: a script that never says musa."""

import re


def summary(done) -> dict[str, int]:
    return {name: int(count) for count, name in re.findall(r"^\s+(\d+)x  (.*)$", done.stderr, re.MULTILINE)}


def test_a_training_script_for_cuda_runs(musa_sim, script):
    path = script("""
        import torch
        from torch import nn
        from torch.cuda.amp import GradScaler

        assert torch.cuda.is_available() and torch.cuda.device_count() == 2
        device = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")
        torch.cuda.set_device(device)
        torch.manual_seed(0); torch.cuda.manual_seed_all(0)
        model = nn.Linear(8, 4).to(device)
        other = nn.Linear(4, 1).cuda(1)
        scaler = GradScaler()
        optimizer = torch.optim.AdamW([*model.parameters(), *other.parameters()])
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(2):
            x = torch.randn(16, 8, device="cuda:1")
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = other(model(x).relu()).square().mean()
            scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
        end.record(); torch.cuda.synchronize()
        assert start.elapsed_time(end) > 0
        assert x.is_cuda and x.cuda() is not None and isinstance(device, torch.device)
        with torch.cuda.stream(torch.cuda.Stream(device="cuda:1")) as _, torch.cuda.device("cuda:0"):
            assert torch.cuda.current_device() == 0
        assert torch.cuda.memory_allocated("cuda:1") > 0 and torch.cuda.get_device_properties(device).total_memory > 0
        print(loss.device, torch.zeros(1).to("cuda").device)
    """)
    done = musa_sim("run", "--cuda", "--cards", "2", path)
    assert done.stdout == "musa:1 musa:1\n"
    counts = summary(done)
    assert counts["torch.cuda.is_available"] == 2
    assert counts["torch.cuda.Event"] == 2
    assert counts['"cuda" in torch.device'] == 1
    assert counts['"cuda" in randn'] == 2
    assert counts["Module.cuda"] == 1
    assert counts["torch.cuda.amp.GradScaler"] == 1
    assert "not mapped" not in done.stderr


def test_saved_files_and_generators(musa_sim, script):
    path = script("""
        import io, torch
        tensors = {"a": torch.arange(3.0, device="cuda")}
        file = io.BytesIO(); torch.save(tensors, file)
        for where in ("cuda", "cuda:0", {"musa:0": "cuda:1"}, torch.device("cuda", 1), None):
            file.seek(0)
            print(torch.load(file, map_location=where)["a"].device)
        generator = torch.Generator(device="cuda").manual_seed(3)
        print(torch.rand(1, generator=generator, device="cuda").device, isinstance(generator, torch.Generator))
        torch.set_default_device("cuda")
        print(torch.ones(1).device)
    """)
    done = musa_sim("run", "--cuda", "--cards", "2", path)
    assert done.stdout.split() == ["musa:0", "musa:0", "musa:1", "musa:1", "musa:0", "musa:0", "True", "musa:0"]


def test_tensor_types_by_name(musa_sim, script):
    path = script("""
        import torch
        for kind in ("torch.cuda.HalfTensor", torch.cuda.HalfTensor):
            there = torch.ones(2).type(kind)
            print(there.type(), there.device)
    """)
    done = musa_sim("run", "--cuda", path)
    assert done.stdout == "torch.musa.HalfTensor musa:0\n" * 2
    assert '"torch.cuda...Tensor" in type' in done.stderr


def test_a_file_saved_on_cuda_opens_on_the_musa_card_of_that_number(musa_sim, script):
    path = script("""
        import torch
        from torch_musa_sim.cli import _cuda
        places = _cuda._Locations(_cuda._Names(_cuda.Mapping()))
        storage = torch.ones(2).untyped_storage()
        print(places(storage, "cuda:1").device, places(storage, "cpu"))
    """)
    assert musa_sim("run", "--cards", "2", path).stdout == "musa:1 None\n"


def test_what_has_no_counterpart_is_listed(musa_sim, script):
    path = script("""
        import torch
        try:
            torch.cuda.no_such_name
        except AttributeError as error:
            print(error)
    """)
    done = musa_sim("run", "--cuda", path)
    assert done.stdout == "module 'torch.cuda' has no attribute 'no_such_name'\n"
    assert "not mapped, as it has no counterpart:" in done.stderr
    assert summary(done)["torch.cuda.no_such_name"] == 1


def test_torch_itself_goes_on_seeing_no_cuda(musa_sim, script):
    path = script("""
        import torch
        assert torch.cuda.is_available()
        assert torch._utils._get_available_device_type() == "musa", torch._utils._get_available_device_type()
        torch.manual_seed(1); a = torch.rand(3, device="cuda")
        torch.manual_seed(1); b = torch.rand(3, device="cuda")
        assert torch.equal(a, b)
        layer = torch.nn.LSTM(4, 4).cuda()
        layer(torch.ones(2, 1, 4).cuda())[0].sum().backward()
        torch.optim.Adam(layer.parameters(), fused=True).step()
        print(next(layer.parameters()).grad.device)
    """)
    assert musa_sim("run", "--cuda", path).stdout == "musa:0\n"


def test_backend_switches_are_those_of_musa(musa_sim, script):
    path = script("""
        import torch
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
        print(torch.backends.musa.matmul.allow_tf32, torch.backends.cuda.flash_sdp_enabled())
    """)
    done = musa_sim("run", "--cuda", path)
    assert done.stdout == "True True\n"
    assert summary(done)["torch.backends.cuda.matmul"] == 1


def test_threads_of_the_program_are_mapped_too(musa_sim, script):
    path = script("""
        import threading, torch
        found = []
        thread = threading.Thread(target=lambda: found.append(torch.ones(1, device="cuda").device))
        thread.start(); thread.join()
        print(found[0])
    """)
    assert musa_sim("run", "--cuda", path).stdout == "musa:0\n"


def test_without_the_option_nothing_is_mapped(musa_sim, script):
    path = script("import torch\nprint(torch.cuda.is_available(), torch.device('cuda').type)\n")
    assert musa_sim("run", path).stdout == "False cuda\n"


def test_subclasses_and_annotations_of_mapped_classes_work(musa_sim, script):
    path = script("""
        import torch
        from typing import Optional
        class Mine(torch.cuda.Stream):
            pass
        def f(device: torch.device | None, stream: Optional[torch.cuda.Stream] = None) -> "torch.device": ...
        stream = Mine()
        print(isinstance(stream, torch.cuda.Stream), isinstance(torch.cuda.current_stream(), torch.cuda.Stream),
              isinstance(3, torch.cuda.Stream), isinstance("cuda", torch.device))
        print(stream.cuda_stream == stream.musa_stream)
    """)
    assert musa_sim("run", "--cuda", path).stdout == "True True False False\nTrue\n"


def test_nccl_becomes_mccl_where_there_is_one_and_is_noted_otherwise(musa_sim, script):
    path = script("""
        import os, torch, torch.distributed as dist
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
        try:
            dist.init_process_group("nccl", rank=0, world_size=1)
            print("made", dist.get_backend())
        except Exception as error:
            print("failed")
    """)
    done = musa_sim("run", "--cuda", path)
    assert '"nccl" in torch.distributed.init_process_group' in summary(done)
    assert done.stdout == ("failed\n" if "not mapped" in done.stderr else "made mccl\n")
