#include "scheduler/run/chunk_work.h"

#include "device/errors.h"

namespace ebb {
namespace {

[[noreturn]] void refuse() { throw LogicError("a plan without gradients has no such work"); }

}  // namespace

void ChunkWork::submit_round(Stream&, ChunkIndex) { refuse(); }
void ChunkWork::submit_partial_norms(Stream&, ChunkIndex) { refuse(); }
void ChunkWork::submit_update(Stream&, ChunkIndex) { refuse(); }
void ChunkWork::norm() { refuse(); }
void ChunkWork::update(ChunkIndex, BufferIndex, bool) { refuse(); }
void ChunkWork::speculate(ChunkIndex, BufferIndex, bool) { refuse(); }
void ChunkWork::add_groups(const Op&) { refuse(); }
void ChunkWork::round_total(const Op&) { refuse(); }
void ChunkWork::load_part(Stream&, const Op&, const std::byte*) { refuse(); }
void ChunkWork::gather(Stream&, const Op&, std::byte*) { refuse(); }
void ChunkWork::submit_sums(Stream&, const Op&, std::span<const std::byte>) { refuse(); }
void ChunkWork::send(const Op&) { refuse(); }
void ChunkWork::receive(const Op&) { refuse(); }
void ChunkWork::fetch(const Op&) { refuse(); }
Cost ChunkWork::update_cost(ChunkIndex) const { refuse(); }

}  // namespace ebb
