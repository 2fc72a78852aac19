"""`musa-sim ops` on three mixture-of-experts models: the whole report, to the byte.

EXPECTTEST_ACCEPT=1 writes the reports anew. Native kernels are off, so that a faster kernel changes nothing here.
"""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import expecttest
import pytest

pytest.importorskip("transformers", reason="pip install 'torch_musa_sim[hf]'")

SCRIPTS = Path(__file__).resolve().parent / "scripts"


def report_of(name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "torch_musa_sim.cli", "ops", str(SCRIPTS / name)],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TORCH_MUSA_SIM_NATIVE": "0",
            "TORCH_MUSA_SIM_SCOPE": f"test.{uuid.uuid4().hex[:12]}",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestReports(expecttest.TestCase):
    def test_qwen3_moe(self):
        self.assertExpectedInline(
            report_of("qwen3_moe.py"),
            """\
Operators of qwen3_moe.py on MTT S5000 (virtual), beside torch_musa-2.7.1

On the card
41 operators (4 native, 37 bridged), 736 calls, 2,193.046 us
operator                                   kernel   calls    bytes  virtual us  torch_musa-2.7.1
aten::_copy_from                           native     157   85,724     458.263  yes
aten::mul.Tensor                           bridged    135   57,828     405.146  yes
aten::add.Tensor                           bridged     77   16,632     231.083  yes
aten::mm                                   bridged     44   79,792     132.080  yes
aten::cat                                  bridged     44   15,824     132.044  composite
aten::pow.Tensor_Scalar                    bridged     36   22,528     108.043  yes
aten::mean.dim                             bridged     36   12,012     108.036  yes
aten::rsqrt                                bridged     36    1,496     108.036  yes
aten::index.Tensor                         bridged     18  118,848      54.100  yes
aten::neg                                  bridged     16    2,112      48.016  yes
aten::bmm                                  bridged     12   39,552      36.036  yes
aten::fill_.Scalar                         bridged     10       80      30.010  yes
aten::_scaled_dot_product_flash_attention  native       8    8,224      24.010  in aten::scaled_dot_product_attention
aten::sum.dim_IntList                      bridged      8    4,224      24.010  yes
aten::_softmax                             bridged      8      704      24.008  yes
aten::silu                                 bridged      8    2,816      24.008  yes
aten::topk                                 bridged      8      880      24.008  yes
aten::arange.start_out                     bridged      7      352      21.007  yes
aten::eq.Scalar                            bridged      6      180      18.006  yes
aten::_local_scalar_dense                  bridged      6        6      15.006  yes
aten::bitwise_not                          bridged      5       10      15.005  yes
aten::_grouped_mm                          native       4   31,808      12.026  newer
aten::index_select                         bridged      4   17,176      12.016  yes
aten::argmax                               bridged      4    1,056      12.004  yes
aten::bitwise_and.Tensor                   bridged      4       68      12.004  yes
aten::bitwise_or.Tensor                    bridged      4       12      12.004  yes
aten::cos                                  bridged      4      704      12.004  yes
aten::max                                  bridged      4       64      12.004  yes
aten::sin                                  bridged      4      704      12.004  yes
aten::cumsum                               bridged      3      192       9.003  yes
aten::_index_put_impl_                     bridged      2    1,024       6.002  yes
aten::any                                  bridged      2       18       6.002  yes
aten::floor_divide                         bridged      2      512       6.002  yes
aten::histc                                native       2      160       6.002  yes
aten::sort.stable                          bridged      2      768       6.002  in aten::sort
aten::all                                  bridged      1        9       3.001  yes
aten::isin.Tensor_Tensor                   bridged      1       80       3.001  yes
aten::lt.Scalar                            bridged      1       72       3.001  yes
aten::masked_fill_.Scalar                  bridged      1      136       3.001  yes
aten::ne.Tensor                            bridged      1       80       3.001  yes
aten::sub.Tensor                           bridged      1      128       3.001  yes

On the card, without a launch (sizes, strides, memory)
operator                                 calls  torch_musa-2.7.1
aten::as_strided                           216  yes
aten::empty_strided                        145  yes
aten::view                                 140  yes
aten::_has_compatible_shallow_copy_type     50  yes
aten::empty.memory_format                   31  yes
aten::scaled_dot_product_attention           8  yes
aten::_reshape_alias                         2  yes

Missing in torch_musa-2.7.1
none

Newer than torch 2.7.1, the torch of that stack
What a program there calls instead can't be seen from here.
operator           calls  here    called by
aten::_grouped_mm      4  native  the program

On the host
operator                   calls    bytes
aten::normal_                 17  198,656
aten::empty.memory_format     34   91,912
aten::uniform_                 9   65,536
aten::fill_.Scalar            18    3,072
aten::zero_                    2    2,048
aten::div.Tensor               2       80
aten::mul.Tensor               2       80
aten::pow.Scalar               2       64
aten::reciprocal               2       64
aten::arange.start_out         2       32
aten::empty_strided            1       16

Copies
direction      calls   bytes
host to card      32  45,976
within a card    125  19,956
""",
        )

    def test_mixtral(self):
        self.assertExpectedInline(
            report_of("mixtral.py"),
            """\
Operators of mixtral.py on MTT S5000 (virtual), beside torch_musa-2.7.1

On the card
48 operators (5 native, 43 bridged), 581 calls, 1,746.494 us
operator                                            kernel   calls    bytes  virtual us  torch_musa-2.7.1
aten::mul.Tensor                                    bridged     84  421,747     252.371  yes
aten::zero_                                         bridged     62  405,504     186.342  yes
aten::_copy_from                                    native      50  237,056     149.406  yes
aten::add_.Tensor                                   bridged     44  497,664     132.398  yes
aten::mul.out                                       bridged     42  380,160     126.314  in aten::_foreach_mul_.Scalar
aten::mm                                            bridged     33  219,648      99.183  yes
aten::div_.Tensor                                   bridged     23  380,800      69.301  yes
aten::addcdiv_                                      bridged     21  760,320      63.581  in aten::_foreach_addcdiv_.ScalarList
aten::addcmul_                                      bridged     21  570,240      63.441  in aten::_foreach_addcmul_.Scalar
aten::lerp_.Scalar                                  bridged     21  570,240      63.441  in aten::_foreach_lerp_.Scalar
aten::sqrt                                          bridged     21  380,160      63.299  in aten::_foreach_sqrt
aten::sum.dim_IntList                               bridged     18   42,944      54.042  yes
aten::add.Tensor                                    bridged     16   56,064      48.052  yes
aten::pow.Tensor_Scalar                             bridged     15   41,600      45.045  yes
aten::_grouped_mm                                   native      12  602,304      36.450  newer
aten::cat                                           bridged     11   70,016      33.059  composite
aten::div.Tensor                                    bridged     11   22,400      33.026  yes
aten::neg                                           bridged     10   12,800      30.014  yes
aten::_index_put_impl_                              bridged      8   45,312      24.038  yes
aten::index.Tensor                                  bridged      6   30,720      18.026  yes
aten::mean.dim                                      bridged      5   10,560      15.010  yes
aten::rsqrt                                         bridged      5      640      15.005  yes
aten::arange.start_out                              bridged      4      704      12.004  yes
aten::silu_backward                                 bridged      2   36,864       6.028  yes
aten::_scaled_dot_product_flash_attention_backward  native       2   25,088       6.020  as aten::_scaled_dot_product_attention_flash_musa_backward
aten::silu                                          bridged      2   24,576       6.020  yes
aten::_scaled_dot_product_flash_attention           native       2   12,848       6.010  in aten::scaled_dot_product_attention
aten::_softmax                                      bridged      2    1,024       6.002  yes
aten::_softmax_backward_data                        bridged      2    1,536       6.002  yes
aten::cumsum                                        bridged      2       64       6.002  yes
aten::fill_.Scalar                                  bridged      2      148       6.002  yes
aten::floor_divide                                  bridged      2    1,024       6.002  yes
aten::histc                                         native       2      288       6.002  yes
aten::scatter_.src                                  bridged      2    1,792       6.002  yes
aten::sort.stable                                   bridged      2    1,536       6.002  in aten::sort
aten::topk                                          bridged      2    1,280       6.002  yes
aten::_log_softmax_backward_data                    bridged      1   12,288       3.010  yes
aten::embedding_dense_backward                      bridged      1   10,368       3.008  yes
aten::index_select                                  bridged      1   10,368       3.008  yes
aten::_log_softmax                                  bridged      1    8,192       3.007  yes
aten::nll_loss_backward                             bridged      1    8,328       3.007  yes
aten::nll_loss_forward                              bridged      1    4,232       3.004  yes
aten::abs.out                                       bridged      1        8       3.001  in aten::abs
aten::cos                                           bridged      1      512       3.001  yes
aten::eq.Tensor                                     bridged      1        5       3.001  yes
aten::ne.Scalar                                     bridged      1        5       3.001  yes
aten::sin                                           bridged      1      512       3.001  yes
aten::_local_scalar_dense                           bridged      1        1       2.501  yes

On the card, without a launch (sizes, strides, memory)
operator                                 calls  torch_musa-2.7.1
aten::as_strided                           146  yes
aten::empty_strided                         77  yes
aten::view                                  68  yes
aten::_has_compatible_shallow_copy_type     42  yes
aten::empty.memory_format                   35  yes
aten::_reshape_alias                         4  yes
aten::scaled_dot_product_attention           2  yes

Missing in torch_musa-2.7.1
none

Newer than torch 2.7.1, the torch of that stack
What a program there calls instead can't be seen from here.
operator           calls  here    called by
aten::_grouped_mm     12  native  the program

On the host
operator                   calls    bytes
aten::normal_                 17  395,264
aten::empty.memory_format     51  190,168
aten::uniform_                 9   65,536
aten::fill_.Scalar            10    2,560
aten::add_.Tensor             21      252
aten::_local_scalar_dense     42      168
aten::div.Tensor               2       80
aten::mul.Tensor               2       80
aten::pow.Scalar               2       64
aten::reciprocal               2       64
aten::arange.start_out         2       32
aten::empty_strided            1       16

Copies
direction      calls    bytes
host to card      27  190,112
within a card     23   23,328
""",
        )

    def test_deepseek_v3(self):
        self.assertExpectedInline(
            report_of("deepseek_v3.py"),
            """\
Operators of deepseek_v3.py on MTT S5000 (virtual), beside torch_musa-2.7.1

On the card
44 operators (3 native, 41 bridged), 275 calls, 810.857 us
operator                   kernel   calls    bytes  virtual us  torch_musa-2.7.1
aten::_copy_from           native      84  181,592     237.928  yes
aten::mul.Tensor           bridged     47  108,080     141.107  yes
aten::add.Tensor           bridged     21   21,648      63.033  yes
aten::mm                   bridged     18   73,728      54.064  yes
aten::cat                  bridged     11   16,768      33.019  composite
aten::pow.Tensor_Scalar    bridged      9   28,672      27.028  yes
aten::mean.dim             bridged      9   14,912      27.014  yes
aten::rsqrt                bridged      9    1,152      27.009  yes
aten::fill_.Scalar         bridged      8      152      24.008  in aten::scaled_dot_product_attention
aten::bmm                  bridged      4   32,768      12.026  in aten::scaled_dot_product_attention
aten::sub.Tensor           bridged      4    3,840      12.006  yes
aten::index.Tensor         bridged      3   12,288       9.011  yes
aten::sum.dim_IntList      bridged      3    6,720       9.007  yes
aten::silu                 bridged      3    6,144       9.006  yes
aten::arange.start_out     bridged      3      448       9.003  yes
aten::topk                 bridged      3    2,496       9.003  yes
aten::_grouped_mm          native       2   31,808       6.025  newer
aten::_softmax             bridged      2    8,192       6.008  in aten::scaled_dot_product_attention
aten::add_.Tensor          bridged      2    8,704       6.008  in aten::scaled_dot_product_attention
aten::isneginf             bridged      2    5,120       6.004  in aten::scaled_dot_product_attention
aten::where.self_out       bridged      2    4,232       6.004  in aten::scaled_dot_product_attention
aten::all.dim              bridged      2    1,152       6.002  in aten::scaled_dot_product_attention
aten::tril                 bridged      2      256       6.002  in aten::scaled_dot_product_attention
aten::where.self           bridged      2      656       6.002  in aten::scaled_dot_product_attention
aten::abs.out              bridged      1    4,096       3.004  in aten::abs
aten::index_select         bridged      1    5,248       3.004  yes
aten::eq.Tensor            bridged      1    3,072       3.003  yes
aten::ne.Scalar            bridged      1    3,072       3.003  yes
aten::_index_put_impl_     bridged      1    1,024       3.001  yes
aten::all                  bridged      1    1,025       3.001  yes
aten::bitwise_not          bridged      1      256       3.001  yes
aten::cos                  bridged      1      512       3.001  yes
aten::cumsum               bridged      1       64       3.001  yes
aten::div_.Tensor          bridged      1      320       3.001  yes
aten::floor_divide         bridged      1      512       3.001  yes
aten::gather               bridged      1      896       3.001  yes
aten::histc                native       1      160       3.001  yes
aten::masked_fill_.Scalar  bridged      1    1,152       3.001  yes
aten::scatter_.value       bridged      1      384       3.001  yes
aten::sigmoid              bridged      1    1,024       3.001  yes
aten::sin                  bridged      1      512       3.001  yes
aten::sort.stable          bridged      1      768       3.001  in aten::sort
aten::zero_                bridged      1      128       3.001  yes
aten::_local_scalar_dense  bridged      1        1       2.501  yes

On the card, without a launch (sizes, strides, memory)
operator                                 calls  torch_musa-2.7.1
aten::as_strided                            77  yes
aten::empty_strided                         76  yes
aten::_has_compatible_shallow_copy_type     60  yes
aten::view                                  43  yes
aten::empty.memory_format                   20  yes
aten::_reshape_alias                         2  in aten::scaled_dot_product_attention
aten::scaled_dot_product_attention           2  yes

Missing in torch_musa-2.7.1
none

Newer than torch 2.7.1, the torch of that stack
What a program there calls instead can't be seen from here.
operator           calls  here    called by
aten::_grouped_mm      2  native  the program

On the host
operator                   calls    bytes
aten::normal_                 22  268,288
aten::uniform_                17  135,168
aten::empty.memory_format     39  126,880
aten::fill_.Scalar            18    3,584
aten::zero_                    3    2,176
aten::div.Tensor               2       80
aten::mul.Tensor               2       80
aten::pow.Scalar               2       64
aten::reciprocal               2       64
aten::arange.start_out         2       32
aten::empty_strided            1       16

Copies
direction      calls   bytes
host to card      37  63,456
within a card     47  62,000
""",
        )
