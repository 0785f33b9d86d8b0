// What the thread of a link does until the rank and its partners have left.

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/machine_link.h"
#include "comm/ranks.h"
#include "system/clock.h"

namespace ebb {
namespace {

constexpr uint32_t kLinkFormat = kControlBlockFormat;
constexpr uint32_t kMessages = 0;   // the tag of messages
constexpr uint32_t kFirstSlot = 1;  // that of an answer is kFirstSlot + the number of the slot
constexpr double kBeatEvery_s = 0.1;
constexpr double kLeaveLimit_s = 2;  // after a failure

// The thread sleeps if it has nothing to do: shortly, if it had something a millisecond ago.
constexpr double kRecent_s = 1e-3;
constexpr double kShortSleep_s = 20e-6;
constexpr double kLongSleep_s = 100e-6;

// If ranks of a machine throw an error because of what they exchanged, the entries of all of them
// shall reach the other machines before the failure does.
constexpr double kForwardAfter_s = 0.02;

void check_mpi(const char* error) {
  if (error != nullptr) throw Error(fmt::format("MPI fails: {}", error));
}

}  // namespace

void MachineLink::start_mpi() {
  check_mpi(mpi_.start(&place_.rank, &place_.size, &place_.run));
  place_.machines.resize(place_.size);
  check_mpi(mpi_.machines(place_.machines.data()));
}

bool MachineLink::is_near(uint32_t rank) const {
  const uint32_t per_machine = block().ranks_per_machine;
  return rank / per_machine == place_.rank / per_machine;
}

void MachineLink::serve_until_end() {
  prctl(PR_SET_TIMERSLACK, 1000);  // 1 us; with the default, each sleep is 50 us longer
  const uint32_t per_machine = block().ranks_per_machine;
  for (uint32_t r = place_.rank % per_machine; r < place_.size; r += per_machine) {
    if (r != place_.rank) partners_.push_back(r);
  }
  received_.resize(sizeof(LinkHeader) + kExchangePieceBytes);
  receive_next();
  for (double now_s = steady_now_s(), active_s = now_s; !is_at_end(now_s); now_s = steady_now_s()) {
    const uint32_t seen = queued_.load();
    beat(now_s);
    forward_failure(now_s);
    leave(now_s);
    const bool has_sent = send_queued(), has_received = handle_received();
    const bool has_read = end_reads(), has_ended = end_sends(), has_answered = answer_later(now_s);
    if (has_sent || has_received || has_read || has_ended || has_answered) {
      active_s = now_s;
    } else {
      queued_.sleep(seen, now_s - active_s < kRecent_s ? kShortSleep_s : kLongSleep_s);
    }
  }
  if (may_finish_) check_mpi(mpi_.cancel(&receiving_));
}

bool MachineLink::send_queued() {
  std::vector<Outgoing> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(queue_);
  }
  for (Outgoing& message : messages) send(std::move(message));
  return !messages.empty();
}

void MachineLink::send(Outgoing&& message) {
  const std::vector<std::byte>& bytes = message.bytes;
  if (message.to == kMpiAnyRank) {
    for (const uint32_t partner : partners_) send({partner, bytes, nullptr});
    return;
  }
  if (message.slot != nullptr) {
    LinkHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    check_mpi(mpi_.receive(message.to, kFirstSlot + header.number, message.slot->data.get(),
                           header.bytes, &message.slot->request));
  }
  MpiRequest* request = nullptr;
  check_mpi(mpi_.send(message.to, kMessages, bytes.data(), bytes.size(), &request));
  sending_.push_back({request, std::move(message.bytes)});
}

bool MachineLink::end_sends() {
  return std::erase_if(sending_, [&](Sending& sending) {
           uint32_t to = 0;
           size_t bytes = 0;
           check_mpi(mpi_.test(&sending.request, &to, &bytes));
           return sending.request == nullptr;
         }) > 0;
}

void MachineLink::receive_next() {
  check_mpi(mpi_.receive(kMpiAnyRank, kMessages, received_.data(), received_.size(), &receiving_));
}

bool MachineLink::handle_received() {
  uint32_t from = 0;
  size_t bytes = 0;
  check_mpi(mpi_.test(&receiving_, &from, &bytes));
  if (receiving_ != nullptr) return false;
  LinkHeader header;
  std::memcpy(&header, received_.data(), sizeof header);
  handle(header, std::span(received_).first(bytes).subspan(sizeof header), from);
  receive_next();
  return true;
}

void MachineLink::handle(const LinkHeader& header, std::span<const std::byte> payload,
                         uint32_t from) {
  RankSlot& slot = block().slot(from);
  switch (header.kind) {
    case LinkHeader::Kind::Beat:
      if (header.number != kLinkFormat) {
        throw Error(fmt::format("rank {} runs another version of Ebb", from));
      }
      slot.pid = static_cast<int32_t>(header.value);
      slot.beat.fetch_add(1, std::memory_order_relaxed);
      slot.progress = static_cast<uint32_t>(header.bytes);
      if (slot.is(RankState::Absent)) slot.state.raise(static_cast<uint32_t>(RankState::Far));
      break;
    case LinkHeader::Kind::Entry: {
      RoundEntry& entry = slot.entries[(header.number - 1) % 2];
      entry.operation = header.value;
      entry.bytes = header.bytes;
      if (!payload.empty()) std::memcpy(entry.piece, payload.data(), payload.size());
      slot.arrived.raise(header.number);
      break;
    }
    case LinkHeader::Kind::Signal: {
      const std::lock_guard lock(mutex_);
      signals_.at(from)[header.number].raise(header.value);
      break;
    }
    case LinkHeader::Kind::Request:
      if (pace_.is_emulated()) {
        delayed_.push_back({pace_.passes_at(header.bytes, steady_now_s()), header, from});
      } else {
        answer(header, from);
      }
      break;
    case LinkHeader::Kind::Failure:
      announce_failure(block(), from,
                       {reinterpret_cast<const char*>(payload.data()), payload.size()});
      break;
    case LinkHeader::Kind::Leave:
      slot.state.raise(static_cast<uint32_t>(RankState::Left));
      break;
  }
}

void MachineLink::answer(const LinkHeader& request, uint32_t to) {
  std::span<const std::byte> shared;
  {
    const std::lock_guard lock(mutex_);
    shared = shared_;
  }
  if (request.offset > shared.size() || request.bytes > shared.size() - request.offset) {
    throw Error(fmt::format("rank {} reads {} bytes from {} of memory with {} bytes", to,
                            request.bytes, request.offset, shared.size()));
  }
  MpiRequest* sending = nullptr;
  check_mpi(mpi_.send(to, kFirstSlot + request.number, shared.data() + request.offset,
                      request.bytes, &sending));
  sending_.push_back({sending, {}});
}

bool MachineLink::answer_later(double now_s) {
  bool has_answered = false;
  for (; !delayed_.empty() && delayed_.front().until_s <= now_s; delayed_.pop_front()) {
    answer(delayed_.front().request, delayed_.front().to);
    has_answered = true;
  }
  return has_answered;
}

bool MachineLink::end_reads() {
  bool has_ended = false;
  for (ReadSlot& slot : slots_) {
    if (slot.request == nullptr) continue;
    uint32_t from = 0;
    size_t bytes = 0;
    check_mpi(mpi_.test(&slot.request, &from, &bytes));
    if (slot.request != nullptr) continue;
    slot.arrived.raise(slot.arrived.load() + 1);
    has_ended = true;
  }
  return has_ended;
}

void MachineLink::beat(double now_s) {
  if (now_s - beaten_s_ < kBeatEvery_s) return;
  beaten_s_ = now_s;
  queue(kMpiAnyRank, {.kind = LinkHeader::Kind::Beat,
                      .number = kLinkFormat,
                      .value = static_cast<uint32_t>(getpid()),
                      .bytes = block().slot(place_.rank).progress.load()});
}

void MachineLink::forward_failure(double now_s) {
  const uint32_t failed = block().failed.load(std::memory_order_acquire);
  if (failed == 0 || has_forwarded_) return;
  if (failed_s_ == 0) failed_s_ = now_s;
  if (now_s - failed_s_ < kForwardAfter_s) return;
  has_forwarded_ = true;
  const uint32_t slot = failed - 1;  // that of other machines has sent its failure to all
  if (slot != place_.size && !is_near(slot)) return;
  const std::string_view text = block().slot(slot).failure;
  queue(kMpiAnyRank, {.kind = LinkHeader::Kind::Failure}, std::as_bytes(std::span(text)));
}

// If the run has failed, its other ranks learn this first, and not that the rank has left.
void MachineLink::leave(double now_s) {
  if (!is_leaving_ || left_s_ != 0) return;
  if (block().failed.load() != 0 && !has_forwarded_) return;
  left_s_ = now_s;
  queue(kMpiAnyRank, {.kind = LinkHeader::Kind::Leave});
}

bool MachineLink::have_far_ranks_left() const {
  for (uint32_t r = 0; r < place_.size; ++r) {
    if (!is_near(r) && !block().slot(r).is(RankState::Left)) return false;
  }
  return true;
}

bool MachineLink::is_at_end(double now_s) {
  if (left_s_ == 0) return false;
  const bool is_idle =
      sending_.empty() && delayed_.empty() &&
      std::ranges::all_of(slots_, [](const ReadSlot& slot) { return slot.request == nullptr; });
  if (is_idle && have_far_ranks_left()) return true;
  if (block().failed.load() == 0 || now_s - left_s_ < kLeaveLimit_s) return false;
  may_finish_ = false;
  return true;
}

}  // namespace ebb
