#include "comm/rank_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "device/errors.h"
#include "system/quiet_thread.h"

namespace ebb {
namespace {

constexpr double kBeatEvery_s = 0.1;

void set_state(RankSlot& slot, RankState state) { slot.state.raise(static_cast<uint32_t>(state)); }

}  // namespace

void prepare_watched_slots(ControlBlock& block) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  for (uint32_t r = 0; r < block.size; ++r) pthread_mutex_init(&block.slot(r).alive, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

RankWatch::RankWatch(ControlBlock& block, uint32_t rank, double silence_s)
    : block_(block), rank_(rank), silence_s_(silence_s), seen_(block.size) {
  RankSlot& own = block_.slot(rank_);
  int32_t pid = 0;
  if (!own.pid.compare_exchange_strong(pid, getpid())) {
    throw ConfigError(fmt::format("process {} is rank {} already", pid, rank_));
  }
  thread_ = start_quiet_thread([this] { run(); });
  while (own.is(RankState::Absent)) own.state.sleep(0, 1);
}

RankWatch::~RankWatch() {
  stop_.raise(1);
  thread_.join();
}

void RankWatch::run() {
  RankSlot& own = block_.slot(rank_);
  pthread_mutex_lock(&own.alive);
  set_state(own, RankState::Joined);
  while (stop_.load() == 0) {
    own.beat.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t r = 0; r < block_.size; ++r) {
      if (r != rank_ && block_.slot(r).is(RankState::Joined)) look_at(r);
      if (r % block_.ranks_per_machine == rank_ % block_.ranks_per_machine &&
          block_.slot(r).is(RankState::Far)) {
        look_at_beat(r);
      }
    }
    stop_.sleep(0, kBeatEvery_s);
  }
  set_state(own, RankState::Left);
  pthread_mutex_unlock(&own.alive);
}

void RankWatch::look_at(uint32_t rank) {
  RankSlot& slot = block_.slot(rank);
  const int held = pthread_mutex_trylock(&slot.alive);
  if (held != EBUSY) {
    if (held == EOWNERDEAD) pthread_mutex_consistent(&slot.alive);
    if (held == EOWNERDEAD || held == 0) pthread_mutex_unlock(&slot.alive);
    // A rank marks itself as one that has left before it unlocks.
    if (slot.is(RankState::Joined)) {
      lost(fmt::format("rank {} is gone: its process {} has ended", rank, slot.pid.load()));
    }
    return;
  }
  look_at_beat(rank);
}

void RankWatch::look_at_beat(uint32_t rank) {
  RankSlot& slot = block_.slot(rank);
  Seen& seen = seen_[rank];
  const uint32_t beat = slot.beat.load(std::memory_order_relaxed);
  seen.silent_s = beat == seen.beat ? seen.silent_s + kBeatEvery_s : 0;
  seen.beat = beat;
  if (seen.silent_s >= silence_s_) {
    lost(fmt::format("rank {} does not answer: its process {} has done nothing for {:.3g} s", rank,
                     slot.pid.load(), silence_s_));
  }
}

}  // namespace ebb
