"""PyPI's mthreads-ml-py, unmodified, on libmtml.so.2."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

LIBRARIES = Path(__file__).resolve().parent.parent.parent / "torch_musa_sim" / "lib"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pymtml") is None, reason="mthreads-ml-py is not installed: pip install mthreads-ml-py"
)


def client(code: str, **settings: str) -> str:
    """What a program without torch prints that finds the library as on hardware, by its name on the search path."""
    scope = f"mtml.{os.getpid()}"
    done = subprocess.run(
        [sys.executable, "-c", "import json\nfrom pymtml import *\n" + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "LD_LIBRARY_PATH": str(LIBRARIES), "TORCH_MUSA_SIM_SCOPE": scope, **settings},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_it_lists_the_cards():
    code = """
    nvmlInit()
    cards = []
    for i in range(nvmlDeviceGetCount()):
        handle = nvmlDeviceGetHandleByIndex(i)
        memory = nvmlDeviceGetMemoryInfo(handle)
        cards.append([nvmlDeviceGetIndex(handle), nvmlDeviceGetName(handle), nvmlDeviceGetUUID(handle),
                      memory.total, memory.used, memory.free, nvmlDeviceGetPciInfo(handle).busId])
    print(json.dumps([nvmlSystemGetDriverVersion(), cards]))
    nvmlShutdown()
    """
    driver, cards = json.loads(client(code, TORCH_MUSA_SIM_CARDS="2", TORCH_MUSA_SIM_MEMORY="1GiB"))
    assert driver == "3.3.5-sim"
    uuid = "746f7263-685f-6d75-7361-5f73696d00"
    assert cards == [
        [0, "MTT S5000", f"{uuid}00", 1 << 30, 0, 1 << 30, "00000000:01:00.0"],
        [1, "MTT S5000", f"{uuid}01", 1 << 30, 0, 1 << 30, "00000000:02:00.0"],
    ]


def test_a_card_is_found_by_uuid_and_by_its_place_on_the_bus():
    code = """
    nvmlInit()
    h = nvmlDeviceGetHandleByIndex(3)
    print(nvmlDeviceGetIndex(nvmlDeviceGetHandleByUuid(nvmlDeviceGetUUID(h))),
          nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId(nvmlDeviceGetPciInfo(h).busId)))
    for call in (lambda: nvmlDeviceGetHandleByUuid("no"), lambda: nvmlDeviceGetHandleByIndex(8)):
        try: call()
        except MTMLError_NotFound as error: print(error)
    """
    assert client(code) == "3 3\nNot Found\nNot Found"


def test_figures_are_those_of_the_card_file():
    code = """
    nvmlInit()
    h = nvmlDeviceGetHandleByIndex(0)
    memory, gpu, pci = mtmlDeviceInitMemory(h), mtmlDeviceInitGpu(h), mtmlDeviceGetPciInfo(h)
    print(json.dumps({
        "clocks": [nvmlDeviceGetClockInfo(h, NVML_CLOCK_SM), nvmlDeviceGetMaxClockInfo(h, NVML_CLOCK_MEM)],
        "memory": [mtmlMemoryGetBusWidth(memory), mtmlMemoryGetBandwidth(memory), mtmlMemoryGetType(memory)],
        "idle": [nvmlDeviceGetPowerUsage(h), nvmlDeviceGetTemperature(h, NVML_TEMPERATURE_GPU),
                 nvmlDeviceGetUtilizationRates(h).gpu, nvmlDeviceGetUtilizationRates(h).memory],
        "pci": [hex(pci.pciDeviceId & 0xffff), pci.pciCurGen, pci.pciCurWidth, pci.pciMaxSpeed],
        "brand": mtmlDeviceGetBrand(h), "ecc": nvmlDeviceGetEccMode(h), "minor": nvmlDeviceGetMinorNumber(h),
        "links": mtmlDeviceGetProperty(h).mtLinkCapability,
    }))
    """
    s5000 = json.loads(client(code))
    assert s5000 == {
        "clocks": [1500, 20000],
        "memory": [640, 1600, 1],
        "idle": [95000, 45, 0, 0],
        "pci": ["0x1ed5", 5, 16, 32.0],
        "brand": 0,
        "ecc": [1, 1],
        "minor": 128,
        "links": 1,
    }
    s80 = json.loads(client(code, TORCH_MUSA_SIM_CARD="S80"))
    assert (s80["memory"], s80["ecc"], s80["links"]) == ([256, 448, 1], [0, 0], 0)


def test_memory_and_work_of_another_process_are_seen(tmp_path):
    scope = f"mtml.{os.getpid()}.busy"
    program = """
    import sys, torch
    keep = torch.ones(64 << 20, device="musa")
    torch.musa._sleep(1_500_000_000); torch.musa.synchronize()
    print("ready", flush=True); sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, "TORCH_MUSA_SIM_SCOPE": scope, "MUSA_VISIBLE_DEVICES": "1"},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        code = """
        nvmlInit()
        h = nvmlDeviceGetHandleByIndex(1)
        print(nvmlDeviceGetMemoryInfo(h).used >> 20, nvmlDeviceGetUtilizationRates(h).gpu,
              nvmlDeviceGetPowerUsage(h), nvmlDeviceGetTemperature(h, 0),
              nvmlDeviceGetMemoryInfo(nvmlDeviceGetHandleByIndex(0)).used)
        """
        used, busy, power, temperature, idle = map(int, client(code, TORCH_MUSA_SIM_SCOPE=scope).split())
        other.communicate("")
    assert used >= 256
    assert 95 <= busy <= 100
    assert 900_000 < power <= 950_000
    assert 78 <= temperature <= 80
    assert idle == 0


def test_links_connect_the_cards_of_a_mesh():
    code = """
    nvmlInit()
    h = [nvmlDeviceGetHandleByIndex(i) for i in range(nvmlDeviceGetCount())]
    spec = mtmlDeviceGetMtLinkSpec(h[0])
    far = [mtmlDeviceGetIndex(mtmlDeviceGetMtLinkRemoteDevice(h[0], i)) for i in range(spec.linkNum)]
    layouts = [(l.localLinkId, l.remoteLinkId) for l in mtmlDeviceGetMtLinkLayouts(h[1], h[2], 2)]
    print(json.dumps({
        "spec": [spec.version, spec.bandWidth, spec.linkNum], "far": far, "layouts": layouts,
        "pairs": [mtmlDeviceCountMtLinkLayouts(h[0], h[7]), mtmlDeviceCountMtLinkLayouts(h[0], h[0])],
        "nvlink": [nvmlDeviceGetP2PStatus(h[0], h[5], NVML_P2P_CAPS_INDEX_NVLINK), nvmlDeviceGetNvLinkState(h[0], 3)],
        "level": [nvmlDeviceGetTopologyCommonAncestor(h[0], h[i]) for i in (0, 3, 4)],
        "near": [mtmlDeviceGetIndex(d) for d in nvmlDeviceGetTopologyNearestGpus(h[0], NVML_TOPOLOGY_NODE)],
    }))
    """
    found = json.loads(client(code))
    assert found["spec"] == [20000, 53, 14]
    assert found["far"] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    assert found["layouts"] == [[2, 2], [3, 3]]
    assert found["pairs"] == [2, 0]
    assert found["nvlink"] == [0, 1]
    assert found["level"] == [0, 40, 50]
    assert found["near"] == [1, 2, 3]
    alone = "nvmlInit(); h = nvmlDeviceGetHandleByIndex(0); print(mtmlDeviceGetMtLinkState(h, 0))"
    assert client(alone, TORCH_MUSA_SIM_CARDS="1") == "0"


def test_what_a_simulated_card_lacks_is_not_supported():
    code = """
    nvmlInit()
    h = nvmlDeviceGetHandleByIndex(0)
    calls = [lambda: mtmlDeviceInitVpu(h), lambda: mtmlDeviceCountFan(h), lambda: mtmlDeviceReset(h),
             lambda: mtmlMemoryGetRetiredPagesCount(mtmlDeviceInitMemory(h))]
    for call in calls:
        try: call()
        except MTMLError_NotSupported as error: print(error)
    print(nvmlDeviceGetFanSpeed(h), nvmlDeviceGetEncoderUtilization(h))
    """
    assert client(code) == "Not Supported\n" * 4 + "0 [0, 0]"


def test_handles_are_checked():
    code = """
    from ctypes import byref, c_uint, c_void_p
    nvmlInit()
    h = nvmlDeviceGetHandleByIndex(0)
    lib, count = CDLL("libmtml.so.2"), c_uint()
    print(lib.mtmlDeviceGetIndex(c_void_p(12345), byref(count)), lib.mtmlDeviceGetIndex(None, byref(count)),
          lib.mtmlDeviceGetIndex(h, None), lib.mtmlDeviceGetName(h, create_string_buffer(4), 4))
    nvmlShutdown()
    print(lib.mtmlDeviceGetIndex(h, byref(count)))
    """
    assert client(code) == "3 3 3 6\n1"


def test_a_bad_setting_fails_with_its_sentence_on_stderr():
    code = "from pymtml import *\ntry: nvmlInit()\nexcept MTMLError as error: print(error.value, error)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "LD_LIBRARY_PATH": str(LIBRARIES), "TORCH_MUSA_SIM_CARD": "H100"},
    )
    assert done.stdout == "2 Driver Failure\n"
    assert "TORCH_MUSA_SIM_CARD=H100 is no known card model" in done.stderr


def test_after_first_use_of_the_device_it_is_found_without_a_search_path():
    code = """
    import torch
    torch.ones(1, device="musa")
    import pymtml
    pymtml.nvmlInit()
    handle = pymtml.nvmlDeviceGetHandleByIndex(0)
    print(pymtml.nvmlDeviceGetMemoryInfo(handle).used > 0, pymtml.nvmlDeviceGetCudaComputeCapability(handle))
    """
    clean = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd="/", env=clean
    )
    assert done.stdout == "True (3, 1)\n", done.stderr


def test_it_is_loaded_by_the_first_use_of_the_device_and_not_by_import_torch():
    code = """
    import torch
    loaded = lambda: "libmtml.so.2" in open("/proc/self/maps").read()
    before = torch.musa.device_count() > 0 and loaded()
    torch.ones(1, device="musa")
    print(before, loaded())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd="/")
    assert done.stdout == "False True\n", done.stderr


def test_libraries_carry_their_real_names():
    for name in ("libmusart.so", "libmtml.so.2"):
        content = (LIBRARIES / name).read_bytes()
        assert name.encode() + b"\0" in content
