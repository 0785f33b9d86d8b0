#!/usr/bin/env python3
"""bench/gpu/static.py and sass.py, on small samples of what the compiler and cuobjdump print: a conflict, a spill, a loop or an
occupancy that is computed wrongly is found here, without a compiler."""

import io
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench" / "gpu"))

import sass  # noqa: E402
import static  # noqa: E402


def code(*lines):
    """As cuobjdump prints it, with the encoding in comments."""
    text = "".join(f"        /*{16 * n:04x}*/                   {line} ;      /* 0x000000ff00017b82 */\n"
                   f"                                              /* 0x000fe20000000800 */\n" for n, line in enumerate(lines))
    return sass.parse(text)


TID = "S2R R0, SR_TID.X"


class ConflictTest(unittest.TestCase):
    def of(self, *lines):
        return sass.shared_accesses(code(*lines, "EXIT"))

    def ways(self, *lines):
        found = self.of(*lines)
        self.assertEqual(found.unknown, 0)
        return list(found.conflicts.values())

    def test_neighbouring_words_do_not_conflict(self):
        self.assertEqual(self.ways(TID, "ULDC UR4, c[0x0][0x160]", "LEA R2, R0, UR4, 0x2", "LDS R3, [R2+0x10]"), [1])

    def test_a_stride_of_32_words_is_the_worst(self):
        self.assertEqual(self.ways(TID, "IMAD.SHL.U32 R2, R0, 0x80, RZ", "STS [R2], R3"), [32])

    def test_two_bytes_a_lane(self):
        # Neighbours, and columns of rows of 272 and of 1,152 bytes.
        self.assertEqual(self.ways(TID, "IMAD R2, R0, 0x2, RZ", "STS.U16 [R2], R3"), [1])
        self.assertEqual(self.ways(TID, "IMAD R2, R0, 0x110, RZ", "STS.U16 [R2], R3"), [4])
        self.assertEqual(self.ways(TID, "IMAD R2, R0, 0x480, RZ", "STS.U16 [R2], R3"), [32])

    def test_wide_accesses_are_done_in_parts(self):
        self.assertEqual(self.ways(TID, "LEA R2, R0, RZ, 0x4", "LDS.128 R4, [R2]"), [1])
        self.assertEqual(self.ways(TID, "LEA R2, R0, RZ, 0x3", "LDS.64 R4, [R2]"), [1])
        self.assertEqual(self.ways(TID, "LEA R2, R0, RZ, 0x5", "LDS.128 R4, [R2]"), [2])
        self.assertEqual(self.ways(TID, "IMAD R2, R0, 0x100, RZ", "LDS.128 R4, [R2]"), [8])

    def test_rows_of_matrices(self):
        self.assertEqual(self.ways(TID, "IMAD R2, R0, 0x110, RZ", "LDSM.16.MT88.4 R4, [R2+0x20]"), [1])
        self.assertEqual(self.ways(TID, "IMAD R2, R0, 0x100, RZ", "LDSM.16.M88.4 R4, [R2]"), [8])

    def test_lanes_of_one_word_do_not_conflict(self):
        self.assertEqual(self.ways("LDS R3, [0x40]"), [1])
        self.assertEqual(self.ways(TID, "SHF.R.S32.HI R2, RZ, 0x5, R0", "IMAD R2, R2, 0x100, RZ", "LDS R3, [R2]"), [1])

    def test_quotients_and_remainders_of_lanes(self):
        # (lane / 4) * 272 + (lane % 4) * 4: the fragments of a tile with rows of 136 halves.
        quotient = ["SHF.R.S32.HI R1, RZ, 0x1f, R0", "LEA.HI R1, R1, R0, RZ, 0x2"]
        remainder = ["LOP3.LUT R2, R1, 0xfffffffc, RZ, 0xc0, !PT", "IMAD.IADD R2, R0, 0x1, -R2"]
        row = ["SHF.R.S32.HI R3, RZ, 0x2, R1", "IMAD R4, R3, 0x110, RZ", "LEA R4, R2, R4, 0x2", "LDS R5, [R4]"]
        self.assertEqual(self.ways(TID, *quotient, *remainder, *row), [1])
        self.assertEqual(self.ways(TID, *quotient, *remainder, row[0], "IMAD R4, R3, 0x80, RZ", *row[2:]), [8])

        self.assertEqual(self.ways(TID, "LEA.HI R1, R0, RZ, RZ, 0x1e", "IMAD.SHL.U32 R2, R1, 0x80, RZ", "LDS R3, [R2]"), [8])

    def test_a_uniform_unknown_shifts_but_does_not_scale(self):
        self.assertEqual(self.ways(TID, "S2UR UR7, SR_CTAID.X", "S2R R1, SR_CTAID.Y", "LEA R2, R0, R1, 0x2", "LDS R3, [R2+UR7]"), [1])
        self.assertEqual(self.of(TID, "IMAD R2, R0, c[0x0][0x160], RZ", "LDS R3, [R2]").unknown, 1)

    def test_what_memory_contains_is_unknown(self):
        found = self.of(TID, "LDG.E R2, [R4.64]", "LDS R3, [R2]", "LEA R2, R0, RZ, 0x2", "LDS R3, [R2]")
        self.assertEqual((found.unknown, list(found.conflicts.values())), (1, [1]))

    def test_a_block_is_evaluated_with_the_registers_with_which_it_is_reached(self):
        lines = [TID, "LEA R2, R0, RZ, 0x2", "BRA 0x50", "IMAD R2, R0, 0x80, RZ", "BRA 0x60", "LDS R3, [R2]", "EXIT"]
        self.assertEqual(self.ways(*lines), [1])
        lines = [TID, "LEA R2, R0, RZ, 0x2", "@P0 BRA 0x50", "IMAD R2, R0, 0x80, RZ", "EXIT", "LDS R3, [R2]", "EXIT"]
        self.assertEqual(self.ways(*lines), [1], "what follows a branch does not change what its target begins with")
        lines = [TID, "LEA R2, R0, RZ, 0x2", "BRA 0x50", "IMAD R2, R0, 0x80, RZ", "BRA 0x60", "LDS R3, [R2]", "EXIT"]
        text = "".join(f"  /*{16 * n:04x}*/  {line} ;\n" for n, line in enumerate(lines)).replace("BRA 0x50", "@P0 BRA 0x50")
        found = sass.shared_accesses(sass.parse(text.replace("BRA 0x60", "BRA 0x50")))
        self.assertEqual(list(found.conflicts.values()), [32], "the block after a branch that is not taken comes first")


class CodeTest(unittest.TestCase):
    def test_widths(self):
        found = code("@!P0 LDG.E.128 R4, desc[UR6][R2.64]", "LDG.E.U16 R4, [R2.64]", "LDG.E.U16 R4, [R2.64+0x2]",
                     "LDG.E R4, [R2.64]", "STG.E.64 [R2.64], R4")
        self.assertEqual(sass.widths_of(found, "LDG"), {16: 1, 2: 2, 4: 1})
        self.assertEqual(sass.widths_of(found, "STG"), {8: 1})

    def test_the_inner_loop_with_most_tensor_instructions(self):
        mma = "HMMA.16816.F32.BF16 R4, R8, R12, R4"
        lines = ["MOV R1, R2", mma, "@P0 BRA 0x10", "FADD R1, R1, R2", mma, mma, "FMUL R1, R1, R2", "NOP", "@P1 BRA 0x30", "@P2 BRA 0x0"]
        self.assertEqual(sass.loops_of(code(*lines)), [(0x10, 0x20), (0x30, 0x80), (0, 0x90)])
        self.assertEqual(sass.tensor_share(code(*lines)), 2 / 5)
        self.assertIsNone(sass.tensor_share(code("FADD R1, R1, R2", "@P0 BRA 0x0")))

    def test_functions_of_architectures(self):
        text = "arch = sm_80\n\t\tFunction : f\n" + "  /*0000*/  EXIT ;\n" + "arch = sm_90\n\tFunction : f\n\tFunction : g\n  /*0000*/ NOP ;\n  /*0010*/ EXIT ;\n"
        found = sass.functions_of(text)
        self.assertEqual({key: len(value) for key, value in found.items()}, {("sm_80", "f"): 1, ("sm_90", "f"): 0, ("sm_90", "g"): 2})


REPORT = """ptxas info    : Compiling entry function '_Z1fv' for 'sm_80'
ptxas info    : Function properties for _Z1fv
    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 256 bytes smem, 545 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1fv' for 'sm_90'
ptxas info    : Function properties for _Z1fv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers, 545 bytes cmem[0]
"""


class ReportTest(unittest.TestCase):
    def test_ptxas(self):
        found = static.ptxas_report(REPORT)
        self.assertEqual(found["sm_80", "_Z1fv"], {"registers": 128, "spill": 12, "shared": 256})
        self.assertEqual(found["sm_90", "_Z1fv"], {"registers": 30, "spill": 0, "shared": 0})

    def test_occupancy(self):
        # 184 registers: two blocks of 128 threads, of 2,048. Shared memory bounds sm_89, threads and blocks the last two.
        self.assertEqual(static.occupancy("sm_90", 184, 53504, 128), 2 * 128 / 2048)
        self.assertEqual(static.occupancy("sm_89", 182, 53504, 128), 128 / 1536)
        self.assertEqual(static.occupancy("sm_80", 32, 0, 256), 1)
        self.assertEqual(static.occupancy("sm_90", 16, 0, 32), 0.5)

    def test_the_bound_of_threads(self):
        text = "arch = sm_80\n.nv.info.f\n\tAttribute:\tEIATTR_MAX_THREADS\n\tFormat:\tEIFMT_SVAL\n\tValue:\t0x80 0x1 0x1 \n.nv.info.g\n\tx\n.text.g\n"
        self.assertEqual(static.largest_blocks(text), {("sm_80", "f"): 128, ("sm_80", "g"): 1024})

    def test_names(self):
        name = "void ebb::cuda::(anonymous namespace)::attend<128>(ebb::AttentionOperands, bool)"
        self.assertEqual(static.short_name("plain", name), "plain attend<128>")
        name = "void ebb::cuda::rows<(bool)1, 2, ebb::BF16>(ebb::cuda::NormRows<ebb::BF16>, float*)"
        self.assertEqual(static.short_name("norm", name), "norm rows<1, 2, BF16>")

    def test_only_spills_of_a_step_in_16_bits_fail(self):
        def spilling(bytes_):
            return {"sm_80": {"spill": 0}, "sm_89": {"spill": bytes_}}

        table = {"norm rows<BF16>": spilling(4), "norm rows<F16>": spilling(8), "norm rows<float>": spilling(4),
                 "attention_cached attend<BF16>": spilling(4), "tensor attend<64>": spilling(4), "loss rows<BF16>": spilling(0)}
        self.assertEqual(static.spills(table), ["norm rows<BF16>", "norm rows<F16>", "tensor attend<64>"])

    def test_the_table(self):
        figures = {"registers": 30, "spill": 0, "shared": "0", "occupancy": "100 %", "load": "16 B x 4", "store": "", "conflicts": "", "tensor": ""}
        table = {"a f<BF16>": {"sm_80": figures, "sm_89": {**figures, "registers": 32}, "sm_90": figures},
                 "a f<F16>": {"sm_80": figures}}
        out = io.StringIO()
        self.assertEqual(static.write(table, False, out), 0)
        self.assertIn("| `a f<BF16>` | 30 / 32 / 30 | 0 | 0 | 100 % | 16 B x 4 |  |  |  |\n", out.getvalue())
        self.assertIn("2 kernels, of which 1 are listed; 0 kernels", out.getvalue())

        table["a f<F16>"] = {"sm_80": {**figures, "spill": 4}}
        self.assertEqual(static.write(table, False, out), 1)
        self.assertIn("`a f<F16>`", out.getvalue(), "what spills is listed")

    def test_commands(self):
        command = ["nvcc", "-O3", "--generate-code=arch=compute_90,code=[sm_90]", "-MD", "-MT", "x.o", "-MF", "x.d", "-c", "f.cu", "-o", "x.o"]
        found = static.for_architectures(command, "y.o")
        self.assertEqual(found[:4], ["nvcc", "-O3", "-c", "f.cu"])
        self.assertEqual(found[4], "--generate-code=arch=compute_80,code=sm_80")
        self.assertEqual(found[-3:], ["-Xptxas=-v", "-o", "y.o"])


if __name__ == "__main__":
    unittest.main()
