#!/usr/bin/env python3
"""Finds identifiers and phrases that the glossary (docs/glossary.md) has retired.

Usage: check_words.py --root DIR
The check reads code, comments, messages, scripts and documents, but no recorded results of benchmarks. Ordinary English
words are allowed: a phrase is listed only if it has no other sense in this project.
Exit code: 0 if no retired word is found, otherwise 1.
"""

import argparse
import pathlib
import re
import sys

# Names that another name has replaced. Each is matched as a whole word.
IDENTIFIERS = """
Moment begin_moment end_moment begin_loss_moment between_moments first_moment last_moment next_moment_
BlockBoundary BlockFunction pass_block recomputed_blocks num_model_blocks
Lane StreamRole kNumLanes lane_busy_s
ActivationRest Turns OnTurn
make_settle_plan settle_plan make_fill_plan fill_plan make_drain_plan drain_plan settle_defaults settle_gradient_slots
PlanGround prepare_ground plan_ground
kWorthOfHope may_hope in_hope take_standing take_back undone_chunks
LoanGate StateLoan lend_state is_lent
HeldChunk held_at_start held_at_end num_held held_chunks
CarriedUpdate carried_share carry_updates has_carried make_carried
visitor rank_at_home num_dense first_dense RankSet
emit_bring order_brings give_block
mover_ stop_mover wait_in_place waits_in_place
Contender contender Judge judge_ leaner polish
pretended pretended_kernels rehearses bench_rehearsal
GradientSlot gradient_slot gradient_slots num_gradient_slots home_slot kGradientSlots
num_speculated num_device_updates num_recomputed
EscapeWriter EscapeReader kEscapeBlockWords
QuietLock give_order take_order deal_threads summon wait_for_summoned
LoopQueue LoopFunction PretendedStream PretendedBlocks PageTable
SteadyTurns try_model fit_to_model
finish_gradient submit_finish finish_order pass_gradient
ebb_room EBB_ROOMS check_house
""".split()

# (phrase, folders and files in which it is retired; empty: all)
CORE = ("autograd/", "chunk/", "cuda/", "device/", "scheduler/", "system/", "tools/", "docs/", "README.md", "bench/", "tests/")
PHRASES = [
    (r"at home", ()),
    (r"(come|comes|came|go|goes|went|gone|sent|send|sends|take|takes|brings?|is|are) home", ()),
    (r"in (the )?hope", ()),
    (r"in vain", ()),
    (r"the mover|mover thread", ()),
    (r"(the|a|on) loan|is lent|the borrower", ()),
    (r"rehears(al|als|e|es|ed)", ()),
    (r"pretend(s|ed|ing)|kernels pretend|only pretend", ()),
    (r"(load|store|compute|update) lanes?|lane order|four lanes", ()),
    (r"gradient slots?|home slots?", ()),
    (r"dense numbers?", ()),
    (r"takes? turns|(hands?|pass(es)?) on (its|their) turns?|has (its|their) turn", ()),
    (r"held (chunks?|weights)|weights? (that )?(is|are) held|hold from step to step", ()),
    (r"carried (updates?|into the next)|updates? (that )?(is|are) carried", ()),
    (r"(largest|open|each|every|several|another|next|same) moments?(?! of the)", CORE),
    (r"moments? (of|in) (a|the) (trace|step|plan)", CORE),
    (r"recompute(--|=|: | )block\b(?! \()|block by block|blocks that are recomputed", ("autograd/", "scheduler/", "tools/", "README.md")),
    (r"as told|was told|were told|is told|is not told", ()),
    (r"waits? in place", ()),
    (r"(settle|fill|drain) plans?", ()),
    (r"of the house|this house|this room|each room|a room's", ()),
    (r"escapes?", ("cpu_adam/", "docs/undo.md", "tests/cpu_adam/")),
    (r"whoever", ()),
    (r"lives? on the device and (is|are) updated there and takes? no room", ()),
]
FOLDERS = ("autograd", "bench", "chunk", "cmake", "comm", "cpu_adam", "cuda", "device", "docs", "ebb", "examples", "io", "model_zoo", "python",
           "scheduler", "system", "tests", "tools")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".md", ".cmake", ".txt", ".html", ".in", ".json", ""}
# The lists of retired words, recorded results, the data of tests, and pictures.
SKIPPED = ("tests/structure/check_words.py", "tests/structure/test_check_words.py", "bench/results/", "tests/fixtures/", "docs/pictures/",
           "tests/fuzz/seeds/")
COMMENT_BREAK = re.compile(r"[ \t]*\n[ \t]*(?://[/!]?<?|#|\*)?[ \t]*")


def files_below(root):
    """(path below the root, text) of every file that is searched."""
    found = [root / "README.md", root / "CMakeLists.txt"]
    for folder in FOLDERS:
        found += sorted((root / folder).rglob("*"))
    for file in found:
        name = file.relative_to(root).as_posix()
        if not file.is_file() or file.suffix not in SUFFIXES or name.startswith(SKIPPED):
            continue
        try:
            yield name, file.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # not a text file
            continue


def unwrapped(text):
    """The text with a space for each line break and without comment signs. Padding keeps the offsets."""
    return COMMENT_BREAK.sub(lambda match: " " + "\0" * (len(match[0]) - 1), text)


def words_in(name, text):
    """(line number, word) of each retired identifier and phrase of a file."""
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, IDENTIFIERS)) + r")\b")
    for match in pattern.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[0]
    flat = unwrapped(text)
    for phrase, where in PHRASES:
        if where and not name.startswith(where):
            continue
        spaced = phrase.replace(" ", r"[ \0]+")
        for match in re.finditer(r"\b(" + spaced + r")\b", flat, re.IGNORECASE):
            yield text.count("\n", 0, match.start()) + 1, re.sub(r"[ \0]+", " ", match[0])


def retired_words(root):
    """Sorted lines "file:line: word"."""
    return sorted(f"{name}:{line}: {word}" for name, text in files_below(root) for line, word in words_in(name, text))


def main():
    parser = argparse.ArgumentParser(description="Finds retired identifiers and phrases.")
    parser.add_argument("--root", type=pathlib.Path, required=True)
    found = retired_words(parser.parse_args().root)
    for line in found:
        print(line)
    print(f"{len(found)} retired words; docs/glossary.md lists the words to use")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
