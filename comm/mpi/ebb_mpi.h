// What Ebb needs of MPI, as a table of functions. The library libebb_mpi.so, which alone links MPI,
// gives the table; Ebb loads that library when ranks of several machines meet. So Ebb is built and
// runs without MPI, and one build of Ebb works with each implementation of MPI.
//
// Each function returns null, or a text that says what failed; the text is valid until the next
// call. No function waits, except start(), machines() and finish(), which all ranks call.
//
// Thread-safety: one thread calls all functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ebb {

/// A send or receive that has not ended yet. Null: there is none.
struct MpiRequest;

struct MpiFunctions {
  /// Starts MPI. `run` is a number that differs between runs and is the same on all ranks.
  const char* (*start)(uint32_t* rank, uint32_t* size, uint64_t* run);
  /// Fills `machines` with the lowest rank of the machine of each rank.
  const char* (*machines)(uint32_t* machines);
  /// Begins to send bytes, which stay unchanged until the request has ended. Messages of one rank
  /// to another one with the same tag arrive in the order in which they were sent.
  const char* (*send)(uint32_t to, uint32_t tag, const void* data, size_t bytes,
                      MpiRequest** request);
  /// Begins to receive a message of at most `bytes` bytes. from: kMpiAnyRank for any.
  const char* (*receive)(uint32_t from, uint32_t tag, void* data, size_t bytes,
                         MpiRequest** request);
  /// If the request has ended, makes it null and sets the sender and the number of bytes of what
  /// was received.
  const char* (*test)(MpiRequest** request, uint32_t* from, size_t* bytes);
  /// Ends a receive for which no message has come.
  const char* (*cancel)(MpiRequest** request);
  /// Ends MPI. REQUIRES: no request is left.
  const char* (*finish)();
};

inline constexpr uint32_t kMpiAnyRank = ~uint32_t{0};
/// Also the version of the table: another name for each change of it.
inline constexpr const char* kMpiFunctionsName = "ebb_mpi_functions_1";

}  // namespace ebb
