// Each process connects to the socket of the first rank of its machine and says which rank of how
// many it is. The first rank answers with the file descriptor of the memory of the run. The socket
// has an abstract address, so nothing is left in the file system.

#include "comm/meet_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "comm/process_ranks.h"
#include "comm/rank_memory.h"
#include "device/errors.h"
#include "system/clock.h"
#include "system/unique_fd.h"

namespace ebb {
namespace {

constexpr int kTryEvery_ms = 50;

struct Address {
  sockaddr_un address;
  socklen_t bytes;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// An abstract address begins with a 0.
Address address_of(std::string_view run) {
  const std::string name = fmt::format("ebb-ranks-{}-{}", getuid(), run);
  Address made = {};
  made.address.sun_family = AF_UNIX;
  if (name.size() > sizeof made.address.sun_path - 1) {
    throw ConfigError(fmt::format("the name of the run '{}' is longer than {} characters", run,
                                  sizeof made.address.sun_path - 1 - (name.size() - run.size())));
  }
  std::memcpy(made.address.sun_path + 1, name.data(), name.size());
  made.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return made;
}

UniqueFd make_socket() {
  UniqueFd made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (made.get() < 0) throw Error(fmt::format("cannot make a socket: {}", std::strerror(errno)));
  return made;
}

bool is_of_this_user(int connection) {
  ucred peer = {};
  socklen_t bytes = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
         peer.uid == getuid();
}

/// A message of one byte with room for one file descriptor.
struct FdMessage {
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};

  FdMessage() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
};

void send_fd(int connection, int fd) {
  FdMessage message;
  cmsghdr* const attached = CMSG_FIRSTHDR(&message.header);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(attached), &fd, sizeof fd);
  sendmsg(connection, &message.header, MSG_NOSIGNAL);  // a process that has ended does not join
}

/// No file if the connection was closed.
UniqueFd receive_fd(int connection) {
  FdMessage message;
  if (recvmsg(connection, &message.header, MSG_CMSG_CLOEXEC) != 1) return UniqueFd();
  const cmsghdr* const attached = CMSG_FIRSTHDR(&message.header);
  if (attached == nullptr || attached->cmsg_type != SCM_RIGHTS) return UniqueFd();
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(attached), sizeof fd);
  return UniqueFd(fd);
}

UniqueFd listen_at(std::string_view run) {
  UniqueFd listener = make_socket();
  const Address address = address_of(run);
  if (bind(listener.get(), address.get(), address.bytes) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    throw ConfigError(
        fmt::format("cannot begin the run '{}': {}", run,
                    errno == EADDRINUSE ? "another run has this name" : std::strerror(errno)));
  }
  return listener;
}

/// What a process says to the first rank.
struct Greeting {
  uint32_t rank = 0;
  uint32_t size = 0;
};

void set_limit(int connection, double limit_s) {
  const timeval limit{static_cast<time_t>(limit_s) + 1, 0};
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

std::string sizes_text(std::string_view run, const Greeting& greeting, const Greeting& first) {
  return fmt::format("rank {} of the run '{}' has {} ranks, rank {} has {}", greeting.rank, run,
                     greeting.size, first.rank, first.size);
}

/// Gives the memory to all other ranks of the machine.
void serve(std::string_view run, const UniqueFd& listener, int memory, const Greeting& first,
           uint32_t per_machine, double timeout_s) {
  std::vector<bool> has_come(per_machine);
  has_come[0] = true;
  const double start_s = steady_now_s();
  for (;;) {
    const auto missing = std::find(has_come.begin(), has_come.end(), false);
    if (missing == has_come.end()) return;
    if (steady_now_s() - start_s >= timeout_s) {
      throw RankLost(
          fmt::format("rank {} has not come to the run '{}' on this machine for {:.3g} s",
                      first.rank + (missing - has_come.begin()), run, timeout_s));
    }
    pollfd ready = {listener.get(), POLLIN, 0};
    if (poll(&ready, 1, kTryEvery_ms) != 1) continue;
    const UniqueFd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    set_limit(connection.get(), 5);
    Greeting greeting;
    if (!is_of_this_user(connection.get()) ||
        recv(connection.get(), &greeting, sizeof greeting, MSG_WAITALL) != sizeof greeting) {
      continue;
    }
    send_fd(connection.get(), memory);
    if (greeting.size != first.size || greeting.rank - first.rank >= per_machine) {
      throw ConfigError(sizes_text(run, greeting, first));
    }
    has_come[greeting.rank - first.rank] = true;
  }
}

UniqueFd memory_of_first(std::string_view run, const Greeting& greeting, uint32_t first,
                         double timeout_s) {
  const Address address = address_of(run);
  const double start_s = steady_now_s();
  for (;;) {
    const UniqueFd connection = make_socket();
    if (connect(connection.get(), address.get(), address.bytes) == 0 &&
        is_of_this_user(connection.get())) {
      set_limit(connection.get(), timeout_s);
      send(connection.get(), &greeting, sizeof greeting, MSG_NOSIGNAL);
      if (UniqueFd memory = receive_fd(connection.get()); memory.get() >= 0) return memory;
    }
    if (steady_now_s() - start_s >= timeout_s) {
      throw RankLost(fmt::format("rank {} has not begun the run '{}' on this machine for {:.3g} s",
                                 first, run, timeout_s));
    }
    sleep_until(steady_now_s() + 1e-3 * kTryEvery_ms);
  }
}

std::unique_ptr<Ranks> begin_run(std::string_view run, const Greeting& first, uint32_t per_machine,
                                 double timeout_s, const JoinMemory& join) {
  const UniqueFd listener = per_machine > 1 ? listen_at(run) : UniqueFd();
  const UniqueFd memory(create_rank_memory(first.size, per_machine));
  fcntl(memory.get(), F_SETFD, FD_CLOEXEC);
  std::unique_ptr<Ranks> ranks = join(memory.get());
  try {
    serve(run, listener, memory.get(), first, per_machine, timeout_s);
  } catch (const Error& error) {
    ranks->fail(error.what());
    throw;
  }
  return ranks;
}

}  // namespace

std::unique_ptr<Ranks> meet_ranks_of_machine(std::string_view run, uint32_t rank, uint32_t size,
                                             uint32_t per_machine, double timeout_s,
                                             const JoinMemory& join) {
  const uint32_t first = rank / per_machine * per_machine;
  if (rank == first) return begin_run(run, {rank, size}, per_machine, timeout_s, join);
  const UniqueFd memory = memory_of_first(run, {rank, size}, first, timeout_s);
  std::unique_ptr<Ranks> ranks = join(memory.get());
  if (ranks->size() == size) return ranks;
  throw ConfigError(sizes_text(run, {rank, size}, {first, ranks->size()}));
}

std::unique_ptr<Ranks> meet_ranks(std::string_view run, uint32_t rank, uint32_t size,
                                  const ProcessRanksOptions& options) {
  if (rank >= size) throw ConfigError(fmt::format("there is no rank {} of {}", rank, size));
  return meet_ranks_of_machine(run, rank, size, size, options.timeout_s,
                               [&](int memory) { return join_ranks(memory, rank, options); });
}

}  // namespace ebb
